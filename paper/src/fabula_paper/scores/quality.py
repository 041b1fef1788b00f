"""Counted measures of written stories: variety, copying, and the measures of other packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fabula.corpus.dataset import Corpus
from fabula.metrics.counting import Mask, Share, Text, distinct, written_only
from fabula.registry import Registry
from fabula_paper.scores.copying import TrainingText, copied_4grams


@dataclass(frozen=True)
class Reader:
    """What the training text teaches the measures."""

    training: TrainingText

    @classmethod
    def of(cls, corpus: Corpus) -> Reader:
        return cls(TrainingText.of_split(corpus.split("train"), corpus.vocabulary))


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
        for name, share in self.shares.items():
            figures[name] = share.interval(draws=draws, seed=seed).to_json() | {"of": int(share.of.sum())}
        return figures


def quality(stories: Text, reader: Reader, given: Mask = None) -> Quality:
    """All measures of the written sentences."""
    sentences = sum(len(story) for story in written_only(stories, given))
    if not sentences:
        raise ValueError("no written sentence to measure")
    shares = {"copied_4grams": copied_4grams(stories, reader.training, given)}
    shares |= {name: MEASURES.find(name)(stories, reader, given) for name in MEASURES.names()}
    return Quality(len(stories), sentences, distinct(stories, 2, given), shares)
