"""Counted measures of written stories: variety, copying, and the measures of other packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import Corpus
from fabula.corpus.vocabulary import EOS, UNK
from fabula.metrics.counting import Mask, Share, Text, distinct, share, written_only
from fabula.registry import Registry

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Reader:
    """What measures know of the training text: its word ids, `<eos>` after every sentence, and the ids of words."""

    tokens: IntArray
    index: dict[str, int]

    @classmethod
    def of(cls, corpus: Corpus) -> Reader:
        return cls(np.asarray(corpus.split("train").tokens).astype(np.int64), dict(corpus.vocabulary.index))


MEASURES: Registry[Callable[[Text, Reader, Mask], Share]] = Registry("fabula.measures", "measure")
"""Measures of other packages, which `quality` takes beside Fabula's (docs/extending.md)."""


@dataclass(frozen=True)
class Quality:
    """Every counted measure of some stories."""

    stories: int
    sentences: int
    distinct_2: float
    """Falls with the number of stories: only sets of equal size compare."""
    shares: dict[str, Share]

    def to_json(self, *, draws: int = 1000, seed: int = 0) -> dict[str, Any]:
        """The figures, with bootstrap intervals."""
        figures: dict[str, Any] = {
            "stories": self.stories,
            "sentences": self.sentences,
            "distinct_2": round(self.distinct_2, 4),
        }
        for name, counts in self.shares.items():
            figures[name] = counts.interval(draws=draws, seed=seed).to_json() | {"of": int(counts.of.sum())}
        return figures


def quality(stories: Text, reader: Reader, given: Mask = None) -> Quality:
    """All measures of the written sentences."""
    sentences = sum(len(story) for story in written_only(stories, given))
    if not sentences:
        raise ValueError("no written sentence to measure")
    shares = {"copied_4grams": copied_4grams(stories, reader, given)}
    shares |= {name: MEASURES.find(name)(stories, reader, given) for name in MEASURES.names()}
    return Quality(len(stories), sentences, distinct(stories, 2, given), shares)


def copied_4grams(stories: Text, reader: Reader, given: Mask = None) -> Share:
    """4-grams of written sentences that the training text has too; one with an unknown word is never shared."""
    from fabula.corpus.tokenize import tokenise

    written = [
        [id for sentence in story for id in (*(reader.index.get(word, UNK) for word in tokenise(sentence)), EOS)]
        for story in written_only(stories, given)
    ]
    tokens = np.array([id for story in written for id in story], dtype=np.int64)
    story_of = np.repeat(np.arange(len(written)), [len(story) for story in written])
    both = np.concatenate([tokens, [EOS] * 3, reader.tokens, [EOS] * 3])
    codes, within, without_unknown = _fours(both)
    is_written = np.arange(len(codes)) < len(tokens)
    shared = np.isin(codes, codes[~is_written & within & without_unknown])
    of, cases = within & is_written, within & is_written & without_unknown & shared
    counts = [np.bincount(story_of[where[: len(tokens)]], minlength=len(stories)) for where in (cases, of)]
    return share(*counts)


def _fours(tokens: IntArray) -> tuple[IntArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """At each place: a code of the 4-gram from there, whether it is within a sentence, whether it knows all words."""
    pairs = np.unique(tokens[:-1] * (tokens.max() + 1) + tokens[1:], return_inverse=True)[1]
    codes = pairs[:-2] * (pairs.max() + 1) + pairs[2:]
    windows = np.lib.stride_tricks.sliding_window_view(tokens, 4)
    return codes, (windows != EOS).all(1), (windows != UNK).all(1)
