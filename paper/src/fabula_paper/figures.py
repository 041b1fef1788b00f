"""What the report is made of: the records that are there, read as figures beside the paper's, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.metrics.bootstrap import Interval, difference, mean, ratio
from fabula.metrics.proposal import slack, slack_of_two
from fabula.ties import first_best
from fabula_paper.paper import paper
from fabula_paper.plan import (
    HUMAN,
    JUDGE,
    LONGER,
    MIDDLE,
    PLAIN,
    SYSTEMS,
    Scale,
    System,
    samplers_of,
)
from fabula_paper.records import Records

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
        own = [system for system in SYSTEMS if not system.repeats and system.name not in (JUDGE, LONGER[JUDGE])]
        return [system for system in own if system.paper or (system.name in named and not system.outside)]

    def title(self, system: System) -> str:
        """The system's name in the tables; a training that the clock cut short says so beside every figure of it."""
        record = self.get(f"train/{system.name}")
        if record is None or record["stopped"] != "time":
            return system.title
        return f"{system.title} (cut after {record['epochs']} of {record['settings']['train']['epochs']} epochs)"

    def nll(self, system: str, estimate: str) -> Interval | None:
        """Nats per story by one estimate, the mean over trainings; the interval is over stories and trainings."""
        own = self.nats(system, estimate)
        if own is None:
            return None
        return widened(mean(own.mean(0), draws=self.scale.resamples), [own.mean(1)])

    def nats(self, system: str, estimate: str) -> FloatArray | None:
        """[training, story] by one estimate; None where there is none, or not of the same stories."""
        records = [self.get(f"likelihood/{name}") for name in self.trainings(system)]
        own = [np.asarray(r["stories"][estimate]) for r in records if r is not None and estimate in r["stories"]]
        return np.stack(own) if own and len({len(values) for values in own}) == 1 else None

    def ppl(self, system: str, estimate: str) -> Interval | None:
        own = self.nats(system, estimate)
        if own is None:
            return None
        tokens = (self.get(f"likelihood/{self.trainings(system)[0]}") or {})["tokens"]
        found = ratio(own.mean(0), tokens, transform=np.exp, draws=self.scale.resamples)
        return widened(found, [np.exp(own.sum(1) / np.sum(tokens))])

    def spread(self, system: str, estimate: str, *, ppl: bool) -> float | None:
        """The standard deviation over trainings of a likelihood figure, where there are several."""
        own = self.nats(system, estimate)
        if own is None or len(own) < 2:
            return None
        tokens = (self.get(f"likelihood/{self.trainings(system)[0]}") or {})["tokens"]
        figures = np.exp(own.sum(1) / np.sum(tokens)) if ppl else own.mean(1)
        return float(figures.std(ddof=1))

    def trainings(self, system: str, stage: str = "likelihood") -> list[str]:
        """The trainings of a system that left a record of a stage: itself, and the same by other seeds."""
        names = [system, *(other.name for other in SYSTEMS if other.repeats == system)]
        return [name for name in names if self.get(f"{stage}/{name}") is not None]

    def slack(self, system: str, estimate: str) -> float:
        """Nats a story that an estimate is thought to lack: nothing if exact, else by its growth with the samples; the
        mean over trainings."""
        records = [r for name in self.trainings(system) if (r := self.get(f"likelihood/{name}")) is not None]
        # The ELBO is compared as the paper does it, as if it were the figure itself.
        if not records or estimate in ("nll", "authors", "elbo"):
            return 0.0
        return float(np.mean([self.slack_of(record["stories"], estimate) for record in records]))

    @staticmethod
    def slack_of(stories: dict[str, list[float]], estimate: str) -> float:
        if estimate == "with_tags" or "elbo" not in stories:
            return math.inf  # a bound whose growth nobody measured
        if "iw_quarter" in stories:
            return slack(stories["iw_quarter"], stories["iw_half"], stories["iw"])
        return slack_of_two(stories["elbo"], stories["iw"])

    def latent(self, system: str) -> dict[str, float]:
        """What the likelihood record says of q: F1 of q(S), KL; the mean over trainings."""
        records = [r for name in self.trainings(system) if (r := self.get(f"likelihood/{name}")) is not None]
        own = [record["latent"] for record in records if record.get("latent")]
        keys = [key for key, value in (own[0] if own else {}).items() if value is not None]
        return {key: float(np.mean([each[key] for each in own])) for key in keys}

    def loose(self, system: str) -> float | None:
        """Nats a story that the honest bound gains from one sample to all, where that is too much to trust it."""
        one, all_ = self.nll(system, "elbo"), self.nll(system, "iw")
        gained = 0.0 if one is None or all_ is None else one.value - all_.value
        return gained if gained > LOOSE else None

    def nll_difference(self, one: tuple[str, str], other: tuple[str, str]) -> Interval | None:
        """Nats per story of one system and estimate less another's, story by story, the mean over their trainings.

        The interval is over stories and, where there are several trainings, over those too.
        """
        sides = [own for side in (one, other) if (own := self.nats(*side)) is not None]
        if len(sides) < 2 or sides[0].shape[1] != sides[1].shape[1]:
            return None
        gap = difference(sides[0].mean(0), sides[1].mean(0), draws=self.scale.resamples)
        return widened(gap, [side.mean(1) for side in sides])

    def overlap(self, system: str, setting: str, sampler: str, metric: str) -> Figure:
        name = f"overlap/{system}.{setting}.{sampler}"
        record = self.get(name)
        # The matched control of fewer samples is ours alone.
        paper = None if sampler == "rerank-few" else self.paper["infilling"][setting].get(system)
        theirs = None if paper is None else paper[list(METRICS).index("rougeL" if metric == BY_LINES else metric)]
        if record is None or metric not in record:
            return Figure(paper=theirs)
        # Figure, interval and every claim from the same scores of the same stories, the mean over trainings.
        own = self.each_overlap(system, setting, sampler, metric)
        found = widened(mean(own.mean(0), draws=self.scale.resamples), [own.mean(1)])
        spread = float(own.mean(1).std(ddof=1)) if len(own) > 1 else None
        return Figure(ours=found.value, low=found.low, high=found.high, paper=theirs, record=name, spread=spread)

    def each_overlap(self, system: str, setting: str, sampler: str, metric: str) -> FloatArray:
        """[training, story]: a metric of every story."""
        names = [system, *self.repeats(system)]
        records = [self.get(f"overlap/{name}.{setting}.{sampler}") for name in names]
        return np.array([story_scores(r, metric) for r in records if r is not None and metric in r["stories"]])

    def overlaps(self, system: str, setting: str, sampler: str, metric: str) -> FloatArray | None:
        """A metric of every story, the mean over the system's trainings."""
        own = self.each_overlap(system, setting, sampler, metric)
        found: FloatArray | None = own.mean(0) if len(own) else None
        return found

    def repeats(self, system: str) -> list[str]:
        """The same system by other seeds."""
        return [other.name for other in SYSTEMS if other.repeats == system]

    def control(self, system: str, judge: str = "vader", greedy: bool = False) -> Figure:
        name = f"control/{system}"
        record = self.get(name)
        paper = self.paper["control"].get(system) if judge == "vader" else None
        theirs = None if paper is None else paper[0]
        if record is None:
            return Figure(paper=theirs, digits=1)
        own, key = record[judge], "greedy" if greedy else "mean"
        low, high = own["greedy_interval" if greedy else "interval"]
        others = [self.get(f"control/{other}") for other in self.repeats(system)]
        means = np.array([own[key], *(other[judge][key] for other in others if other is not None)])
        value = float(means.mean())
        shift = value - own[key]
        over = widened(Interval(value, low + shift, high + shift, 0.0, record["n"]), [means])
        # The paper's deviation is over runs of one model; over trainings where there are several.
        spread = float(means.std(ddof=1)) if len(means) > 1 else None if greedy else own["spread"]
        low, high = max(0.0, over.low), min(100.0, over.high)  # Student's interval knows no bounds
        return Figure(ours=value, low=low, high=high, paper=theirs, record=name, digits=1, spread=spread)

    def log_p_ending(self, name: str) -> FloatArray | None:
        record = self.get(f"lookahead/{name}")
        return None if record is None else np.asarray(record["stories"])

    def judge_of(self, name: str) -> str:
        """Which judge a look-ahead is by: one of them, or nobody. Figures of two judges do not compare."""
        record = self.get(f"lookahead/{name}")
        weights = {judge: (self.get(f"train/{judge}") or {}).get("weights") for judge in (JUDGE, LONGER[JUDGE])}
        return next((j for j, own in weights.items() if record is not None and own == record.get("weights")), "")

    def anchors(self, name: str) -> tuple[FloatArray, FloatArray] | None:
        """Look-ahead of people's middles and of the LM left to right, by the judge that a record is by."""
        for suffix in ("", ".long"):
            ends = [self.log_p_ending(f"{anchor}{suffix}") for anchor in (HUMAN, PLAIN)]
            if self.judge_of(f"{HUMAN}{suffix}") == self.judge_of(name) and ends[0] is not None and ends[1] is not None:
                return ends[0], ends[1]
        return None

    def outside_ending(self, name: str) -> FloatArray | None:
        """SmolLM2's nats of a story's given sentences: of the ending, up to the first one's, which are everybody's."""
        record = self.get(f"surprise/{name}")
        if record is None:
            return None
        stories = record["stories"]
        given: FloatArray = np.asarray(stories["nats"], dtype=np.float64) - np.asarray(stories["written_nats"])
        return given

    def opinion(self, name: str, judge: str, sign: float = 1.0) -> FloatArray | None:
        """One judge's figure of every story, larger meant to be better (`opinions.py`)."""
        record = self.get(f"opinion/{name}")
        values = None if record is None else record["stories"].get(judge)
        return None if values is None else sign * np.asarray(values, dtype=np.float64)

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


def story_scores(record: dict[str, Any], metric: str) -> FloatArray:
    """A metric of every story of a record. Where the paper's program gave the mean and another one the stories, whose
    ROUGE is some tenths lower, they are raised to that mean: so all systems stand on one scale."""
    own: FloatArray = np.asarray(record["stories"][metric], dtype=np.float64)
    if metric.startswith("rouge") and record.get("by") != record.get("stories_by"):
        own = own + (record[metric] - own.mean())
    return own


def alike(one: FloatArray, other: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Figures of the same stories: all units take them in one order, some stop earlier."""
    n = min(len(one), len(other))
    return one[:n], other[:n]


T_QUANTILES = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}
"""Student's 97.5 % for the mean of so many trainings."""


def widened(gap: Interval, trainings: Sequence[FloatArray]) -> Interval:
    """A difference of two systems with the spread over their trainings in its interval, where there are several."""
    of_seeds = [
        float(np.std(means, ddof=1)) / math.sqrt(len(means)) * T_QUANTILES.get(len(means), 2.3)
        for means in trainings
        if len(means) > 1
    ]
    extra = math.sqrt(sum(part**2 for part in of_seeds))
    low = gap.value - math.hypot(gap.value - gap.low, extra)
    high = gap.value + math.hypot(gap.high - gap.value, extra)
    return Interval(gap.value, low, high, gap.se, gap.n)


def cross_fitted(candidates: Sequence[tuple[str, FloatArray]]) -> tuple[list[str], FloatArray]:
    """The best of several systems without the gain of having picked it: chosen on one half of the stories, its figures
    taken on the other, and the halves changed over. Returns who was chosen, and a figure for every story."""
    values = np.asarray([own for _, own in candidates], dtype=np.float64)
    half = np.arange(values.shape[1]) % 2
    chosen, names = np.empty(values.shape[1]), []
    for fold in (0, 1):
        best = int(first_best(values[:, half != fold].mean(1).tolist()))
        chosen[half == fold] = values[best, half == fold]
        names.append(candidates[best][0])
    return list(dict.fromkeys(names)), chosen


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
