"""Attention checks made from the pairs themselves: a story against the same one with foreign for a middle.

The better story is one that a system wrote, as it stands. The worse one keeps its given sentences and has, where the
system wrote, the sentences that a system wrote for another pair, in another order where there are two or more. Whoever
reads both sees that these do not belong. It is a test of attention and not of taste, but no proof: a system may have
written nonsense in the first place, so an annotator is judged by the share of checks passed, never by a single one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fabula.apps.judge.pairs import Pair
from fabula.errors import UserError


def make_checks(pairs: Sequence[Pair], number: int, seed: int) -> list[Pair]:
    """So many attention checks, each from a pair of its own as long as there are enough."""
    if number == 0:
        return []
    proper = [pair for pair in pairs if not pair.is_check]
    rng = random.Random(f"fabula checks {seed}")
    hosts = rng.sample(proper, len(proper))
    made: list[Pair] = []
    taken = {pair.id for pair in pairs}
    for host in hosts * (1 + number // len(hosts)):
        if len(made) == number:
            break
        story = rng.randrange(2)
        worse = _damaged(host, story, proper, rng)
        if worse is None:
            continue
        name = f"check-{len(made) + 1}"
        while name in taken:
            name += "'"
        made.append(
            Pair(id=name, systems=None, given=host.given, stories=(host.stories[story], worse), better=0)
        )  # the side is drawn later, with every pair's
    if len(made) < number:
        raise UserError(
            f"only {len(made)} attention checks can be made of these pairs: a check needs a story with written "
            "sentences and another pair to borrow from; ask for fewer with --checks",
            field="checks",
        )
    return made


def _damaged(host: Pair, story: int, pairs: Sequence[Pair], rng: random.Random) -> tuple[str, ...] | None:
    """The story with another pair's written sentences, shuffled, in the place of its own; None where there are none."""
    places = host.written(story)
    own = set(host.stories[0]) | set(host.stories[1])
    for donor in rng.sample(list(pairs), len(pairs)):
        side = rng.randrange(2)
        foreign = [donor.stories[side][i] for i in donor.written(side) if donor.stories[side][i] not in own]
        if not places or not foreign:
            continue
        before = list(foreign)
        while len(set(foreign)) > 1 and foreign == before:
            rng.shuffle(foreign)
        sentences = list(host.stories[story])
        for number, place in enumerate(places):
            sentences[place] = foreign[number % len(foreign)]
        return tuple(sentences)
    return None
