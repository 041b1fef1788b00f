"""Which measures track people? Their correlation with the ratings of 400 machine-written stories (UNION, EMNLP 2020).

The file has a line for each story: `id ||| story ||| seven labels`; 0 means reasonable, and a story's rating is its
share of zeros. The text is lower-cased and tokenised and its names are masked, so case and names are put back before
anything that cares reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from fabula.corpus.tokenize import detokenise
from fabula.errors import UserError
from fabula.metrics.bootstrap import Interval, bootstrap
from fabula.metrics.counting import Text, distinct, words_of
from fabula_paper.scores.quality import Reader, quality

FloatArray = NDArray[np.float64]
NAMES = {
    "[MALE]": ("Tom", "Bob", "Sam", "Dan", "Max"),
    "[FEMALE]": ("Amy", "Sue", "Jane", "Anna", "Kate"),
    "[NEUTRAL]": ("Alex", "Jamie", "Robin"),
}
_CAPITAL = """i english american monday tuesday wednesday thursday friday saturday sunday january february april june
july august september october november december christmas halloween thanksgiving easter"""
PROPER = frozenset(_CAPITAL.split())
"""Words with a capital wherever they stand; `march` and `may` are more often none."""
_RELATIONS = """wife husband mom dad mother father son daughter sister brother niece nephew friend friends family
girlfriend boyfriend boss dog cat parents"""
AFTER_MY = frozenset(_RELATIONS.split())
_STOPS, _QUOTES = (".", "!", "?"), ('"', "''")


@dataclass(frozen=True)
class Rated:
    """One story with its raters' labels."""

    id: str
    sentences: list[str]
    labels: tuple[int, ...]

    @property
    def rating(self) -> float:
        """The share of raters who found it reasonable."""
        return sum(label == 0 for label in self.labels) / len(self.labels)


class Correlation(NamedTuple):
    """Of one measure with the ratings, each with a bootstrap over stories; `n` stories had a figure."""

    pearson: Interval
    spearman: Interval
    n: int


def read_ratings(file: str | Path) -> list[Rated]:
    """The rated stories of a file, in its order, as written English."""
    path = Path(file)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    rated = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("|||")]
        labels = parts[-1].split()
        if len(parts) != 3 or not labels or not all(label.isdigit() for label in labels):
            raise UserError(f"{path}, line {number}: not `id ||| story ||| labels`")
        rated.append(Rated(parts[0], restore(parts[1], number), tuple(int(label) for label in labels)))
    if not rated:
        raise UserError(f"{path} holds no rated story")
    return rated


def restore(text: str, number: int = 0) -> list[str]:
    """The sentences of a masked story as written English: names, capitals, blanks.

    `number` chooses the names. The same mask is the same person throughout a story: who was who is lost. Before a
    relation of the speaker (`wife`) the mask stood for `my`.
    """
    words = re.sub(r"([.!?])(?=[a-z\[])", r"\1 ", text).split()
    sentences: list[list[str]] = [[]]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in NAMES:
            word = "my" if following in AFTER_MY else NAMES[word][number % len(NAMES[word])]
        sentences[-1].append(word)
        ended = word in _STOPS and following not in (*_STOPS, *_QUOTES)
        if ended or (word in _QUOTES and len(sentences[-1]) > 1 and sentences[-1][-2] in _STOPS):
            sentences.append([])
    return [_sentence(sentence) for sentence in sentences if sentence]


def _sentence(tokens: Sequence[str]) -> str:
    words = [word.capitalize() if word in PROPER else word for word in tokens]
    first = 1 if words[0] in ('"', "''", "``") and len(words) > 1 else 0
    words[first] = words[first][:1].upper() + words[first][1:]
    return detokenise(['"' if word in ("``", "''") else word for word in words])


def measures_of(texts: Text, reader: Reader) -> dict[str, FloatArray]:
    """Every measure as a figure for each story, signed so that larger should mean better."""
    from fabula_paper.scores.pretrained import context_gain, embed, story_perplexity

    surprise, counted = story_perplexity(texts), quality(texts, reader)
    shares = {name: counted.shares[name].per_story() for name in counted.shares}
    with np.errstate(invalid="ignore"):
        per_token = surprise.sentence_nats / np.where(surprise.sentence_tokens > 0, surprise.sentence_tokens, np.nan)
    ends = np.cumsum([len(story) for story in texts])[:-1]
    features = np.split(embed([sentence for story in texts for sentence in story]), ends)
    return {
        "- story perplexity, log (SmolLM2)": -surprise.nats / surprise.tokens,
        "- nats of the story (SmolLM2)": -surprise.nats,
        "- worst sentence, nats per token (SmolLM2)": -np.nanmax(per_token, axis=1),
        "what context saves, nats per token (SmolLM2)": context_gain(texts),
        "likeness of neighbours (MiniLM)": np.array([_likeness(rows, 1) for rows in features]),
        "likeness of all pairs (MiniLM)": np.array([_likeness(rows, len(rows)) for rows in features]),
        "- repeated sentences": -shares["repeated_sentences"],
        "- repeated 4-grams": -shares["repeated_4grams"],
        "- copied 4-grams": -shares["copied_4grams"],
        "- longest copied": -counted.longest_copied.astype(np.float64),
        "distinct-1 of the story": np.array([distinct([story], 1) for story in texts]),
        "distinct-2 of the story": np.array([distinct([story], 2) for story in texts]),
        "names given": shares["names_given"],
        "pronouns agree": shares["pronouns_agree"],
        "- verbless sentences": -shares["verbless"],
        "- words": -np.array([sum(len(words_of(s)) for s in story) for story in texts], dtype=np.float64),
    }


def _likeness(features: NDArray[np.float32], reach: int) -> float:
    """The mean cosine of pairs of sentences at most `reach` apart."""
    i, j = np.triu_indices(len(features), 1)
    near = j - i <= reach
    return float((features @ features.T)[i[near], j[near]].mean()) if near.any() else float("nan")


def correlate(measure: ArrayLike, ratings: ArrayLike, *, draws: int = 1000, seed: int = 0) -> Correlation:
    """Pearson's and Spearman's; stories without a figure (not a number) are left out."""
    x, y = (np.asarray(values, dtype=np.float64) for values in (measure, ratings))
    if x.shape != y.shape:
        raise ValueError(f"{len(x)} figures for {len(y)} ratings")
    x, y = x[np.isfinite(x)], y[np.isfinite(x)]
    n = len(x)
    pearson = bootstrap(lambda rows: _pearson(x[rows], y[rows]), n, draws=draws, seed=seed)
    spearman = bootstrap(
        lambda rows: _pearson(rankdata(x[rows], axis=1), rankdata(y[rows], axis=1)), n, draws=draws, seed=seed
    )
    return Correlation(pearson, spearman, n)


def calibrate(measures: Mapping[str, ArrayLike], ratings: ArrayLike, *, seed: int = 0) -> dict[str, Correlation]:
    """Every measure's correlation with the same ratings."""
    return {name: correlate(figures, ratings, seed=seed) for name, figures in measures.items()}


def _pearson(x: FloatArray, y: FloatArray) -> FloatArray:
    """Of each row; not a number where a row does not vary."""
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1)))
