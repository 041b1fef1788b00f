"""The stories that people found least coherent: what the error sheet of the paper's appendix B asks about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from fabula.apps.judge.judgement import Judgement
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.store import ErrorSheet

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


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Appendix B's counts for one system, or for all."""

    system: str | None
    stories: int
    """With a sheet, among the lowest-rated."""
    ending: int
    off_topic: int
    sentences: int
    """Written sentences of those stories."""
    ungrammatical: int


def count_errors(pairs: Sequence[Pair], judgements: Sequence[Judgement], sheets: Sequence[ErrorSheet]) -> list[Errors]:
    """Counts over those of the lowest-rated stories that a curator has answered for: of all systems, then of each."""
    answered = {(sheet.pair, sheet.story): sheet for sheet in sheets}
    found = []
    for system in (None, *systems_of(pairs)):
        chosen = [
            answered[low.pair.id, low.story]
            for low in lowest(pairs, judgements, system=system, number=STORIES)
            if (low.pair.id, low.story) in answered
        ]
        if chosen:
            found.append(
                Errors(
                    system=system,
                    stories=len(chosen),
                    ending=sum(sheet.ending for sheet in chosen),
                    off_topic=sum(sheet.off_topic for sheet in chosen),
                    sentences=sum(len(sheet.ungrammatical) for sheet in chosen),
                    ungrammatical=sum(sum(sheet.ungrammatical) for sheet in chosen),
                )
            )
    return found
