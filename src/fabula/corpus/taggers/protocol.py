"""What a tagger is, and the registry that `fabula prepare --tagger NAME` and checkpoints find it in.

To add one: a file with the class, and a builder under `@register_tagger("name")` in a module that
`fabula.corpus.taggers` imports, or an entry point of the group `fabula.taggers` in a package of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from fabula.registry import Registry


@runtime_checkable
class Tagger(Protocol):
    """Gives each sentence one of `labels`, or none. It must survive pickling: preparation runs in several processes."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The values of the switching state, in the order of their ids."""

    @property
    def settings(self) -> dict[str, object]:
        """Its name under `tagger`, and whatever else decides its answers: what its builder makes the same tagger from.

        The manifest of a prepared corpus and every checkpoint trained on it hold these.
        """

    def tag(self, sentences: list[str]) -> list[int | None]:
        """The id of each sentence's label."""


TAGGERS: Registry[Callable[[Mapping[str, Any]], Tagger]] = Registry("fabula.taggers", "tagger")
"""Builders of taggers from their settings; of none, the tagger with its defaults."""
register_tagger = TAGGERS.register

OWN = "own"
"""The name in the settings of tags that came with the data: no tagger can read them off another sentence."""


def tagger_of(settings: Mapping[str, Any], labels: Sequence[str]) -> Tagger | None:
    """The tagger that made tags, by its settings; None where the tags were the data's own.

    Checkpoints of earlier versions hold no settings: their tagger was VADER, where they have VADER's labels.
    """
    if settings.get("tagger") == OWN:
        return None
    tagger = TAGGERS.find(settings.get("tagger", "vader"))(settings)
    return tagger if tagger.labels == tuple(labels) else None
