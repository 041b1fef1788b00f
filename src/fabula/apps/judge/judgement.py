"""One answer of one annotator about one pair, and what makes it a valid one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fabula.apps.judge.pairs import Pair
from fabula.errors import UserError

LOWEST, HIGHEST = 0, 3
"""The paper's scale of coherence."""
MAX_SECONDS = 86_400.0
CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""An annotator's code: it goes into addresses, columns and file names."""

Ratings = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An answer as it is kept: by story of the pair, whichever side it stood on."""

    id: int
    pair: str
    annotator: str
    ratings: Ratings
    """For each of the two stories, a rating of every sentence but the first."""
    better: int | None
    """The story that connects its beginning and end better, None for a tie."""
    seconds: float
    """Time the pair was looked at."""
    created: int
    updated: int
    """Seconds since 1970."""

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "pair": self.pair,
            "annotator": self.annotator,
            "ratings": [list(story) for story in self.ratings],
            "better": self.better,
            "seconds": self.seconds,
            "created": self.created,
            "updated": self.updated,
        }


def check_code(code: str) -> str:
    if not CODE.fullmatch(code):
        raise UserError(
            "a code has 1 to 64 letters, digits, dots, hyphens or underscores, and begins with a letter or digit",
            field="code",
        )
    return code


def check_ratings(pair: Pair, ratings: Sequence[Sequence[int]]) -> Ratings:
    """Ratings in the order of the pair's stories, one for each sentence but the first."""
    if len(ratings) != 2:
        raise UserError(f"ratings are of two stories, not {len(ratings)}", field="ratings")
    for story, given in enumerate(ratings):
        wanted = len(pair.stories[story]) - 1
        if len(given) != wanted:
            raise UserError(
                f"{len(given)} ratings for {wanted} sentences: every sentence but the first has one",
                field=f"ratings[{story}]",
            )
        for place, rating in enumerate(given):
            if isinstance(rating, bool) or not isinstance(rating, int) or not LOWEST <= rating <= HIGHEST:
                raise UserError(
                    f"a rating is a whole number from {LOWEST} to {HIGHEST}", field=f"ratings[{story}][{place}]"
                )
    return tuple(ratings[0]), tuple(ratings[1])


def check_seconds(seconds: float) -> float:
    if not math.isfinite(seconds) or not 0 <= seconds <= MAX_SECONDS:
        raise UserError(f"seconds are between 0 and {MAX_SECONDS:,.0f}", field="seconds")
    return round(float(seconds), 3)
