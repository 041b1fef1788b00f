"""Figures of the report: what the records say, beside what the paper prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from fabula.metrics.bootstrap import Interval, difference, mean, ratio
from fabula.metrics.bound import slack
from fabula.ties import first_best
from fabula_paper.plan import SYSTEMS, Scale, System, read_toml
from fabula_paper.records import Records

FloatArray = NDArray[np.float64]
METRICS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "meteor": "METEOR"}
ROUGE_L_SENTENCES = "rougeLsum"
"""ROUGE-L with the sentences kept apart. The paper's figures for two missing sentences are of this kind."""
NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One table cell: our value with its 95 % interval, and the paper's value. Either may be missing."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    record: str = ""
    """The unit whose record holds the value."""
    bound: str = ""
    """The sign "≤ " in front of an upper bound."""
    digits: int = 2
    spread: float | None = None
    """Standard deviation over trainings, or over runs of one training."""
    text: str = NOT_RUN
    """What the cell shows instead of a value."""

    @property
    def ours(self) -> str:
        if self.value is None:
            return self.text
        spread = "" if self.spread is None else f" ± {self.format(self.spread)}"
        limits = [self.format(limit) for limit in (self.low, self.high) if limit is not None]
        interval = f" [{', '.join(limits)}]" if limits else ""
        return f"{self.bound}{self.format(self.value)}{spread}{interval}"

    @property
    def theirs(self) -> str:
        return "–" if self.paper is None else self.format(self.paper)

    @property
    def largest(self) -> float:
        """Of the values that a picture shows."""
        return max(1.0, *(number or 0.0 for number in (self.value, self.high, self.paper)))

    @property
    def errors(self) -> tuple[float, float]:
        """How far the interval reaches below and above the value."""
        value = self.value or 0.0
        return value - (value if self.low is None else self.low), (value if self.high is None else self.high) - value

    def format(self, value: float) -> str:
        """The value in `digits` decimals; the inner rounding keeps the last bit of a sum from deciding a digit."""
        return f"{round(value, 9):.{self.digits}f}"


DASH = Figure(text="–")


class Results:
    """The records of one report, read as figures."""

    def __init__(self, records: Records, scale: Scale) -> None:
        self.records, self.scale, self.get = records, scale, cache(records.read)

    def mean(self, values: ArrayLike) -> Interval:
        return mean(values, draws=self.scale.resamples)

    def difference(self, ours: FloatArray, theirs: FloatArray) -> Interval:
        """Mean difference over the stories that both have: all units take the stories in the same order."""
        n = min(len(ours), len(theirs))
        return difference(ours[:n], theirs[:n], draws=self.scale.resamples)

    @cached_property
    def systems(self) -> list[System]:
        """The rows of the tables: the paper's systems, and ours that have a record."""
        with_record = {name.split("/")[1].split(".")[0] for name in self.records.names()}
        return [s for s in SYSTEMS if not s.repeats and (s.paper or s.name in with_record)]

    def title(self, system: System) -> str:
        """The name of the system; a dagger says that patience did not end every training."""
        trained_out = all(one["stopped"] in ("patience", "given") for one in self.trainings("train", system.name))
        return system.title if trained_out else f"{system.title}†"

    def trainings(self, stage: str, system: str, detail: str = "") -> list[dict[str, Any]]:
        """The records of one unit for every training of a system: the first seed, then the others."""
        names = [system, *(other.name for other in SYSTEMS if other.repeats == system)]
        records = [self.get(f"{stage}/{name}{detail}") for name in names]
        return [record for record in records if record is not None]

    def over_trainings(self, stories: FloatArray, record: str, tokens: ArrayLike | None = None, **more: Any) -> Figure:
        """Mean over trainings and stories of [training, story] values; with `tokens` the perplexity."""
        each = stories.mean(1) if tokens is None else np.exp(stories.sum(1) / np.sum(tokens))
        average = stories.mean(0)
        interval = self.mean(average)
        if tokens is not None:
            interval = ratio(average, tokens, transform=np.exp, draws=self.scale.resamples)
        interval = widened(interval, [each])
        spread = float(each.std(ddof=1)) if len(each) > 1 else None
        limits: dict[str, Any] = {"value": interval.value, "low": interval.low, "high": interval.high}
        return Figure(record=record, spread=spread, **limits, **more)

    def nats(self, system: str, estimate: str) -> FloatArray | None:
        """Negative log-likelihoods as [training, story]; None if a training measured other stories."""
        records = [r for r in self.trainings("likelihood", system) if estimate in r["stories"]]
        arrays = [np.asarray(record["stories"][estimate]) for record in records]
        return np.stack(arrays) if arrays and len({len(values) for values in arrays}) == 1 else None

    def likelihood(self, system: str, estimate: str, *, perplexity: bool = True, **more: Any) -> Figure:
        """Perplexity, or nats per story."""
        stories = self.nats(system, estimate)
        if stories is None:
            return Figure(**more)
        tokens = self.trainings("likelihood", system)[0]["tokens"] if perplexity else None
        return self.over_trainings(stories, f"likelihood/{system}", tokens, **more)

    def nats_difference(self, ours: tuple[str, str], theirs: tuple[str, str]) -> Interval | None:
        """Nats per story of one (system, estimate) minus another's; the interval covers stories and trainings."""
        a, b = self.nats(*ours), self.nats(*theirs)
        if a is None or b is None or a.shape[1] != b.shape[1]:
            return None
        return widened(self.difference(a.mean(0), b.mean(0)), [a.mean(1), b.mean(1)])

    def slack(self, system: str, estimate: str) -> float:
        """Nats per story that a bound still lacks; infinite where nothing tells; 0 for an exact figure."""
        # The ELBO is compared as the paper compares it: as if it were the likelihood.
        records = [r["stories"] for r in self.trainings("likelihood", system) if estimate in r["stories"]]
        if estimate in ("nll", "authors", "elbo") or not records:
            return 0.0
        tight = self.get(f"bound/{system}")
        if tight is not None:  # what many more samples, or all tag paths, gain, and what those still lack
            gained = np.asarray(records[0][estimate])[tight["rows"]] - np.asarray(tight["stories"]["iw"])
            return float(gained.mean()) + growth_slack(tight["stories"])
        return float(np.mean([growth_slack(stories) for stories in records])) if estimate == "iw" else math.inf

    def latent(self, system: str, key: str, digits: int = 2) -> Figure:
        """What the likelihood record says about q (`kl_z`, `f1_s`), the mean over trainings."""
        records = [r for r in self.trainings("likelihood", system) if (r.get("latent") or {}).get(key) is not None]
        value = float(np.mean([r["latent"][key] for r in records])) if records else None
        return Figure(value=value, record=f"likelihood/{system}", digits=digits)

    def overlap_scores(self, system: str, setting: str, sampler: str, metric: str) -> FloatArray | None:
        """A metric as [training, story]."""
        records = self.trainings("overlap", system, f".{setting}.{sampler}")
        scores = [story_scores(record, metric) for record in records if metric in record["stories"]]
        return np.array(scores) if scores else None

    def overlap(self, system: str, setting: str, sampler: str, metric: str) -> Figure:
        """One cell of the infilling table."""
        printed = read_toml("paper")["infilling"][setting].get(system)
        theirs = printed and printed[list(METRICS).index("rougeL" if metric == ROUGE_L_SENTENCES else metric)]
        scores = self.overlap_scores(system, setting, sampler, metric)
        if scores is None:
            return Figure(paper=theirs)
        return self.over_trainings(scores, f"overlap/{system}.{setting}.{sampler}", paper=theirs)

    def control(self, system: str, lexicon: str = "vader", *, greedy: bool = False) -> Figure:
        """Macro-F1 of the tags, the mean over trainings."""
        theirs = read_toml("paper")["control"].get(system, [None])[0] if lexicon == "vader" else None
        records = self.trainings("control", system)
        if not records:
            return Figure(paper=theirs, digits=1)
        first, key = records[0][lexicon], "greedy" if greedy else "mean"
        means = np.array([record[lexicon][key] for record in records])
        value = float(means.mean())
        low, high = (bound + value - first[key] for bound in first["greedy_interval" if greedy else "interval"])
        interval = widened(Interval(value, low, high, 0.0, records[0]["n"]), [means])
        spread = float(means.std(ddof=1)) if len(means) > 1 else None if greedy else first["spread"]
        return Figure(
            value=value, low=max(0.0, interval.low), high=min(100.0, interval.high), paper=theirs,
            record=f"control/{system}", digits=1, spread=spread,
        )  # fmt: skip


def growth_slack(stories: dict[str, list[float]]) -> float:
    """The slack by the growth of one record's bound with its samples; infinite where that was not measured."""
    if "iw_quarter" in stories:
        return slack(stories["iw_quarter"], stories["iw_half"], stories["iw"])
    return 0.0 if set(stories) == {"iw"} else math.inf  # the sum over all tag paths is exact


def story_scores(record: dict[str, Any], metric: str) -> FloatArray:
    """A metric of every story. If another ROUGE program scored the single stories, they are shifted to the mean of the
    paper's program, so that all systems are on one scale."""
    scores: FloatArray = np.asarray(record["stories"][metric], dtype=np.float64)
    if metric.startswith("rouge") and record.get("by") != record.get("stories_by"):
        scores = scores + (record[metric] - scores.mean())
    return scores


def widened(interval: Interval, trainings: Sequence[FloatArray]) -> Interval:
    """The interval with Student's interval over trainings added in quadrature, where there are several."""
    extra = 0.0
    for means in trainings:
        if len(means) > 1:
            quantile = round(float(student.ppf(0.975, len(means) - 1)), 2)
            extra += (quantile * float(np.std(means, ddof=1))) ** 2 / len(means)
    low = interval.value - math.hypot(interval.value - interval.low, math.sqrt(extra))
    high = interval.value + math.hypot(interval.high - interval.value, math.sqrt(extra))
    return replace(interval, low=low, high=high)


def cross_fitted(candidates: Sequence[tuple[str, FloatArray]]) -> tuple[list[str], FloatArray]:
    """The best of several systems without selection bias: chosen on one half of the stories, scored on the other."""
    values = np.asarray([scores for _, scores in candidates], dtype=np.float64)
    half = np.arange(values.shape[1]) % 2
    scores, names = np.empty(values.shape[1]), []
    for fold in (0, 1):
        best = int(first_best(values[:, half != fold].mean(1).tolist()))
        scores[half == fold] = values[best, half == fold]
        names.append(candidates[best][0])
    return list(dict.fromkeys(names)), scores
