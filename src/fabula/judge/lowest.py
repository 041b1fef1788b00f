"""The stories that people found least coherent: what the error sheet of the paper's appendix B asks about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fabula.judge.judgement import Judgement
from fabula.judge.pairs import Pair

STORIES = 20
"""The paper's number."""


@dataclass(frozen=True, kw_only=True)
class Low:
    """One story of a pair, and how people rated it."""

    pair: Pair
    story: int
    mean: float
    """Over every sentence but the first, and over annotators."""

    @property
    def system(self) -> str:
        assert self.pair.systems is not None
        return self.pair.systems[self.story]


def lowest(
    pairs: Iterable[Pair], judgements: Iterable[Judgement], *, system: str | None = None, number: int = STORIES
) -> list[Low]:
    """The lowest-rated stories, of one system or of all, the lowest first; among equals as the pairs are ordered."""
    ratings: dict[tuple[str, int], list[int]] = {}
    for one in judgements:
        for story in (0, 1):
            ratings.setdefault((one.pair, story), []).extend(one.ratings[story])
    found = [
        Low(pair=pair, story=story, mean=fmean(ratings[pair.id, story]))
        for pair in pairs
        for story in (0, 1)
        if pair.systems is not None and (pair.id, story) in ratings and system in (None, pair.systems[story])
    ]
    return sorted(found, key=lambda low: low.mean)[:number]


def systems_of(pairs: Sequence[Pair]) -> list[str]:
    """Every system that a study compares, by name."""
    return sorted({name for pair in pairs for name in pair.systems or ()})
