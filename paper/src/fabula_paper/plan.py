"""The plan: systems (systems.toml), settings, samplers, and the units of work by priority.

A unit is one stage of one system (train slds; sample slds on setting 34 by bridge) with one record file. A unit names
the units that it needs, so units can run in any order that respects this, in pieces and on several machines.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from fabula.errors import UserError

SETTINGS: dict[str, tuple[int, ...]] = {"2": (1,), "4": (3,), "12": (0, 1), "34": (2, 3), "234": (1, 2, 3)}
"""Which of the five sentences are missing; the first four are the paper's second table."""
TABLE_SETTINGS = ("2", "4", "12", "34")
MIDDLE = "234"
"""First and last sentence given, as in the paper's human evaluation."""
SENTENCES = 5
STAGES = ("train", "likelihood", "sample", "write", "cloze", "lookahead")
"""The stages that need a model; the scores of the texts and the report come after them."""
JUDGE = "judge"
"""The language model that only judges: it never writes and never ranks."""
HUMAN, PLAIN = "human", "plain"
"""The two anchors of look-ahead: people's middle, and the paper's LM writing left to right once."""
SHIPPED = "default"


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


def read_systems() -> Iterator[System]:
    """The systems of systems.toml, then the further trainings by other seeds."""
    tables = tomllib.loads((resources.files("fabula_paper") / "systems.toml").read_text(encoding="utf-8"))
    repeats: list[System] = []
    for name, fields in tables.items():
        seeds = fields.pop("seeds", ())
        system = System(name=name, **fields | {"stages": tuple(fields.get("stages", STAGES))})
        yield system
        for seed in seeds:
            # The seed of SLDS-1 also draws which stories are labelled.
            changes = {"train.seed": seed} | ({"objective.label_seed": seed} if name == "slds-1" else {})
            stages, title = ("train", "likelihood", "sample", "write"), f"{system.title}, seed {seed}"
            repeat = replace(system, name=f"{name}-seed{seed}", title=title, paper=False, changes=changes)
            repeats.append(replace(repeat, stages=stages, repeats=name))
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
    """Samples of Gibbs (burn-in included) and of bridge. The paper's value."""
    reranked: int = 1000
    """Samples of the baselines. The paper's value."""
    written: int | None = None
    """Stories written from their tags; None: the whole test split."""
    runs: int = 5
    """Top-k runs of the control table. The paper's value."""
    bound_samples: int = 200
    """Importance samples of the likelihood bound."""
    resamples: int = 2000
    """Of every bootstrap interval."""
    shown: int = 10
    """Filled-in stories of each system in the report."""
    pairs: int = 200
    """Of each human comparison. The paper's value."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that every recipe changes at this scale."""
    toy: int = 0
    """Stories of the toy corpus."""


FULL = Scale()
SMALL = Scale(
    name="small", stories=24, samples=6, reranked=24, written=24, runs=2,
    bound_samples=4, resamples=200, shown=3, pairs=6, toy=900,
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
    needs: tuple[str, ...] = ()
    """Names of the units that must be done first."""

    @property
    def name(self) -> str:
        return f"{self.stage}/{self.system}" + (f".{self.detail}" if self.detail else "")


def samplers_of(system: System) -> tuple[str, ...]:
    """The samplers of a system; the first is the one of the paper's protocol."""
    if not system.latent:
        return ("rerank",)
    if system.repeats:
        return ("gibbs-peek",)
    if system.name == SHIPPED:
        return ("gibbs-peek", "gibbs", "bridge", "fill")
    return ("gibbs-peek", "gibbs", "bridge") if system.has_tags else ("gibbs", "bridge")


def protocol(system: System) -> str:
    """The sampler of the paper's second table."""
    return samplers_of(system)[0]


def units_of_system(system: System, judged: bool) -> Iterator[tuple[int, Unit]]:
    """Every unit of one system with its priority group."""
    # Other seeds come right after the trainings of the paper's systems, changed recipes last.
    late = 1 if system.repeats else 4 if system.changes else 0
    trained = (f"train/{system.name}",)

    def unit(stage: str, detail: str = "", needs: tuple[str, ...] = trained) -> Unit:
        return Unit(stage, system.name, detail, needs)

    samplers = samplers_of(system)
    yield late, unit("train", needs=())
    yield late + 1, unit("likelihood")
    for setting in TABLE_SETTINGS:
        yield 3 if system.repeats else 2, unit("sample", f"{setting}.{samplers[0]}")
    yield late + 3, unit("write")
    for sampler in () if system.repeats else samplers:
        yield 4, unit("sample", f"{MIDDLE}.{sampler}")
        if judged:
            needs = (f"sample/{system.name}.{MIDDLE}.{sampler}", f"train/{JUDGE}")
            yield 5, unit("lookahead", sampler, needs)
    for sampler in samplers[1:]:
        for setting in TABLE_SETTINGS:
            yield 6, unit("sample", f"{setting}.{sampler}")
    if not system.reads_tags:
        yield 7, unit("cloze")


def units_of(systems: Iterable[System]) -> list[Unit]:
    """Every unit that needs a model, by priority."""
    chosen = {system.name: system for system in systems}
    units = [pair for system in chosen.values() for pair in units_of_system(system, JUDGE in chosen)]
    units = [(group, unit) for group, unit in units if unit.stage in chosen[unit.system].stages]
    if {JUDGE, "lm"} <= set(chosen):
        units.append((5, Unit("lookahead", HUMAN, "", (f"train/{JUDGE}",))))
        units.append((5, Unit("lookahead", PLAIN, "", (f"train/{JUDGE}", "train/lm"))))
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
    unknown = sorted(words - set(STAGES) - set(BY_NAME) - {HUMAN, PLAIN} - set().union(*names))
    if unknown:
        raise UserError(
            f"--only {unknown[0]!r} is neither a stage ({', '.join((*STAGES, 'score', 'report'))}) nor a system "
            f"({', '.join(BY_NAME)}) nor stage/system",
            field="only",
        )
    return [unit for unit, names_of in zip(units, names, strict=True) if not words or names_of & words]
