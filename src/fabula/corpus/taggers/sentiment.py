"""Sentiment tags by VADER: negative, neutral, positive (the paper's scaffold)."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from fabula.corpus.states import SENTIMENT
from fabula.corpus.taggers.protocol import register_tagger
from fabula.errors import UserError

RATER = 0.9
"""How far one person's rating of a word lies from the mean of all: the mean deviation in VADER's lexicon, 0.907."""


@lru_cache(maxsize=1)
def _vader() -> Any:
    """One analyser per process: reading its lexicon takes longer than tagging a thousand sentences."""
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError as error:
        raise UserError("tagging raw text needs VADER: pip install vaderSentiment") from error
    return SentimentIntensityAnalyzer()


@dataclass(frozen=True)
class VaderTagger:
    """Three states from VADER's compound score, as in the paper (Section 4): the thresholds belong to the tags."""

    threshold_positive: float = 0.2
    """A compound score of at least this is positive (the paper's value)."""
    threshold_negative: float = -0.2
    """A compound score of at most this is negative (the paper's value)."""

    def __post_init__(self) -> None:
        if not -1 <= self.threshold_negative < self.threshold_positive <= 1:
            values = f"{self.threshold_negative} and {self.threshold_positive}"
            raise UserError(f"the thresholds need -1 <= negative < positive <= 1, not {values}", field="thresholds")

    @property
    def labels(self) -> tuple[str, ...]:
        return SENTIMENT

    @property
    def settings(self) -> dict[str, object]:
        return {"tagger": "vader", **asdict(self)}

    def tag(self, sentences: list[str]) -> list[int | None]:
        """0 negative, 1 neutral, 2 positive; VADER has an answer for every sentence."""
        return [self.state(self.compound(sentence)) for sentence in sentences]

    def shares(self, sentences: list[str]) -> list[list[float]]:
        """How sure each label is: the probability that one person's rating falls on this side of the nearest border.

        VADER's compound score is c = s / sqrt(s^2 + 15) of a sum s of valences, which one person is taken to rate as
        N(s, RATER^2). What is left belongs to the label across that border. So the tag has at least a half.
        """
        return [self._shares(self.compound(sentence)) for sentence in sentences]

    def _shares(self, compound: float) -> list[float]:
        state, score = self.state(compound), valence(compound)
        borders = {0: valence(self.threshold_negative), 2: valence(self.threshold_positive)}
        nearest = state if state != 1 else min(borders, key=lambda side: abs(score - borders[side]))
        share = 0.5 * (1 + math.erf(abs(score - borders[nearest]) / RATER / math.sqrt(2)))
        shares = [0.0, 0.0, 0.0]
        shares[state], shares[1 if state != 1 else nearest] = share, 1 - share
        return shares

    @staticmethod
    def compound(sentence: str) -> float:
        """VADER's score in [-1, 1]."""
        return float(_vader().polarity_scores(sentence)["compound"])

    def state(self, compound: float) -> int:
        """The state of one compound score in [-1, 1]."""
        return 2 if compound >= self.threshold_positive else 0 if compound <= self.threshold_negative else 1


def valence(compound: float) -> float:
    """The sum of valences that has this compound score."""
    return math.copysign(math.inf, compound) if abs(compound) >= 1 else compound * math.sqrt(15 / (1 - compound**2))


@register_tagger("vader")
def build_vader(settings: Mapping[str, Any]) -> VaderTagger:
    return VaderTagger(**{name: value for name, value in settings.items() if name.startswith("threshold_")})
