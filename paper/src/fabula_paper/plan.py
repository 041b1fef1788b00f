"""The plan: systems (systems.toml), settings, samplers, and the units of work by priority.

A unit is one stage of one system (train slds; sample slds on setting 34 by gibbs) with one record file. All but a
training need the system's training, and can run in any order, in pieces and on several machines.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from fabula.errors import UserError

SETTINGS: dict[str, tuple[int, ...]] = {"2": (1,), "4": (3,), "12": (0, 1), "34": (2, 3), "234": (1, 2, 3)}
"""Which of the five sentences are missing; the first four are the paper's second table."""
TABLE_SETTINGS = ("2", "4", "12", "34")
MIDDLE = "234"
"""First and last sentence given, as in the paper's human evaluation."""
SENTENCES = 5
STAGES = ("train", "likelihood", "bound", "sample", "write")
"""The stages that need a model; the scores of the texts and the report come after them."""
REPEATED = ("train", "likelihood", "sample", "write")
"""The stages of further trainings."""
HUMAN = "human"
COMPARED = ("slds", "lm", "s2s")
"""Systems whose middle three sentences readers compare."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A row of the tables: a recipe with changes, or a checkpoint that is given."""

    name: str
    title: str
    recipe: str
    kind: str
    paper: bool = False
    """Whether the paper's tables have it."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Changed settings of the recipe, by their paths."""
    stages: tuple[str, ...] = STAGES
    optional: bool = False
    repeats: str = ""
    """The system of which this is another training by another seed."""

    @property
    def latent(self) -> bool:
        return self.kind in ("slds", "lds")

    @property
    def has_tags(self) -> bool:
        """Whether it has q(S | X)."""
        return self.kind == "slds"

    @property
    def reads_tags(self) -> bool:
        """Whether it is p(X | S)."""
        return self.kind == "s2s"


@cache
def read_toml(name: str) -> dict[str, Any]:
    """One of the files that say what is compared: systems, tables, claims, paper (the figures that it prints)."""
    return tomllib.loads((resources.files("fabula_paper") / f"{name}.toml").read_text(encoding="utf-8"))


def read_systems() -> Iterator[System]:
    """The systems of systems.toml, then the further trainings by other seeds."""
    repeats: list[System] = []
    for name, fields in read_toml("systems").items():
        stages, seeds = tuple(fields.get("stages", STAGES)), fields.get("seeds", ())
        system = System(name=name, **{key: fields[key] for key in fields if key != "seeds"} | {"stages": stages})
        yield system
        for seed in seeds:
            # The seed also draws which stories are labelled.
            changes = {"train.seed": seed} | ({"objective.label_seed": seed} if name.startswith("slds-") else {})
            repeat = replace(system, name=f"{name}-seed{seed}", title=f"{system.title}, seed {seed}", changes=changes)
            repeats.append(replace(repeat, paper=False, stages=REPEATED, repeats=name))
    yield from repeats


SYSTEMS = tuple(read_systems())
BY_NAME = {system.name: system for system in SYSTEMS}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of everything: the paper's protocol, or a small one that shows the way."""

    name: str = "full"
    stories: int = 500
    """Test stories that are filled in, the same for every system. The paper's value."""
    samples: int = 50
    """Samples of Gibbs, burn-in included. The paper's value."""
    reranked: int = 1000
    """Samples of the baselines. The paper's value."""
    written: int | None = None
    """Stories written from their tags; None: the whole test split."""
    runs: int = 5
    """Top-k runs of the control table. The paper's value."""
    bound_samples: int = 20
    """Importance samples of the likelihood of every test story."""
    tight_samples: int = 2000
    tight_stories: int = 200
    """Samples and random test stories of the tighter bound, which says how much the other one lacks."""
    resamples: int = 2000
    """Of every bootstrap interval."""
    shown: int = 10
    """Filled-in stories of each system in the report."""
    pairs: int = 100
    """Of each comparison by readers. The paper: 200 stories."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that every recipe changes at this scale."""
    toy: int = 0
    """Stories of the toy corpus."""


FULL = Scale()
SMALL = Scale(
    name="small", stories=24, samples=6, reranked=24, written=24, runs=2,
    bound_samples=4, tight_samples=16, tight_stories=6, resamples=200, shown=3, pairs=6, toy=900,
    changes={
        "model.language.embedding": 24, "model.language.hidden": 48, "model.dynamics.latent": 6,
        "model.recognition.hidden": 24, "train.epochs": 3, "train.batch": 24, "train.learning_rate": 8e-3,
        "train.warmup_steps": 0, "objective.kl_warmup": 1.0,
    },
)  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """One piece of work with one record."""

    stage: str
    system: str
    detail: str = ""

    @property
    def name(self) -> str:
        return f"{self.stage}/{self.system}" + (f".{self.detail}" if self.detail else "")

    @property
    def needs(self) -> str:
        """The unit that must be done first; none for a training."""
        return "" if self.stage == "train" else f"train/{self.system}"


def samplers_of(system: System) -> tuple[str, ...]:
    """The samplers of a system; the first is the one of the paper's protocol."""
    if not system.latent:
        return ("rerank",)
    if not system.has_tags:
        return ("gibbs",)
    return ("gibbs-peek",) if system.repeats else ("gibbs-peek", "gibbs")


def protocol(system: System) -> str:
    """The sampler of the paper's second table."""
    return samplers_of(system)[0]


def units_of_system(system: System) -> Iterator[tuple[int, Unit]]:
    """Every unit of one system with its priority group: first all trainings, then the paper's tables."""
    later = 1 if system.repeats else 0
    first, *others = samplers_of(system)
    yield 0, Unit("train", system.name)
    yield 1, Unit("likelihood", system.name)
    if system.has_tags or system.reads_tags:
        yield 2 + later, Unit("write", system.name)
    for setting in TABLE_SETTINGS:
        yield 2 + later, Unit("sample", system.name, f"{setting}.{first}")
    if system.name in COMPARED:
        yield 2, Unit("sample", system.name, f"{MIDDLE}.{first}")
    for sampler in others:
        for setting in TABLE_SETTINGS:
            yield 4, Unit("sample", system.name, f"{setting}.{sampler}")
    if system.latent or system.reads_tags:
        yield 5, Unit("bound", system.name)


def units_of(systems: Iterable[System]) -> list[Unit]:
    """Every unit that needs a model, by priority."""
    units = [
        (group, unit) for system in systems for group, unit in units_of_system(system) if unit.stage in system.stages
    ]
    return [unit for _, unit in sorted(units, key=lambda pair: pair[0])]


def systems_for(given: Iterable[str]) -> list[System]:
    """All systems; the optional ones only where their checkpoint is given."""
    names = set(given)
    unknown = sorted(names - {system.name for system in SYSTEMS})
    if unknown:
        raise UserError(f"no system is called {unknown[0]!r}; systems: {', '.join(BY_NAME)}", field="model")
    return [system for system in SYSTEMS if not system.optional or system.name in names]


def narrowed(units: list[Unit], only: Iterable[str]) -> list[Unit]:
    """The units that `--only` names: stages, systems, stage/system or whole units; no names mean all units."""
    words = {word for word in only if word}
    names = [{unit.stage, unit.system, unit.name, f"{unit.stage}/{unit.system}"} for unit in units]
    unknown = sorted(words - set(STAGES) - set(BY_NAME) - set().union(*names))
    if unknown:
        raise UserError(
            f"--only {unknown[0]!r} is neither a stage ({', '.join((*STAGES, 'score', 'report'))}) nor a system "
            f"({', '.join(BY_NAME)}) nor stage/system",
            field="only",
        )
    return [unit for unit, names_of in zip(units, names, strict=True) if not words or names_of & words]
