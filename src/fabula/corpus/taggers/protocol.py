"""What a tagger is, the registry that `fabula prepare --tagger NAME` and checkpoints find it in, and several as one.

To add one: a file with the class, and a builder under `@register_tagger("name")` in a module that
`fabula.corpus.taggers` imports, or an entry point of the group `fabula.taggers` in a package of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

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
    """A tagger's state space: its own, or one factor named after it."""
    found = getattr(tagger, "states", None)
    return found if isinstance(found, StateSpace) else StateSpace.single(str(tagger.settings["tagger"]), tagger.labels)


@dataclass(frozen=True)
class Taggers:
    """Several taggers as one, each for factors of its own; a sentence that one of them cannot tag has no state."""

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
        values = []
        for part in self.parts:
            tags = [UNKNOWN if tag is None else tag for tag in part.tag(sentences)]
            values.append(states_of(part).decode(tags))
        states = self.states.encode(np.concatenate(values, axis=-1))
        return [None if state < 0 else state for state in states.tolist()]


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
    """How many of the values that are wanted each sentence does not have, by `StateSpace.number`.

    Of several taggers only those run whose factors somebody asks for, and which can.
    """
    values, place, found = states_of(tagger).values(list(wanted)), 0, np.zeros(len(sentences), dtype=np.int64)
    for part in tagger.parts if isinstance(tagger, Taggers) else (tagger,):
        space = states_of(part)
        asked = values[:, place : place + len(space.factors)]
        place += len(space.factors)
        rows: list[int] = np.flatnonzero((asked >= 0).any(axis=1)).tolist()
        if rows and fault_of(part) is None:
            tags = part.tag([sentences[row] for row in rows])
            has = space.decode([UNKNOWN if tag is None else tag for tag in tags])
            found[rows] += ((asked[rows] >= 0) & (asked[rows] != has)).sum(1)
    return found.tolist()


def meanings_of(factor: Factor) -> dict[str, str]:
    """What a factor's labels stand for, where they do not say it themselves: of verb classes their members.

    The factor of a tagger that is registered by the factor's name, and has `meanings`.
    """
    tagger = TAGGERS.find(factor.name)({}) if factor.name in TAGGERS.names() else None
    told: Mapping[str, str] = getattr(tagger, "meanings", {})
    return {label: told[label] for label in factor.labels if label in told}


def fault_of(tagger: Tagger) -> str | None:
    """Why a tagger cannot read sentences here; None where it can."""
    fault: str | None = getattr(tagger, "fault", None)
    return fault


def faults(tagger: Tagger, asked: Collection[str]) -> dict[str, str]:
    """Of the factors that are asked for, those whose tagger cannot read sentences here, and why."""
    parts = tagger.parts if isinstance(tagger, Taggers) else (tagger,)
    found = {factor.name: fault_of(part) for part in parts for factor in states_of(part).factors}
    return {name: why for name, why in found.items() if why is not None and name in asked}


def read_values(tagger: Tagger, sentences: Sequence[str], asked: Collection[str]) -> list[list[int]]:
    """Of every sentence the value of each factor, for showing: -1 where it is not known.

    A tagger that has to load a parser (`slow`) runs only if one of its factors is `asked` for and the parser is there.
    """
    columns = []
    for part in tagger.parts if isinstance(tagger, Taggers) else (tagger,):
        space = states_of(part)
        wanted = not getattr(part, "slow", False) or (
            any(factor.name in asked for factor in space.factors) and fault_of(part) is None
        )
        tags = part.tag(list(sentences)) if wanted else [None] * len(sentences)
        columns.append(space.decode([UNKNOWN if tag is None else tag for tag in tags]))
    return [list(row) for row in np.concatenate(columns, axis=1).tolist()]


def tagger_of(settings: Mapping[str, Any], labels: Sequence[str]) -> Tagger | None:
    """The tagger that made tags, by its settings; None where the tags were the data's own.

    Checkpoints of earlier versions hold no settings: their tagger was VADER, where they have VADER's labels.
    """
    if settings.get("tagger") == OWN:
        return None
    tagger = build_tagger(settings)
    return tagger if tagger.labels == tuple(labels) else None
