"""A study: the pairs in their order, each with its sides.

An annotator is shown an item's number and two columns of sentences. The systems, and which story stands on which side,
stay hidden. Every draw depends on the study's seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fabula.apps.judge.pairs import Pair, Sentences
from fabula.errors import UserError

Choice = Literal["left", "right", "tie"]
SCALE = range(4)
"""The paper's scale of coherence."""
MAX_ANNOTATORS, MAX_ITEMS = 100, 10_000


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """The options of `fabula judge new`."""

    seed: int = 0
    """Draws sides and orders: the same file and seed give the same study."""
    annotators: int = 3
    """Different people for each pair; the paper's value."""

    def __post_init__(self) -> None:
        if not 1 <= self.annotators <= MAX_ANNOTATORS:
            raise UserError(f"--annotators is 1 to {MAX_ANNOTATORS}, not {self.annotators}", field="annotators")


@dataclass(frozen=True, kw_only=True)
class Item:
    """A pair in its place in the study."""

    number: int
    """From 1, in the study's shuffled order."""
    pair: Pair
    swapped: bool
    """Whether the second story stands on the left."""

    def sides(self) -> tuple[Sentences, Sentences]:
        """The story on the left, the story on the right."""
        first, second = self.pair.stories
        return (second, first) if self.swapped else (first, second)

    def better(self, choice: str) -> int | None:
        """The story of the pair that `choice` (left, right or tie) prefers."""
        return None if choice == "tie" else int((choice == "right") != self.swapped)


def lay_out(pairs: Sequence[Pair], settings: StudySettings) -> list[Item]:
    """Every pair in its shuffled place, with balanced sides.

    For every two systems, each stands on the left in half of their pairs (one more where the number is odd).
    """
    if len(pairs) > MAX_ITEMS:
        raise UserError(f"a study has at most {MAX_ITEMS:,} pairs, not {len(pairs):,}; split the file")
    rng = random.Random(f"fabula sides {settings.seed}")
    order = rng.sample(pairs, len(pairs))
    comparisons: dict[tuple[str, ...], list[Pair]] = {}
    for pair in order:
        comparisons.setdefault(tuple(sorted(pair.systems)), []).append(pair)
    left: dict[str, bool] = {}  # whether the story of the alphabetically first system stands on the left
    for compared in comparisons.values():
        start = rng.randrange(2)
        for turn, pair in enumerate(rng.sample(compared, len(compared))):
            left[pair.id] = (turn + start) % 2 == 0
    return [
        Item(number=number, pair=pair, swapped=left[pair.id] != (pair.systems[0] < pair.systems[1]))
        for number, pair in enumerate(order, start=1)
    ]
