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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabula.corpus.tokenize import detokenise
from fabula.errors import UserError
from fabula.metrics.bootstrap import Interval, bootstrap
from fabula.metrics.counting import Text, ngrams, words_of
from fabula.metrics.quality import Reader, quality

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NAMES = {
    "[MALE]": ("Tom", "Bob", "Sam", "Dan", "Max"),
    "[FEMALE]": ("Amy", "Sue", "Jane", "Anna", "Kate"),
    "[NEUTRAL]": ("Alex", "Jamie", "Robin"),
}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("january", "february", "april", "june", "july", "august", "september", "october", "november", "december")
_FEASTS = ("christmas", "halloween", "thanksgiving", "easter")
PROPER = frozenset(["i", "english", "american", *_DAYS, *_MONTHS, *_FEASTS])
"""Words with a capital wherever they stand; `march` and `may` are more often none."""


_STOPS = (".", "!", "?")
_QUOTES = ('"', "''")
_KIN = ("wife", "husband", "mom", "dad", "mother", "father", "son", "daughter", "sister", "brother", "niece", "nephew")
_OWN = frozenset([*_KIN, "friend", "friends", "family", "girlfriend", "boyfriend", "boss", "dog", "cat", "parents"])


@dataclass(frozen=True)
class Rated:
    """One story with its raters' verdict."""

    id: str
    sentences: list[str]
    labels: tuple[int, ...]

    @property
    def rating(self) -> float:
        """The share of raters who found it reasonable."""
        return sum(label == 0 for label in self.labels) / len(self.labels)


@dataclass(frozen=True)
class Correlation:
    """Of one measure with the ratings, each with a bootstrap over stories; `n` stories had a figure."""

    pearson: Interval
    spearman: Interval
    n: int

    def to_json(self) -> dict[str, Any]:
        return {"pearson": self.pearson.to_json(), "spearman": self.spearman.to_json(), "n": self.n}


def read_ratings(file: str | Path) -> list[Rated]:
    """The rated stories of a file, in its order, as written English."""
    path = Path(file)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split("|||")]
        labels = parts[-1].split()
        if len(parts) != 3 or not labels or not all(label.isdigit() for label in labels):
            raise UserError(f"{path}, line {number}: not `id ||| story ||| labels`")
        found.append(Rated(parts[0], restore(parts[1], number), tuple(int(label) for label in labels)))
    if not found:
        raise UserError(f"{path} holds no rated story")
    return found


def restore(text: str, number: int = 0) -> list[str]:
    """The sentences of a masked story as written English: names, capitals, blanks.

    `number` chooses the names. The same mask is the same person throughout a story: who was who is lost. Before a word
    for one of the speaker's own the mask stood for `my`, which is somebody's name too.
    """
    words = re.sub(r"([.!?])(?=[a-z\[])", r"\1 ", text).split()
    sentences: list[list[str]] = [[]]
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if word in NAMES:
            known = NAMES[word]
            word = "my" if following in _OWN else known[number % len(known)]
        sentences[-1].append(word)
        ended = word in _STOPS and following not in (*_STOPS, *_QUOTES)
        quoted = word in _QUOTES and len(sentences[-1]) > 1 and sentences[-1][-2] in _STOPS
        if ended or quoted:
            sentences.append([])
    return [_sentence(sentence) for sentence in sentences if sentence]


def _sentence(words: Sequence[str]) -> str:
    told = [word.capitalize() if word in PROPER else word for word in words]
    first = 1 if told[0] in ('"', "''", "``") and len(told) > 1 else 0
    told[first] = told[first][:1].upper() + told[first][1:]
    return detokenise(['"' if word in ("``", "''") else word for word in told])


def measures_of(texts: Text, reader: Reader) -> dict[str, FloatArray]:
    """Every measure as a figure for each story, signed so that larger should mean better."""
    from fabula_paper.scores.pretrained import context_gain, embed, story_perplexity

    found = story_perplexity(texts)
    counted = quality(texts, reader)
    shares = {name: counted.shares[name].per_story() for name in counted.shares}
    with np.errstate(invalid="ignore"):
        each = found.sentence_nats / np.where(found.sentence_tokens > 0, found.sentence_tokens, np.nan)
    own = np.split(embed([sentence for story in texts for sentence in story]), np.cumsum([len(t) for t in texts])[:-1])
    return {
        "- story perplexity, log (SmolLM2)": -found.nats / found.tokens,
        "- nats of the story (SmolLM2)": -found.nats,
        "- worst sentence, nats per token (SmolLM2)": -np.nanmax(each, axis=1),
        "what context saves, nats per token (SmolLM2)": context_gain(texts),
        "likeness of neighbours (MiniLM)": np.array([_likeness(v, 1) for v in own]),
        "likeness of all pairs (MiniLM)": np.array([_likeness(v, len(v)) for v in own]),
        "- repeated sentences": -shares["repeated_sentences"],
        "- repeated 4-grams": -shares["repeated_4grams"],
        "- copied 4-grams": -shares["copied_4grams"],
        "- longest copied": -counted.longest_copied.astype(np.float64),
        "distinct-1 of the story": np.array([_variety(story, 1) for story in texts]),
        "distinct-2 of the story": np.array([_variety(story, 2) for story in texts]),
        "names given": shares["names_given"],
        "pronouns agree": shares["pronouns_agree"],
        "- verbless sentences": -shares["verbless"],
        "- words": -np.array([sum(len(words_of(sentence)) for sentence in story) for story in texts], dtype=np.float64),
    }


def _likeness(features: NDArray[np.float32], reach: int) -> float:
    """The mean over pairs of sentences at most `reach` apart."""
    cosines = features @ features.T
    pairs = [cosines[i, j] for i in range(len(features)) for j in range(i + 1, min(len(features), i + reach + 1))]
    return float(np.mean(pairs)) if pairs else float("nan")


def _variety(story: Sequence[str], n: int) -> float:
    grams = [gram for sentence in story for gram in ngrams(words_of(sentence), n)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def correlate(measure: ArrayLike, ratings: ArrayLike, *, draws: int = 1000, seed: int = 0) -> Correlation:
    """Pearson's and Spearman's; stories on which the measure says nothing (not a number) are left out."""
    x, y = (np.asarray(values, dtype=np.float64) for values in (measure, ratings))
    if x.shape != y.shape:
        raise ValueError(f"{len(x)} figures for {len(y)} ratings")
    said = np.isfinite(x)
    x, y = x[said], y[said]

    def pearson(rows: IntArray) -> FloatArray:
        return _pearson(x[rows], y[rows])

    def spearman(rows: IntArray) -> FloatArray:
        return np.array([_pearson(ranks(x[row])[None], ranks(y[row])[None])[0] for row in rows])

    return Correlation(
        bootstrap(pearson, len(x), draws=draws, seed=seed), bootstrap(spearman, len(x), draws=draws, seed=seed), len(x)
    )


def calibrate(measures: Mapping[str, ArrayLike], ratings: ArrayLike, *, seed: int = 0) -> dict[str, Correlation]:
    """Every measure's correlation with the same ratings."""
    return {name: correlate(figures, ratings, seed=seed) for name, figures in measures.items()}


def ranks(values: FloatArray) -> FloatArray:
    """From 1, equal values sharing the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    found: FloatArray = (last - (counts - 1) / 2)[inverse]
    return found


def _pearson(x: FloatArray, y: FloatArray) -> FloatArray:
    """Of each row; not a number where a row does not vary."""
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: FloatArray = (x * y).sum(1) / np.sqrt((x**2).sum(1) * (y**2).sum(1))
    return found
