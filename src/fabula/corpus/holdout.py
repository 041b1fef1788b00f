"""Stories to validate on, drawn from the training files where nobody names others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

from fabula.corpus.read import Rejected, Story

Items = Iterable[Story | Rejected]


def hold_out_stories(
    read: Callable[[], Items], share: float, seed: int
) -> tuple[Iterator[Story | Rejected], Iterator[Story | Rejected] | None]:
    """The items without this share of the stories (one at least), and those stories; a single story is not drawn.

    `read` begins to read anew: once to count, once for each side, so that nothing is held. Each story is drawn with
    probability (still wanted) / (still to come), which draws just so many, every set of them equally probable.
    """
    stories = sum(isinstance(item, Story) for item in read())
    wanted = max(1, round(share * stories))
    if stories < 2:
        return iter(read()), None

    def side(drawn: bool) -> Iterator[Story | Rejected]:
        rng, left, still = random.Random(seed), stories, wanted
        for item in read():
            if isinstance(item, Story):
                chosen = rng.random() * left < still
                left, still = left - 1, still - chosen
                if chosen == drawn:
                    yield item
            elif not drawn:
                yield item

    return side(False), side(True)
