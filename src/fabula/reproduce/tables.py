"""The paper's tables from whatever records are there: each cell paper, ours, difference, with its record's name."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabula.evaluation.bootstrap import Interval, difference, mean, ratio
from fabula.reproduce.plan import (
    HUMAN,
    JUDGE,
    MIDDLE,
    PLAIN,
    SETTINGS,
    SYSTEMS,
    TABLE_SETTINGS,
    Scale,
    System,
    protocol,
    samplers_of,
    timed,
)
from fabula.reproduce.records import Records

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
    "bridge-more": "bridge, 500 samples, asking ahead", "bridge-sharp": "bridge, 500 samples, sharp words",
    "fill": "as fabula fill writes",
    "consensus-peek": "bridge, chosen by consensus, tags peeked at", "consensus": "bridge, chosen by consensus",
}  # fmt: skip
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

    @cached_property
    def paper(self) -> dict[str, Any]:
        return tomllib.loads((resources.files("fabula.reproduce") / "paper.toml").read_text(encoding="utf-8"))

    @cached_property
    def systems(self) -> list[System]:
        """The tables' columns: all of the paper's, and of ours those that left any record."""
        named = {name.split("/")[1].split(".")[0] for name in self.records.names()}
        return [system for system in SYSTEMS if (system.paper or system.name in named) and system.name != JUDGE]

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


def infilling(found: Found) -> list[Table]:
    """Table 2 of the paper, a table for each setting."""
    tables = []
    for setting in TABLE_SETTINGS:
        rows = []
        metrics = [*METRICS, *([BY_LINES] if len(SETTINGS[setting]) > 1 else [])]
        # The paper's protocol for everyone, then what else the latent systems can do.
        for step in (
            "protocol",
            "gibbs",
            "bridge",
            "bridge-more",
            "bridge-sharp",
            "fill",
            "consensus-peek",
            "consensus",
        ):
            for system in found.systems:
                if "sample" not in system.stages or (step != "protocol" and step not in samplers_of(system)[1:]):
                    continue
                sampler = protocol(system) if step == "protocol" else step
                seen = "gold tags" if system.kind == "s2s" else "peeks" if sampler.endswith("-peek") else "no"
                figures = tuple(found.overlap(system.name, setting, sampler, metric) for metric in metrics)
                rows.append(
                    Row(lead=(found.title(system), SAMPLER_NAMES[sampler], seen), figures=figures, own=not system.paper)
                )
        tables.append(
            Table(
                title=f"Infilling: {SETTING_NAMES[setting]}",
                intro="",
                lead=("system", "sampler", "tags seen"),
                columns=tuple(METRICS.get(metric, "ROUGE-L, sentences apart") for metric in metrics),
                rows=tuple(rows),
                beside_paper=(True,) * len(metrics),
                larger_is_better=(True,) * len(metrics),
            )
        )
    return tables


def perplexity(found: Found) -> Table:
    rows = []
    for system in found.systems:
        name, record = system.name, found.get(f"likelihood/{system.name}")
        where = f"likelihood/{name}"
        paper = found.paper["perplexity"].get(name, [None, None])
        theirs = "authors" if system.latent else "nll"
        honest = "iw" if system.latent else "with_tags" if system.kind == "s2s" else "nll"
        estimate = "estimate" if system.latent else "exact"
        bound = "exact" if system.kind == "lm" else "loose bound" if found.loose(name) else "bound"
        latent = (record or {}).get("latent") or {}
        figures = (
            interval_figure(found.nll(name, theirs), where, paper=paper[0], kind=estimate),
            interval_figure(found.ppl(name, theirs), where, paper=paper[1], kind=estimate),
            interval_figure(found.ppl(name, "elbo"), where, kind=bound) if system.latent else Figure(words="–"),
            interval_figure(found.ppl(name, honest), where, kind=bound),
            interval_figure(found.nll(name, honest), where, kind=bound),
            Figure(ours=latent.get("kl_z"), record=where) if system.latent else Figure(words="–"),
            Figure(ours=latent.get("f1_s"), record=where, kind="exact", digits=1)
            if system.kind == "slds"
            else Figure(words="–"),
        )
        rows.append(Row(lead=(found.title(system),), figures=figures, own=not system.paper))
    return Table(
        title="Perplexity",
        intro="Test split. NLL is nats per story (the paper says per sentence). The first two columns are the "
        "paper's estimate: for latent models one sample of Z, a soft Gumbel S, the KL of S left out, which is no "
        "bound; for LM and S2S it is exact, S2S given the true tags. The honest column pays for everything: LM exact; "
        "latent models by an importance-weighted bound, S summed out; S2S with log p(S). Importance samples: "
        f"{found.scale.bound_samples}. A bound that still gains more than {LOOSE:.0f} nats a story by them is called "
        "loose: it tells of q(Z | X), not of the model.",
        lead=("system",),
        columns=(
            "NLL, the paper's estimate", "PPL, the paper's estimate", "PPL, ELBO", "PPL, honest", "NLL, honest",
            "KL of (S, Z)", "F1 of q(S)",
        ),
        rows=tuple(rows),
        beside_paper=(True, True, False, False, False, False, False),
        larger_is_better=(False, False, False, False, False, None, True),
    )  # fmt: skip


def control(found: Found) -> Table:
    rows = []
    for system in found.systems:
        if system.kind not in ("slds", "s2s"):
            continue
        record, where = found.get(f"control/{system.name}") or {}, f"control/{system.name}"
        latent = (found.get(f"likelihood/{system.name}") or {}).get("latent") or {}
        rows.append(
            Row(
                lead=(found.title(system),),
                figures=(
                    found.control(system.name),
                    found.control(system.name, greedy=True),
                    Figure(ours=record.get("distinct_2"), record=where, digits=3),
                    Figure(ours=record.get("distinct_2_greedy"), record=where, digits=3),
                    found.control(system.name, "afinn"),
                    found.control(system.name, "afinn", greedy=True),
                    found.control(system.name, "nrc"),
                    found.control(system.name, "nrc", greedy=True),
                    Figure(ours=latent.get("f1_s"), record=f"likelihood/{system.name}", digits=1, kind="exact")
                    if system.latent
                    else Figure(words="–"),
                ),
                own=not system.paper,
            )
        )
    n = next((r["n"] for s in SYSTEMS if (r := found.get(f"control/{s.name}"))), 0)
    return Table(
        title="Control",
        intro=f"The tags of {n:,} test stories in, Z from the dynamics, five sentences on the model's own context; "
        "macro-F1 of the tags that VADER reads off the detokenised text. VADER also made the labels, so two lexicons "
        "that no model was trained with judge too: they call fewer sentences as VADER does, whoever wrote them. "
        "Repetition makes control easy, so distinct-2 stands beside it.",
        lead=("system",),
        columns=(
            f"macro-F1, top-k 15, mean of {found.scale.runs} runs", "macro-F1, greedy", "distinct-2, top-k",
            "distinct-2, greedy", "macro-F1 by AFINN", "by AFINN, greedy", "macro-F1 by NRC", "by NRC, greedy",
            "F1 of q(S)",
        ),
        rows=tuple(rows),
        beside_paper=(True, True, *(False,) * 7),
        larger_is_better=(True,) * 9,
    )  # fmt: skip


def middle_names(found: Found) -> list[tuple[str, System | None, str]]:
    """The rows of the middle-three table: record suffix, system, sampler."""
    names: list[tuple[str, System | None, str]] = [(HUMAN, None, "")]
    for system in found.systems:
        if "sample" in system.stages:
            names += [(f"{system.name}.{sampler}", system, sampler) for sampler in samplers_of(system)]
    return names


def beyond(found: Found) -> Table:
    human, plain = found.log_p_ending(HUMAN), found.log_p_ending(PLAIN)
    rows = []
    for name, system, sampler in middle_names(found):
        log_p = found.log_p_ending(name)
        prose = found.get(f"prose/{name}") or {}
        score = Figure()
        if log_p is not None and human is not None and plain is not None and name != HUMAN:
            score = interval_figure(
                ratio(log_p - plain, human - plain, draws=found.scale.resamples), f"lookahead/{name}"
            )
        elif name == HUMAN:
            score = Figure(words="1")
        speed = found.get(f"speed/{name}")
        untimed = "" if system is not None and sampler in timed(system) else "–"
        shares = [
            Figure(
                ours=100 * part["value"],
                low=100 * part["low"],
                high=100 * part["high"],
                record=f"prose/{name}",
                digits=1,
            )
            if (part := prose.get(measure))
            else Figure(digits=1)
            for measure in ("repeated_sentences", "copied_4grams")
        ]
        rows.append(
            Row(
                lead=("people" if system is None else found.title(system), SAMPLER_NAMES.get(sampler, "–")),
                figures=(
                    interval_figure(found.surprise(name), f"surprise/{name}", digits=1),
                    interval_figure(found.surprise(name, ""), f"surprise/{name}", digits=1),
                    interval_figure(found.context_gain(name), f"surprise/{name}", digits=3),
                    interval_figure(
                        None if log_p is None else mean(log_p, draws=found.scale.resamples), f"lookahead/{name}"
                    ),
                    score,
                    Figure(ours=prose.get("distinct_2"), record=f"prose/{name}", digits=3),
                    *shares,
                    Figure(ours=prose.get("longest_copied_mean"), record=f"prose/{name}", digits=1),
                    Figure(ours=speed["seconds_a_story_together"], record=f"speed/{name}", digits=3)
                    if speed
                    else Figure(words=untimed),
                    Figure(ours=speed["seconds_one_story"], record=f"speed/{name}", digits=3)
                    if speed
                    else Figure(words=untimed),
                ),
                own=system is not None and not system.paper,
            )
        )
    return Table(
        title="Beyond: first and last sentence given, the middle three written",
        intro="Story perplexity under SmolLM2-135M, which none of the systems has met: of the written sentences in "
        "their story, and of the whole story. Look-ahead: log P(last sentence | first, what was written) under a "
        "language model that only judges, and as a score from 0 (the paper's LM, left to right) to 1 (the human one). "
        "r: the measure's correlation with people's ratings, signed so that plus is as hoped (table below).",
        lead=("system", "sampler"),
        columns=(
            f"story PPL, written{found.tracks('- story perplexity')}", "story PPL, all",
            f"what context saves, nats a token{found.tracks('what context saves')}", "log P(ending)",
            "look-ahead score", f"distinct-2{found.tracks('distinct-2')}",
            f"repeated sentences, %{found.tracks('- repeated sentences')}",
            f"4-grams copied from training, %{found.tracks('- copied 4-grams')}",
            f"longest copied n-gram, words{found.tracks('- longest copied')}", "s a story, in a batch", "s, one story",
        ),
        rows=tuple(rows),
        beside_paper=(False,) * 11,
        # Of story perplexity people's own is the best, not the least.
        larger_is_better=(None, None, True, True, True, True, False, False, False, False, False),
    )  # fmt: skip


def written(found: Found) -> Table:
    rows = []
    for system in found.systems:
        if "write" not in system.stages:
            continue
        record, where = found.get(f"mauve/{system.name}"), f"mauve/{system.name}"
        cloze = found.get(f"cloze/{system.name}")
        figures = [
            Figure(ours=record["mauve"], low=record["low"], high=record["high"], record=where, digits=3)
            if record
            else Figure()
        ]
        for part in ("story", "ending_only", "difference"):
            if system.kind == "s2s" or "cloze" not in system.stages:
                figures.append(Figure(words="–"))
            elif cloze is None:
                figures.append(Figure())
            elif found.loose(system.name):
                figures.append(Figure(words="bound too loose"))
            else:
                interval = mean(cloze["correct"][part], draws=found.scale.resamples)
                figures.append(
                    Figure(
                        ours=100 * interval.value, low=100 * interval.low, high=100 * interval.high,
                        record=f"cloze/{system.name}", digits=1,
                    )
                )  # fmt: skip
        rows.append(Row(lead=(found.title(system),), figures=tuple(figures), own=not system.paper))
    return Table(
        title="Beyond: stories as a whole, and right endings",
        intro="MAUVE between the stories a system writes (from the test stories' tags; LM and LDS: from nothing) and "
        "the human ones, on MiniLM features of whole stories; only comparable within this table. Story Cloze: the "
        "share of test questions where the right ending makes the story more probable; the ending alone, which needs "
        "no story, as a control; and log p(ending | story) - log p(ending).",
        lead=("system",),
        columns=("MAUVE", "cloze, with story, %", "cloze, ending alone, %", "cloze, difference, %"),
        rows=tuple(rows),
        beside_paper=(False,) * 4,
        larger_is_better=(True,) * 4,
    )


def calibration(found: Found) -> Table | None:
    record = found.get("calibration/ratings")
    if record is None:
        return None
    rows = [
        Row(
            lead=(name,),
            figures=(
                Figure(ours=own["pearson"], low=own["low"], high=own["high"], record="calibration/ratings", digits=3),
                Figure(ours=own["spearman"], record="calibration/ratings", digits=3),
            ),
        )
        for name, own in record["measures"].items()
    ]
    return Table(
        title="Which of these measures tracks people",
        intro=f"Correlation with the mean rating of {record['n']} machine-written stories (seven raters each, UNION). "
        "For comparison, on the same stories: BLEU .03, BLEURT .23, minus perplexity .25, UNION .37.",
        lead=("measure, larger meant to be better",),
        columns=("Pearson", "Spearman"),
        rows=tuple(rows),
        beside_paper=(False, False),
        larger_is_better=(True, True),
    )


def human(found: Found) -> Table:
    p = found.paper["human"]
    rows = [
        Row(
            lead=(name,),
            figures=(
                Figure(paper=p[key][0], spread=None, words=NOT_RUN),
                Figure(paper=p[key][2], words=NOT_RUN, digits=1),
            ),
        )
        for name, key in (
            ("LM", "lm"),
            ("SLDS, against LM", "slds-vs-lm"),
            ("S2S", "s2s"),
            ("SLDS, against S2S", "slds-vs-s2s"),
        )
    ]
    return Table(
        title="Human evaluation",
        intro=f"The paper: 200 stories a comparison, three raters a pair, {p['ties'][0]} % and {p['ties'][1]} % ties. "
        "Ours needs people: `fabula reproduce` writes the blind pairs, `fabula judge` asks and counts (see below).",
        lead=("system",),
        columns=("coherence, 0 to 3", "best story, %"),
        rows=tuple(rows),
        beside_paper=(True, True),
        larger_is_better=(True, True),
    )


def errors(found: Found) -> Table:
    rows = [
        Row(lead=(name, f"{cases} of {of}"), figures=(Figure(words=NOT_RUN),))
        for name, (cases, of) in found.paper["errors"].items()
    ]
    return Table(
        title="Errors of the lowest-rated stories",
        intro="Appendix B of the paper: 20 stories that raters found incoherent, read by the authors. `fabula judge "
        "report` picks the 20 lowest-rated of ours; the form is error-sheet.md.",
        lead=("error", "the paper"),
        columns=("ours",),
        rows=tuple(rows),
        beside_paper=(False,),
        larger_is_better=(None,),
    )


def all_tables(found: Found) -> dict[str, list[Table]]:
    """Section by section."""
    measured = calibration(found)
    return {
        "infilling": infilling(found),
        "perplexity": [perplexity(found)],
        "control": [control(found)],
        "human": [human(found), errors(found)],
        "beyond": [beyond(found), written(found), *([measured] if measured else [])],
    }


def best_of(figures: Sequence[tuple[str, Figure]]) -> tuple[str, Figure] | None:
    """The largest of some figures of ours, with its name."""
    known = [(name, figure) for name, figure in figures if figure.ours is not None]
    return max(known, key=lambda pair: float(pair[1].ours or 0.0)) if known else None


def paper_best(found: Found, setting: str, metric: str, systems: Sequence[str]) -> float:
    """The paper's largest figure among some of its systems."""
    place = list(METRICS).index("rougeL" if metric == BY_LINES else metric)
    return float(max(found.paper["infilling"][setting][name][place] for name in systems))


def family(
    found: Found, setting: str, metric: str, *, ours: bool, peeking: bool = True, samplers: Sequence[str] = ()
) -> list[tuple[str, Figure]]:
    """Every figure of the SLDS family in one row of the infilling table; by some samplers only, if they are named."""
    return [
        (f"{found.title(system)}, {SAMPLER_NAMES[sampler]}", found.overlap(system.name, setting, sampler, metric))
        for system in found.systems
        if system.kind == "slds" and "sample" in system.stages and (ours or system.paper)
        for sampler in samplers_of(system)
        if (peeking or not sampler.endswith("-peek")) and (not samplers or sampler in samplers)
    ]


PAPER_FAMILY = ("slds", "slds-1", "slds-10", "slds-25", "slds-50")
PAPER_BASELINES = ("s2s", "lm")
