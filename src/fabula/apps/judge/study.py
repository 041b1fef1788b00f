"""A study laid out: the pairs and checks in an order, each with its sides, all drawn from one seed.

What an annotator is shown of an item is its number and two columns of sentences. Names of systems, which story stands
where, and whether it is a check stay here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from fabula.apps.judge.checks import make_checks
from fabula.apps.judge.pairs import Pair
from fabula.errors import UserError

MAX_ANNOTATORS, MAX_CHECKS, MAX_ITEMS = 100, 1_000, 10_000


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What `fabula judge new` is told."""

    seed: int = 0
    """Draws sides, orders and checks: the same file and seed give the same study."""
    annotators: int = 3
    """Different people for each pair; the paper's value."""
    checks: int = 0
    """Attention checks to make, besides those in the file. The paper speaks of none."""

    def __post_init__(self) -> None:
        if not 1 <= self.annotators <= MAX_ANNOTATORS:
            raise UserError(f"--annotators is 1 to {MAX_ANNOTATORS}, not {self.annotators}", field="annotators")
        if not 0 <= self.checks <= MAX_CHECKS:
            raise UserError(f"--checks is 0 to {MAX_CHECKS:,}, not {self.checks}", field="checks")


@dataclass(frozen=True, kw_only=True)
class Item:
    """A pair in its place."""

    number: int
    """From 1, in the study's shuffled order: all that an annotator learns of a pair's identity."""
    pair: Pair
    swapped: bool
    """Whether the second story stands on the left."""

    def sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The story on the left, the story on the right."""
        first, second = self.pair.stories
        return (second, first) if self.swapped else (first, second)


def lay_out(pairs: Sequence[Pair], settings: StudySettings) -> list[Item]:
    """Every pair and check in its shuffled place, sides balanced.

    Of each two systems' pairs, half have the one on the left and half the other (one more where they are odd),
    whichever way round the file names them. The same holds for the better story of the checks.
    """
    everything = [*pairs, *make_checks(pairs, settings.checks, settings.seed)]
    if len(everything) > MAX_ITEMS:
        raise UserError(f"a study has at most {MAX_ITEMS:,} pairs, not {len(everything):,}; split the file")
    rng = random.Random(f"fabula sides {settings.seed}")
    order = rng.sample(everything, len(everything))
    kinds: dict[tuple[str, ...], list[Pair]] = {}
    for pair in order:
        kinds.setdefault(tuple(sorted(pair.systems or ())), []).append(pair)
    left: dict[
        str, bool
    ] = {}  # whether the leading story (first name by the alphabet, or the better one) is on the left
    for same in kinds.values():
        begins = rng.randrange(2)
        for turn, pair in enumerate(rng.sample(same, len(same))):
            left[pair.id] = (turn + begins) % 2 == 0
    return [
        Item(number=number, pair=pair, swapped=left[pair.id] != (_leading(pair) == 0))
        for number, pair in enumerate(order, start=1)
    ]


def _leading(pair: Pair) -> int:
    """The story that the balance of sides is counted by."""
    if pair.better is not None:
        return pair.better
    assert pair.systems is not None
    return pair.systems.index(min(pair.systems))
