"""An annotator's answer about a pair, a curator's error sheet about a story, and what makes them valid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from pydantic import ConfigDict, Field

from fabula.apps.judge.pairs import Pair, systems_of
from fabula.errors import UserError

SCALE = range(4)
"""The paper's scale of coherence."""
MAX_SECONDS = 86_400.0
LOWEST_STORIES = 20
"""Stories on an error sheet; the paper's number."""
CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""An annotator's code, which stands in addresses, columns and file names."""

Ratings = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Judgement:
    """An answer, by story of the pair, whichever side the story stood on."""

    pair: str
    annotator: str
    ratings: Ratings
    """For each of the two stories, a rating of every sentence but the first."""
    better: int | None
    """The story that connects its beginning and end better, None for a tie."""
    seconds: float
    """Time the pair was looked at."""


def check_code(code: str) -> str:
    if not CODE.fullmatch(code):
        raise UserError(
            "a code has 1 to 64 letters, digits, dots, hyphens or underscores, and begins with a letter or digit",
            field="code",
        )
    return code


def check_ratings(pair: Pair, ratings: Sequence[Sequence[int]]) -> Ratings:
    """Ratings in the order of the pair's stories, one for each sentence but the first."""
    for story, (sentences, given) in enumerate(zip(pair.stories, ratings, strict=True)):
        if len(given) != len(sentences) - 1:
            message = f"{len(given)} ratings for {len(sentences) - 1} sentences: every sentence but the first has one"
            raise UserError(message, field=f"ratings[{story}]")
    return tuple(map(tuple, ratings))


@dataclass(frozen=True, kw_only=True)
class SheetAnswers:
    """The questions of the paper's appendix B about one story."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    ending: Annotated[bool, Field(description="The ending is not connected with the sentences before.")]
    off_topic: Annotated[bool, Field(description="A sentence is mildly off topic.")]
    ungrammatical: Annotated[tuple[bool, ...], Field(max_length=64, description="One for each written sentence.")]


@dataclass(frozen=True, kw_only=True)
class ErrorSheet(SheetAnswers):
    """A curator's answers about one story of a pair."""

    pair: Annotated[str, Field(max_length=80)]
    story: Annotated[int, Field(ge=0, le=1)]


def lowest_stories(
    pairs: Iterable[Pair], judgements: Iterable[Judgement], *, system: str | None, number: int = LOWEST_STORIES
) -> list[tuple[Pair, int, float]]:
    """(pair, story, mean rating) of the lowest-rated stories of one system or of all, the lowest first."""
    ratings: dict[tuple[str, int], list[int]] = {}
    for judgement in judgements:
        for story in (0, 1):
            ratings.setdefault((judgement.pair, story), []).extend(judgement.ratings[story])
    rated = [
        (pair, story, fmean(ratings[pair.id, story]))
        for pair in pairs
        for story in (0, 1)
        if (pair.id, story) in ratings and system in (None, pair.systems[story])
    ]
    return sorted(rated, key=lambda story: story[2])[:number]


@dataclass(frozen=True)
class ErrorCounts:
    """Appendix B's counts for one system, or for all (None)."""

    system: str | None
    stories: int
    ending: int
    off_topic: int
    sentences: int
    ungrammatical: int


def count_errors(
    pairs: Sequence[Pair], judgements: Sequence[Judgement], sheets: Sequence[ErrorSheet]
) -> list[ErrorCounts]:
    """Counts over the error sheets of the lowest-rated stories: of all systems, then of each."""
    sheet_of = {(sheet.pair, sheet.story): sheet for sheet in sheets}
    counts = []
    for system in (None, *systems_of(pairs)):
        lowest = lowest_stories(pairs, judgements, system=system)
        filled = [sheet_of[pair.id, story] for pair, story, _ in lowest if (pair.id, story) in sheet_of]
        if filled:
            endings, off_topic = sum(sheet.ending for sheet in filled), sum(sheet.off_topic for sheet in filled)
            wrong = [flag for sheet in filled for flag in sheet.ungrammatical]
            counts.append(ErrorCounts(system, len(filled), endings, off_topic, len(wrong), sum(wrong)))
    return counts
