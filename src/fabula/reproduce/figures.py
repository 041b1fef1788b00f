"""What the report is made of: the records that are there, read as figures beside the paper's, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.evaluation.bootstrap import Interval, difference, mean, ratio
from fabula.reproduce.paper import paper
from fabula.reproduce.plan import (
    JUDGE,
    MIDDLE,
    SYSTEMS,
    Scale,
    System,
    samplers_of,
)
from fabula.reproduce.records import Records
from fabula.ties import first_best

METRICS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "meteor": "METEOR"}
BY_LINES = "rougeLsum"
"""ROUGE-L of two sentences left apart. The paper's own figures of two missing sentences are of this kind: they stand to
ROUGE-1 as those of one sentence do, which a joined text's cannot."""
SETTING_NAMES = {
    "2": "2nd missing", "4": "4th missing", "12": "1st and 2nd missing", "34": "3rd and 4th missing",
    MIDDLE: "2nd to 4th missing",
}  # fmt: skip
SAMPLER_NAMES = {
    "gibbs-peek": "gibbs, tags peeked at", "gibbs": "gibbs, no peeking", "bridge": "bridge", "rerank": "best of many",
    "rerank-few": "best of {samples}, the matched control",
    "bridge-more": "bridge, {more} samples, asking ahead", "bridge-sharp": "bridge, {more} samples, sharp words",
    "fill": "as fabula fill writes",
    "consensus-peek": "bridge, chosen by consensus, tags peeked at", "consensus": "bridge, chosen by consensus",
}  # fmt: skip


def sampler_name(sampler: str, scale: Scale) -> str:
    """What the tables call a sampler."""
    return SAMPLER_NAMES[sampler].format(more=scale.more, samples=scale.samples)


NOT_RUN = "not run"
LOOSE = 10.0
"""Nats a story: a bound that still gains so much from one sample to all of them says nothing of the likelihood."""
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of ours beside the paper's; either may be missing."""

    ours: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    record: str = ""
    """The unit whose record holds it."""
    kind: str = "estimate"
    digits: int = 2
    spread: float | None = None
    """A standard deviation over runs."""
    words: str = ""
    """In the place of a number."""

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours - self.paper


@dataclass(frozen=True, kw_only=True)
class Row:
    lead: tuple[str, ...]
    figures: tuple[Figure, ...]
    own: bool = False
    """Whether the row is ours, beyond the paper's."""


@dataclass(frozen=True, kw_only=True)
class Table:
    title: str
    intro: str
    lead: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    beside_paper: tuple[bool, ...] = ()
    """Which columns the paper has too: those print paper, ours and difference."""
    larger_is_better: tuple[bool | None, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Found:
    """Everything the report is made of."""

    records: Records
    scale: Scale
    _seen: dict[str, dict[str, Any] | None] = field(default_factory=dict)

    def get(self, name: str) -> dict[str, Any] | None:
        if name not in self._seen:
            self._seen[name] = self.records.read(name)
        return self._seen[name]

    @property
    def paper(self) -> dict[str, Any]:
        return paper()

    @cached_property
    def systems(self) -> list[System]:
        """The tables' columns: all of the paper's, and of ours those that left any record."""
        named = {name.split("/")[1].split(".")[0] for name in self.records.names()}
        own = [system for system in SYSTEMS if not system.repeats and system.name != JUDGE]
        return [system for system in own if system.paper or system.name in named]

    def title(self, system: System) -> str:
        """The system's name in the tables; a training that the clock cut short says so beside every figure of it."""
        record = self.get(f"train/{system.name}")
        if record is None or record["stopped"] != "time":
            return system.title
        return f"{system.title} (cut after {record['epochs']} of {record['settings']['train']['epochs']} epochs)"

    def nll(self, system: str, estimate: str) -> Interval | None:
        """Nats per story by one estimate, with its bootstrap."""
        record = self.get(f"likelihood/{system}")
        values = None if record is None else record["stories"].get(estimate)
        return None if values is None else mean(values, draws=self.scale.resamples)

    def ppl(self, system: str, estimate: str) -> Interval | None:
        record = self.get(f"likelihood/{system}")
        if record is None or estimate not in record["stories"]:
            return None
        values, tokens = record["stories"][estimate], record["tokens"]
        return ratio(values, tokens, transform=np.exp, draws=self.scale.resamples)

    def loose(self, system: str) -> float | None:
        """Nats a story that the honest bound gains from one sample to all, where that is too much to trust it."""
        one, all_ = self.nll(system, "elbo"), self.nll(system, "iw")
        gained = 0.0 if one is None or all_ is None else one.value - all_.value
        return gained if gained > LOOSE else None

    def nll_difference(self, one: tuple[str, str], other: tuple[str, str]) -> Interval | None:
        """Nats per story of one system and estimate less another's, story by story."""
        records = [self.get(f"likelihood/{system}") for system, _ in (one, other)]
        values = [r["stories"].get(e) if r else None for r, (_, e) in zip(records, (one, other), strict=True)]
        if values[0] is None or values[1] is None or len(values[0]) != len(values[1]):
            return None
        return difference(values[0], values[1], draws=self.scale.resamples)

    def overlap(self, system: str, setting: str, sampler: str, metric: str) -> Figure:
        name = f"overlap/{system}.{setting}.{sampler}"
        record = self.get(name)
        paper = self.paper["infilling"][setting].get(system)
        theirs = None if paper is None else paper[list(METRICS).index("rougeL" if metric == BY_LINES else metric)]
        if record is None or metric not in record:
            return Figure(paper=theirs)
        found = mean(record["stories"][metric], draws=self.scale.resamples)
        # METEOR counts over all pairs, so its own figure is not the stories' mean: the interval is moved to it.
        shift = record[metric] - found.value
        low = max(0.0, found.low + shift)  # no overlap is below none
        return Figure(ours=record[metric], low=low, high=found.high + shift, paper=theirs, record=name)

    def control(self, system: str, judge: str = "vader", greedy: bool = False) -> Figure:
        name = f"control/{system}"
        record = self.get(name)
        paper = self.paper["control"].get(system) if judge == "vader" else None
        theirs = None if paper is None else paper[0]
        if record is None:
            return Figure(paper=theirs, digits=1)
        own = record[judge]
        low, high = own["greedy_interval" if greedy else "interval"]
        return Figure(
            ours=own["greedy" if greedy else "mean"], low=low, high=high, paper=theirs, record=name, digits=1,
            spread=None if greedy else own["spread"],
        )  # fmt: skip

    def log_p_ending(self, name: str) -> FloatArray | None:
        record = self.get(f"lookahead/{name}")
        return None if record is None else np.asarray(record["stories"])

    def context_gain(self, name: str) -> Interval | None:
        record = self.get(f"surprise/{name}")
        values = None if record is None else record.get("context_gain")
        return None if values is None else mean(values, draws=self.scale.resamples)

    def tracks(self, measure: str) -> str:
        """How a measure goes with people's ratings of other machine-written stories, for its column's head."""
        record = self.get("calibration/ratings") or {"measures": {}}
        for name, own in record["measures"].items():
            if name.startswith(measure) and own["pearson"] is not None:
                return f" (r {own['pearson']:+.2f})"
        return ""

    def surprise(self, name: str, part: str = "written_") -> Interval | None:
        record = self.get(f"surprise/{name}")
        if record is None:
            return None
        stories = record["stories"]
        return ratio(stories[f"{part}nats"], stories[f"{part}tokens"], transform=np.exp, draws=self.scale.resamples)


def interval_figure(found: Interval | None, record: str, **more: Any) -> Figure:
    if found is None:
        return Figure(**more)
    return Figure(ours=found.value, low=found.low, high=found.high, record=record, **more)


def best_of(figures: Sequence[tuple[str, Figure]]) -> tuple[str, Figure] | None:
    """The largest of some figures of ours, with its name; of figures tied up to rounding the first."""
    known = [(name, figure) for name, figure in figures if figure.ours is not None]
    return known[int(first_best([float(figure.ours or 0.0) for _, figure in known]))] if known else None


def paper_best(found: Found, setting: str, metric: str, systems: Sequence[str]) -> float:
    """The paper's largest figure among some of its systems."""
    place = list(METRICS).index("rougeL" if metric == BY_LINES else metric)
    return float(max(found.paper["infilling"][setting][name][place] for name in systems))


def family(
    found: Found, setting: str, metric: str, *, ours: bool, peeking: bool = True, samplers: Sequence[str] = ()
) -> list[tuple[str, Figure]]:
    """Every figure of the SLDS family in one row of the infilling table; by some samplers only, if they are named."""
    return [
        (
            f"{found.title(system)}, {sampler_name(sampler, found.scale)}",
            found.overlap(system.name, setting, sampler, metric),
        )
        for system in found.systems
        if system.has_tags and "sample" in system.stages and (ours or system.paper)
        for sampler in samplers_of(system)
        if (peeking or not sampler.endswith("-peek")) and (not samplers or sampler in samplers)
    ]


PAPER_FAMILY = ("slds", "slds-1", "slds-10", "slds-25", "slds-50")
PAPER_BASELINES = ("s2s", "lm")
