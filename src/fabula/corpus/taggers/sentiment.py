"""Sentiment tags by VADER: negative, neutral, positive (the paper's scaffold)."""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from fabula.corpus.states import SENTIMENT
from fabula.corpus.taggers.protocol import from_settings, register_tagger
from fabula.errors import UserError


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
        score = _vader().polarity_scores
        return [self.state(score(sentence)["compound"]) for sentence in sentences]

    def state(self, compound: float) -> int:
        """The state of one compound score in [-1, 1]."""
        return 2 if compound >= self.threshold_positive else 0 if compound <= self.threshold_negative else 1


register_tagger("vader")(from_settings(VaderTagger))
