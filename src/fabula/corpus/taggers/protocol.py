"""What a tagger is, the registry that `fabula prepare --tagger NAME` and checkpoints find it in, and several as one.

To add one: a file with the class, and a builder under `@register_tagger("name")` in a module that
`fabula.corpus.taggers` imports, or an entry point of the group `fabula.taggers` in a package of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fabula.corpus.states import UNKNOWN, Factor, StateSpace
from fabula.registry import Registry


@runtime_checkable
class Tagger(Protocol):
    """Gives each sentence one of `labels`, or none. It must survive pickling: preparation runs in several processes.

    A tagger of several factors also has `states`, a `StateSpace` with these labels. One that has to load a parser is
    `slow`, and its `fault` says in a line what is not installed, None where all is: such a tagger is left out where
    tags are checked or shown, and asked for by name it raises.
    """

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


DEFAULT_TAGGER = "vader"
"""The tagger of corpora and checkpoints that name none."""
OWN = "own"
"""The name in the settings of tags that came with the data: no tagger can read them off another sentence."""


def states_of(tagger: Tagger) -> StateSpace:
    """A tagger's state space: the one it has, or one factor named after it."""
    space = getattr(tagger, "states", None)
    return space if isinstance(space, StateSpace) else StateSpace.single(str(tagger.settings["tagger"]), tagger.labels)


def values_of(tagger: Tagger, sentences: Sequence[str]) -> NDArray[np.int64]:
    """[sentence, factor]: the value of each factor of each sentence, -1 where it has none."""
    return states_of(tagger).values([UNKNOWN if tag is None else tag for tag in tagger.tag(list(sentences))])


@dataclass(frozen=True)
class Taggers:
    """Several taggers as one, each for its own factors; a sentence that one of them cannot tag has no state."""

    parts: tuple[Tagger, ...]

    def __post_init__(self) -> None:
        assert self.states  # two taggers of one factor are refused at once

    @cached_property
    def states(self) -> StateSpace:
        return StateSpace(tuple(factor for part in self.parts for factor in states_of(part).factors))

    @property
    def labels(self) -> tuple[str, ...]:
        return self.states.labels

    @property
    def settings(self) -> dict[str, object]:
        names = ",".join(str(part.settings["tagger"]) for part in self.parts)
        return {"tagger": names, "parts": [part.settings for part in self.parts]}

    def tag(self, sentences: list[str]) -> list[int | None]:
        values = np.concatenate([values_of(part, sentences) for part in self.parts], axis=-1)
        return [None if state < 0 else state for state in self.states.number(values).tolist()]


def parts_of(tagger: Tagger) -> tuple[Tagger, ...]:
    return tagger.parts if isinstance(tagger, Taggers) else (tagger,)


def build_tagger(settings: Mapping[str, Any]) -> Tagger:
    """The tagger of these settings, as `Tagger.settings` gives them."""
    if "parts" in settings:
        return Taggers(tuple(build_tagger(part) for part in settings["parts"]))
    return TAGGERS.find(str(settings.get("tagger", DEFAULT_TAGGER)))(settings)


def named(names: str) -> dict[str, Any]:
    """The settings of taggers by their names alone, joined by commas."""
    parts = [{"tagger": name} for name in names.split(",")]
    return parts[0] if len(parts) == 1 else {"tagger": names, "parts": parts}


def misses(tagger: Tagger, sentences: Sequence[str], wanted: Sequence[int]) -> list[int]:
    """How many of the wanted values each sentence does not have; `wanted` are numbers of `StateSpace.number`.

    Of several taggers only those run whose factors somebody asks for, and which can.
    """
    values, place, counts = states_of(tagger).values(list(wanted)), 0, np.zeros(len(sentences), dtype=np.int64)
    for part in parts_of(tagger):
        width = len(states_of(part).factors)
        of_part, place = values[:, place : place + width], place + width
        rows: list[int] = np.flatnonzero((of_part >= 0).any(axis=1)).tolist()
        if rows and fault_of(part) is None:
            actual = values_of(part, [sentences[row] for row in rows])
            counts[rows] += ((of_part[rows] >= 0) & (of_part[rows] != actual)).sum(1)
    return counts.tolist()


def meanings_of(factor: Factor) -> dict[str, str]:
    """What the labels of a factor stand for, where its tagger has `meanings`: of verb classes their members."""
    tagger = TAGGERS.find(factor.name)({}) if factor.name in TAGGERS.names() else None
    meanings: Mapping[str, str] = getattr(tagger, "meanings", {})
    return {label: meanings[label] for label in factor.labels if label in meanings}


def fault_of(tagger: Tagger) -> str | None:
    """Why a tagger cannot read sentences here; None where it can."""
    return getattr(tagger, "fault", None)


def faults(tagger: Tagger, names: Collection[str]) -> dict[str, str]:
    """Of the named factors those whose tagger cannot read sentences here, and why."""
    by_factor = {factor.name: fault_of(part) for part in parts_of(tagger) for factor in states_of(part).factors}
    return {name: why for name, why in by_factor.items() if why is not None and name in names}


def read_values(tagger: Tagger, sentences: Sequence[str], names: Collection[str]) -> list[list[int]]:
    """The value of each factor of every sentence, for showing: -1 where it is not known.

    A tagger that has to load a parser (`slow`) runs only if `names` has one of its factors and the parser is there.
    """
    columns = []
    for part in parts_of(tagger):
        factors = states_of(part).factors
        is_named = any(factor.name in names for factor in factors) and fault_of(part) is None
        free = np.full((len(sentences), len(factors)), UNKNOWN)
        columns.append(values_of(part, sentences) if is_named or not getattr(part, "slow", False) else free)
    return [list(row) for row in np.concatenate(columns, axis=1).tolist()]


def tagger_of(settings: Mapping[str, Any], labels: Sequence[str]) -> Tagger | None:
    """The tagger that made tags, by its settings; None where the tags were the data's own.

    Checkpoints of earlier versions hold no settings: their tagger was VADER, where they have VADER's labels.
    """
    if settings.get("tagger") == OWN:
        return None
    tagger = build_tagger(settings)
    return tagger if tagger.labels == tuple(labels) else None
