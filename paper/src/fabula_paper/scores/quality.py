"""Counted measures of written stories: variety, and the measures of other packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.dataset import Corpus
from fabula.metrics.counting import Mask, Share, Text, distinct, written_only
from fabula.registry import Registry


@dataclass(frozen=True)
class Reader:
    """What measures know of the training text: its word ids, `<eos>` after every sentence, and the ids of words."""

    tokens: NDArray[np.int64]
    index: dict[str, int]

    @classmethod
    def of(cls, corpus: Corpus) -> Reader:
        return cls(np.asarray(corpus.split("train").tokens).astype(np.int64), dict(corpus.vocabulary.index))


MEASURES: Registry[Callable[[Text, Reader, Mask], Share]] = Registry("fabula.measures", "measure")
"""Measures of other packages, which `quality` takes beside distinct-2 (docs/extending.md)."""


def quality(stories: Text, reader: Reader, given: Mask = None, *, seed: int = 0) -> dict[str, Any]:
    """All measures of the written sentences, with bootstrap intervals. Distinct-2 falls with the number of stories."""
    sentences = sum(len(story) for story in written_only(stories, given))
    if not sentences:
        raise ValueError("no written sentence to measure")
    figures: dict[str, Any] = {"sentences": sentences, "distinct_2": round(distinct(stories, 2, given), 4)}
    for name in MEASURES.names():
        counts = MEASURES.find(name)(stories, reader, given)
        figures[name] = counts.interval(seed=seed).to_json() | {"of": int(counts.of.sum())}
    return figures
