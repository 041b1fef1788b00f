"""Counting in stories: shares that can be bootstrapped, words, and which sentences were written.

A story is a list of sentences, as English text. Where only some sentences were written, `given[story][sentence]` says
which were not: a measure then counts written sentences, and may look at given ones. Shares come as a pair of numbers
for every story (cases, out of how many): a figure is their ratio of sums, and can be bootstrapped over stories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabula.metrics.bootstrap import Interval, ratio

FloatArray = NDArray[np.float64]
Text = Sequence[Sequence[str]]
"""Stories as sentences."""
Mask = Sequence[Sequence[bool]] | None
"""Which sentences were given; None for stories that were written whole."""
_WORD = re.compile(r"n['’]t\b|\w+(?=n['’]t\b)|['’](?:s|m|re|ve|ll|d)\b|\w+(?:-\w+)*|[^\w\s]", re.UNICODE)


@dataclass(frozen=True)
class Share:
    """Cases of every story, out of how many."""

    cases: FloatArray
    of: FloatArray

    @property
    def value(self) -> float:
        total = self.of.sum()
        return float(self.cases.sum() / total) if total else float("nan")

    def interval(self, *, draws: int = 1000, seed: int = 0) -> Interval:
        return ratio(self.cases, self.of, draws=draws, seed=seed)


def words_of(sentence: str) -> list[str]:
    """A sentence's words in small letters, marks apart: for counting only, so spaCy is not needed."""
    return _WORD.findall(sentence.lower())


def ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def masks(stories: Text, given: Mask) -> Sequence[Sequence[bool]]:
    if given is None:
        return [[False] * len(story) for story in stories]
    if [len(story) for story in given] != [len(story) for story in stories]:
        raise ValueError("`given` does not have the stories' lengths")
    return given


def written_only(stories: Text, given: Mask) -> list[list[str]]:
    return [
        [sentence for sentence, was_given in zip(story, mask, strict=True) if not was_given]
        for story, mask in zip(stories, masks(stories, given), strict=True)
    ]


def per_sentence(stories: Text, given: Mask, counts: Callable[[Sequence[str], int], bool]) -> Share:
    """Written sentences for which `counts(story, place)` holds, out of all written ones."""
    cases, of = [], []
    for story, mask in zip(stories, masks(stories, given), strict=True):
        written = [place for place, was_given in enumerate(mask) if not was_given]
        cases.append(sum(counts(story, place) for place in written))
        of.append(len(written))
    return Share(np.array(cases, dtype=np.float64), np.array(of, dtype=np.float64))


def distinct(stories: Text, n: int, given: Mask = None) -> float:
    """Different n-grams per n-gram of all written sentences; falls with their number, so only equal sets compare."""
    sentences = [sentence for story in written_only(stories, given) for sentence in story]
    grams = [gram for sentence in sentences for gram in ngrams(words_of(sentence), n)]
    return len(set(grams)) / len(grams) if grams else float("nan")
