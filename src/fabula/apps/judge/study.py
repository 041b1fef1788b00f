"""A study: the pairs and checks in their order, each with its sides, and who judges which of them next.

An annotator is shown an item's number and two columns of sentences. The systems, which story stands on which side,
and whether an item is a check stay hidden. Every draw depends on the study's seed alone.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fabula.apps.judge.pairs import Pair, Sentences
from fabula.errors import UserError

Choice = Literal["left", "right", "tie"]
MAX_ANNOTATORS, MAX_CHECKS, MAX_ITEMS = 100, 1_000, 10_000


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """The options of `fabula judge new`."""

    seed: int = 0
    """Draws sides, orders and checks: the same file and seed give the same study."""
    annotators: int = 3
    """Different people for each pair; the paper's value."""
    checks: int = 0
    """Attention checks to make besides those in the file. The paper mentions none."""

    def __post_init__(self) -> None:
        if not 1 <= self.annotators <= MAX_ANNOTATORS:
            raise UserError(f"--annotators is 1 to {MAX_ANNOTATORS}, not {self.annotators}", field="annotators")
        if not 0 <= self.checks <= MAX_CHECKS:
            raise UserError(f"--checks is 0 to {MAX_CHECKS:,}, not {self.checks}", field="checks")


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

    def choice(self, better: int | None) -> Choice:
        """The inverse of `better`."""
        return "tie" if better is None else "right" if (better == 1) != self.swapped else "left"


def lay_out(pairs: Sequence[Pair], settings: StudySettings) -> list[Item]:
    """Every pair and check in its shuffled place, with balanced sides.

    For every two systems, each stands on the left in half of their pairs (one more where the number is odd). The same
    holds for the better story of the checks.
    """
    everything = [*pairs, *make_checks(pairs, settings.checks, settings.seed)]
    if len(everything) > MAX_ITEMS:
        raise UserError(f"a study has at most {MAX_ITEMS:,} pairs, not {len(everything):,}; split the file")
    rng = random.Random(f"fabula sides {settings.seed}")
    order = rng.sample(everything, len(everything))
    comparisons: dict[tuple[str, ...], list[Pair]] = {}
    for pair in order:
        comparisons.setdefault(tuple(sorted(pair.systems or ())), []).append(pair)
    left: dict[str, bool] = {}  # whether a pair's reference story stands on the left
    for compared in comparisons.values():
        start = rng.randrange(2)
        for turn, pair in enumerate(rng.sample(compared, len(compared))):
            left[pair.id] = (turn + start) % 2 == 0
    return [
        Item(number=number, pair=pair, swapped=left[pair.id] != (_reference_story(pair) == 0))
        for number, pair in enumerate(order, start=1)
    ]


def _reference_story(pair: Pair) -> int:
    """The story whose side is balanced: a check's better one, else that of the alphabetically first system."""
    if pair.better is not None:
        return pair.better
    assert pair.systems is not None
    return pair.systems.index(min(pair.systems))


def make_checks(pairs: Sequence[Pair], number: int, seed: int) -> list[Pair]:
    """Attention checks: a story against itself with another pair's sentences in place of the written ones.

    A system may have written nonsense in the first place, so an annotator is assessed by the share of checks passed,
    never by a single one. Each check comes from a different pair as long as there are enough.
    """
    if number == 0:
        return []
    sources = [pair for pair in pairs if not pair.is_check]
    rng = random.Random(f"fabula checks {seed}")
    hosts = rng.sample(sources, len(sources))
    ids = {pair.id for pair in pairs}
    checks: list[Pair] = []
    for host in hosts * (1 + number // len(hosts)):
        if len(checks) == number:
            break
        story = rng.randrange(2)
        worse = _with_foreign_sentences(host, story, sources, rng)
        if worse is None:
            continue
        id = f"check-{len(checks) + 1}"
        while id in ids:
            id += "'"
        checks.append(Pair(id=id, systems=None, given=host.given, stories=(host.stories[story], worse), better=0))
    if len(checks) < number:
        raise UserError(
            f"only {len(checks)} attention checks can be made of these pairs: a check needs a story with written "
            "sentences and another pair to borrow from; ask for fewer with --checks",
            field="checks",
        )
    return checks


def _with_foreign_sentences(host: Pair, story: int, donors: Sequence[Pair], rng: random.Random) -> Sentences | None:
    """The story with another pair's written sentences, shuffled, in place of its written ones; None without any."""
    places = host.written(story)
    host_sentences = set(host.stories[0]) | set(host.stories[1])
    for donor in rng.sample(list(donors), len(donors)):
        side = rng.randrange(2)
        foreign = [text for i in donor.written(side) if (text := donor.stories[side][i]) not in host_sentences]
        if not places or not foreign:
            continue
        original = list(foreign)
        while len(set(foreign)) > 1 and foreign == original:
            rng.shuffle(foreign)
        sentences = list(host.stories[story])
        for number, place in enumerate(places):
            sentences[place] = foreign[number % len(foreign)]
        return tuple(sentences)
    return None


def next_item(
    items: Sequence[Item], settings: StudySettings, code: str, answered: Collection[int], taken: Mapping[int, int]
) -> Item | None:
    """The item that this annotator judges next, None where nothing is left.

    `answered` has the numbers of the items that they have judged; `taken` says how many others have judged or hold an
    item. Pairs that others have begun come first, so that a study that runs out of people has finished pairs. Among
    equals the order depends on the annotator. Every annotator gets every check, spread over their pairs.
    """
    checks = [item for item in items if item.pair.is_check]
    pairs = [item for item in items if not item.pair.is_check]
    unanswered = [item for item in pairs if item.number not in answered]
    open_pairs = [item for item in unanswered if taken.get(item.number, 0) < settings.annotators]
    if not open_pairs:
        return None

    def draw(what: int) -> float:
        """A number in [0, 1) that depends on the seed, the annotator and `what`, on every machine."""
        digest = hashlib.sha256(f"{settings.seed}\0{code}\0{what}".encode()).digest()
        return int.from_bytes(digest[:7], "big") / 2**56

    done = len(pairs) - len(unanswered)
    for place, item in enumerate(sorted(checks, key=lambda item: draw(item.number))):
        share = (place + draw(-place - 1)) / len(checks)
        due = min(int(share * len(pairs)), len(pairs) - 1)  # before the last pair
        if item.number not in answered and done >= due:
            return item
    return min(open_pairs, key=lambda item: (-taken.get(item.number, 0), draw(item.number)))
