"""Stories to validate on, drawn from the training files where nobody names others."""

from __future__ import annotations

import random
from collections.abc import Iterator

from fabula.corpus.read import Rejected, Story


def hold_out_stories(
    items: Iterator[Story | Rejected], share: float, seed: int
) -> tuple[list[Story | Rejected], list[Story | Rejected]]:
    """The items without this share of the stories (one at least), and those stories; a single story is not drawn."""
    found = list(items)
    stories = [place for place, item in enumerate(found) if isinstance(item, Story)]
    if len(stories) < 2:
        return found, []
    drawn = set(random.Random(seed).sample(stories, max(1, round(share * len(stories)))))
    return (
        [item for place, item in enumerate(found) if place not in drawn],
        [item for place, item in enumerate(found) if place in drawn],
    )
