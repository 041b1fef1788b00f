"""What there is to do: systems, settings, samplers, and the units that fill the tables, in the order of their worth.

A unit is one stage of one system (train slds; sample slds on setting 34 by bridge) with one record file. Units know
what they need, so that whoever runs them can do them in any order that respects it, in pieces and on several machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fabula.errors import UserError

SETTINGS: dict[str, tuple[int, ...]] = {"2": (1,), "4": (3,), "12": (0, 1), "34": (2, 3), "234": (1, 2, 3)}
"""Which sentences of five are missing; the first four are the paper's second table."""
TABLE_SETTINGS = ("2", "4", "12", "34")
MIDDLE = "234"
"""First and last given: the paper's human evaluation."""
SENTENCES = 5

STAGES = ("train", "likelihood", "sample", "write", "cloze", "lookahead", "dynamics", "speed")
"""What needs a model; `scores` (from the written texts) and `report` come after."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A column: a recipe of ours with changes, or a checkpoint somebody has."""

    name: str
    title: str
    recipe: str
    """Below the recipes' folder."""
    kind: str
    """slds, lds, lm or s2s: which samplers it has."""
    paper: bool = False
    """Whether the paper's tables have it."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the recipe that this column changes, by their paths."""
    stages: tuple[str, ...] = STAGES
    optional: bool = False
    """Only where its checkpoint is given."""
    outside: bool = False
    """Written elsewhere, as lines of text (`--lines`): no weights of it are here."""
    repeats: str = ""
    """The system of which this is another training, by another seed: no column of its own, but a spread over seeds."""

    @property
    def latent(self) -> bool:
        return self.kind in ("slds", "lds")

    @property
    def has_tags(self) -> bool:
        """Whether it knows q(S | X)."""
        return self.kind == "slds"

    @property
    def reads_tags(self) -> bool:
        """Whether it is p(X | S) and has no p(X) of its own."""
        return self.kind == "s2s"


FEW = ("train", "likelihood", "write")

SYSTEMS: tuple[System, ...] = (
    System(name="slds", title="SLDS", recipe="paper/slds.toml", kind="slds", paper=True),
    System(name="slds-1", title="SLDS-1", recipe="paper/slds-1.toml", kind="slds", paper=True),
    System(name="slds-10", title="SLDS-10", recipe="paper/slds-10.toml", kind="slds", paper=True),
    System(name="slds-25", title="SLDS-25", recipe="paper/slds-25.toml", kind="slds", paper=True),
    System(name="slds-50", title="SLDS-50", recipe="paper/slds-50.toml", kind="slds", paper=True),
    System(name="s2s", title="S2S", recipe="paper/s2s.toml", kind="s2s", paper=True),
    System(name="lm", title="LM", recipe="paper/lm.toml", kind="lm", paper=True),
    System(name="lds", title="LDS", recipe="paper/lds.toml", kind="lds", paper=True),
    System(name="default", title="ours", recipe="slds.toml", kind="slds"),
    System(name="lm-1024", title="our LM", recipe="lm-1024.toml", kind="lm"),
    System(name="ours-1", title="ours, 1 % labels", recipe="slds-1.toml", kind="slds", optional=True, stages=FEW),
    System(
        name="slds-1-hard", title="SLDS-1, hard Gumbel", recipe="paper/slds-1.toml", kind="slds", stages=FEW,
        changes={"objective.gumbel": "hard"},
    ),
    System(
        name="slds-1-summed", title="SLDS-1, S summed out", recipe="paper/slds-1.toml", kind="slds", stages=FEW,
        changes={"objective.kind": "collapsed"},
    ),
    System(
        name="narrator", title="narrator", recipe="narrator.toml", kind="lm", stages=("sample",), optional=True,
        outside=True,
    ),
    System(name="judge", title="judge", recipe="lm-512.toml", kind="lm", stages=("train", "likelihood")),
    System(
        name="lm-long", title="LM, 7,704 updates", recipe="paper/lm.toml", kind="lm", optional=True,
        changes={"train.schedule": "cosine", "train.keep": "last", "train.epochs": 12},
    ),
    System(
        name="s2s-long", title="S2S, 7,704 updates", recipe="paper/s2s.toml", kind="s2s", optional=True,
        changes={"train.schedule": "cosine", "train.keep": "last", "train.epochs": 12},
    ),
    System(
        name="judge-long", title="judge, 3,864 updates", recipe="lm-512.toml", kind="lm", optional=True,
        stages=("train", "likelihood"),
    ),
)  # fmt: skip
LONGER = {"lm": "lm-long", "s2s": "s2s-long", "judge": "judge-long"}
"""The same systems with more updates than the one rule gives: it leaves two GRU layers of 512 far from converged."""
REPEATED, SEEDS = ("slds", "lm", "s2s", "slds-1"), (1, 2)
"""Systems that are trained again, and by which seeds: with the first, seed 0, three trainings each."""


def again(system: System, seed: int) -> System:
    """The system trained by another seed, which also draws which stories are labelled; the paper's protocol alone."""
    changes = {"train.seed": seed} | ({"objective.label_seed": seed} if system.name == "slds-1" else {})
    return replace(
        system, name=f"{system.name}-seed{seed}", title=f"{system.title}, seed {seed}", paper=False, changes=changes,
        stages=("train", "likelihood", "sample", "write"), repeats=system.name,
    )  # fmt: skip


SYSTEMS += tuple(again(system, seed) for system in SYSTEMS if system.name in REPEATED for seed in SEEDS)
BY_NAME = {system.name: system for system in SYSTEMS}
JUDGE = "judge"
"""The language model that only judges: it never writes and never ranks."""
HUMAN, PLAIN = "human", "plain"
"""Look-ahead's two anchors: the true middle, and the paper's LM writing left to right once."""
WORTH = ("slds", "lm", "s2s", "judge", "lds", "slds-1", "slds-50", "default", "slds-10", "slds-25", "lm-1024")
"""Whose cells come first where the time is short; the others after these."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of everything: the paper's protocol, or a small one that shows the way."""

    name: str = "full"
    stories: int = 500
    """Test stories that are filled in; the same for everyone. The paper's value."""
    samples: int = 50
    """Of Gibbs (burn-in included) and of bridge. The paper's value."""
    reranked: int = 1000
    """Of the baselines. The paper's value."""
    more: int = 500
    """Of bridge where it may take about as long as the baselines."""
    agreeing: int = 400
    """Of bridge where the sample is chosen that the others agree with."""
    written: int | None = None
    """Stories written from their tags; None: all of the test split."""
    runs: int = 5
    """Of top-k writing, for control. The paper's value."""
    bound_samples: int = 200
    """Importance samples of the likelihood bound."""
    read: int | None = None
    """Stories that the slow pretrained judge reads of each system; None: all that were filled in."""
    timed: int = 50
    """Stories of the speed comparison."""
    resamples: int = 2000
    """Of every bootstrap interval."""
    shown: int = 10
    """Filled-in stories that the report shows of each system."""
    pairs: int = 200
    """Of each human comparison. The paper's value."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that every recipe changes at this scale."""
    toy: int = 0
    """Stories of the toy corpus that is prepared where no corpus is given."""


FULL = Scale()
SMALL = Scale(
    name="small", stories=24, samples=6, reranked=24, more=30, agreeing=24, written=24, runs=2,
    bound_samples=4, read=4, timed=4, resamples=200, shown=3, pairs=6, toy=900,
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
    """Names of units whose records must be there first."""
    rank: tuple[int, ...] = ()
    """Smaller comes first."""
    alone: bool = False
    """Whether it is a timing, to be taken with nothing else running."""

    @property
    def name(self) -> str:
        return f"{self.stage}/{self.system}" + (f".{self.detail}" if self.detail else "")


SHIPPED = "default"
"""The model that ships: what `fabula fill` makes of it, and what more samples do, is measured beside the rest."""


def samplers_of(system: System) -> tuple[str, ...]:
    """Every way this system fills in: the paper's, the same without peeking, and ours."""
    if system.outside:
        return ("fill",)
    if not system.latent:
        return ("rerank",) if system.repeats or system.optional else ("rerank", "rerank-few")
    if system.repeats:
        return ("gibbs-peek",)
    if system.name == SHIPPED:
        return ("gibbs-peek", "gibbs", "bridge", "bridge-more", "bridge-sharp", "fill", "consensus-peek", "consensus")
    if not system.has_tags:
        # One state: there are no tags to peek at.
        return ("gibbs", "bridge")
    return ("gibbs-peek", "gibbs", "bridge")


def timed(system: System) -> tuple[str, ...]:
    """The samplers whose time is taken: each way of its own of the systems that are held against each other."""
    if system.name not in ("slds", "lm", "default", "lm-1024"):
        return ()
    return tuple(s for s in samplers_of(system) if not s.endswith("-peek") and not s.startswith("consensus"))


def protocol(system: System) -> str:
    """The sampler of the paper's second table."""
    return samplers_of(system)[0]


def needs_run(system: System) -> str:
    return f"train/{system.name}"


def units_of(systems: Iterable[System]) -> list[Unit]:
    """Every unit of these systems that needs a model, most worthy first."""
    chosen = list(systems)
    place = {name: n for n, name in enumerate(WORTH)}
    found: list[Unit] = []
    for n, system in enumerate(chosen):
        own = place.get(system.name, len(place) + n)
        trained = (needs_run(system),)

        def add(
            stage: str, group: int, detail: str = "", needs: tuple[str, ...] = trained, alone: bool = False,
            system: System = system, own: int = own,
        ) -> None:  # fmt: skip
            if stage in system.stages:
                found.append(Unit(stage, system.name, detail, needs, (group, own, len(found)), alone))

        late = 4 if system.changes else 0
        # Other seeds of a system come right after the trainings of the paper's systems.
        late = 1 if system.repeats else late
        add("train", late, needs=())
        add("likelihood", late + 1)
        for setting in TABLE_SETTINGS:
            add("sample", 3 if system.repeats else 2, f"{setting}.{protocol(system)}")
        add("write", late + 3)
        if system.latent:
            add("dynamics", 3)
        for sampler in () if system.repeats else samplers_of(system):
            add("sample", 4, f"{MIDDLE}.{sampler}")
            if JUDGE in {s.name for s in chosen}:
                wanted = (f"sample/{system.name}.{MIDDLE}.{sampler}", f"train/{JUDGE}")
                add("lookahead", 5, sampler, needs=wanted)
        for sampler in samplers_of(system)[1:]:
            for setting in TABLE_SETTINGS:
                add("sample", 6, f"{setting}.{sampler}")
        if not system.reads_tags:
            add("cloze", 7)
        for sampler in timed(system):
            add("speed", 9, sampler, alone=True)
    if {JUDGE, "lm"} <= {s.name for s in chosen}:
        found.append(Unit("lookahead", HUMAN, "", (f"train/{JUDGE}",), (5, -2)))
        found.append(Unit("lookahead", PLAIN, "", (f"train/{JUDGE}", "train/lm"), (5, -1)))
    return sorted(found, key=lambda unit: unit.rank)


def systems_for(given: Iterable[str]) -> list[System]:
    """All systems of the tables; optional ones only where a checkpoint of theirs is given."""
    have = set(given)
    unknown = sorted(have - {system.name for system in SYSTEMS if not system.outside})
    if unknown:
        raise UserError(f"no system is called {unknown[0]!r}; systems: {', '.join(BY_NAME)}", field="model")
    return [system for system in SYSTEMS if not system.optional or system.name in have]


def narrowed(units: list[Unit], only: Iterable[str]) -> list[Unit]:
    """The units that `--only` names: a stage, a system, or stage/system; names beside each other are alternatives."""
    wanted = [word for word in only if word]
    if not wanted:
        return units
    known = set(STAGES) | set(BY_NAME) | {unit.name for unit in units} | {HUMAN, PLAIN}
    for word in wanted:
        if word not in known and not any(f"{unit.stage}/{unit.system}" == word for unit in units):
            raise UserError(
                f"--only {word!r} is neither a stage ({', '.join((*STAGES, 'score', 'report'))}) nor a system "
                f"({', '.join(BY_NAME)}) nor stage/system",
                field="only",
            )
    return [unit for unit in units if {unit.stage, unit.system, unit.name, f"{unit.stage}/{unit.system}"} & set(wanted)]
