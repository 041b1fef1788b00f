"""Who judges what next: pure functions of the study and of what has been taken so far.

An annotator gets every pair that still wants people, each once. Pairs that others have begun come first, so that a
study that runs out of people has finished pairs rather than many half-judged ones; among equals the order is the
annotator's own, drawn from the seed and the code, so that no pair is the tired last one of everybody. Checks come to
everybody, spread over the way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from fabula.apps.judge.study import Item


def choose(
    items: Sequence[Item],
    *,
    seed: int,
    annotators: int,
    code: str,
    answered: Collection[int],
    taken: Mapping[int, int],
) -> Item | None:
    """The item this annotator judges next, None where nothing is left.

    `answered` has the numbers of the items they have judged; `taken` says how many others have judged an item or hold
    it just now.
    """
    checks = [item for item in items if item.pair.is_check]
    pairs = len(items) - len(checks)
    done = sum(not item.pair.is_check for item in items if item.number in answered)
    open_pairs = [
        item
        for item in items
        if not item.pair.is_check and item.number not in answered and taken.get(item.number, 0) < annotators
    ]
    if not open_pairs:
        return None
    own = sorted(checks, key=lambda item: _draw(seed, code, item.number))
    for place, item in enumerate(own):
        if item.number not in answered and done >= _due(place, len(own), pairs, seed, code):
            return item
    return min(open_pairs, key=lambda item: (-taken.get(item.number, 0), _draw(seed, code, item.number)))


def _due(place: int, checks: int, pairs: int, seed: int, code: str) -> int:
    """How many pairs are judged before a check: drawn within its own share of the way, and before the last pair."""
    share = (place + _draw(seed, code, -place - 1)) / checks
    return min(int(share * pairs), pairs - 1)


def _draw(seed: int, code: str, what: int) -> float:
    """A number in [0, 1) that depends on the study's seed, the annotator and the thing alone, on every machine."""
    digest = hashlib.sha256(f"{seed}\0{code}\0{what}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56
