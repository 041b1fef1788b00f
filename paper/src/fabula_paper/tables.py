"""The tables of the report: the paper's, each cell with its record, and ours beyond them (heads: tables.toml)."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from fabula_paper import figures
from fabula_paper.figures import DASH, METRICS, Figure, Results, interval_figure, paper
from fabula_paper.plan import BY_NAME, HUMAN, MIDDLE, PLAIN, SETTINGS, TABLE_SETTINGS, protocol, samplers_of

SETTING_NAMES = {
    "2": "2nd missing", "4": "4th missing", "12": "1st and 2nd missing", "34": "3rd and 4th missing",
    MIDDLE: "2nd to 4th missing",
}  # fmt: skip
SAMPLER_NAMES = {
    "rerank": "best of many", "gibbs-peek": "gibbs, tags peeked at", "gibbs": "gibbs, no peeking",
    "bridge": "bridge", "fill": "as fabula fill writes",
}  # fmt: skip
"""In the order of the infilling tables, after the paper's protocol."""
EXACT_RIVALS = {"default": "lm-1024", "slds": "lm"}
"""The language model that a calibrated bound is compared with."""


@dataclass(frozen=True)
class Row:
    lead: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    section: str
    title: str
    intro: str
    lead: list[str]
    columns: list[str]
    rows: list[Row]

    @property
    def beside_paper(self) -> list[bool]:
        """Which columns the paper prints too."""
        return [any(row.figures[m].paper is not None for row in self.rows) for m in range(len(self.columns))]


def way_name(results: Results, name: str) -> tuple[str, str]:
    """System and sampler of a middle-three record: `slds.bridge`, `human`, `plain` or `plain.long`."""
    system, _, sampler = name.partition(".")
    if system == HUMAN:
        return "people", "–"
    if system == PLAIN:
        return BY_NAME["lm-long" if sampler == "long" else "lm"].title, "left to right, blind"
    return results.title(BY_NAME[system]), SAMPLER_NAMES[sampler]


def counts(records: list[dict[str, Any]]) -> tuple[str, str]:
    """Stories and trainings behind a row."""
    return (f"{records[0]['n']:,}", str(len(records))) if records and "n" in records[0] else ("–", "–")


def metrics_of(setting: str) -> dict[str, str]:
    """The metrics that compare with the paper's: ROUGE-L of two sentences keeps them apart."""
    if len(SETTINGS[setting]) == 1:
        return METRICS
    names = [*METRICS.values()]
    keys = ["rouge1", "rouge2", figures.ROUGE_L_SENTENCES, "meteor"]
    return dict(zip(keys, [*names[:2], f"{names[2]}, sentences apart", names[3]], strict=True))


def infilling(results: Results, setting: str) -> Iterator[Row]:
    """Table 2 of the paper for one setting: the paper's protocol first, then the other samplers."""
    systems = [system for system in results.systems if "sample" in system.stages]
    pairs = [(system, protocol(system)) for system in systems]
    pairs += [(s, sampler) for sampler in SAMPLER_NAMES for s in systems if sampler in samplers_of(s)[1:]]
    for system, sampler in pairs:
        tags = "gold tags" if system.reads_tags else "peeks" if sampler.endswith("-peek") else "no"
        n = counts(results.trainings("overlap", system.name, f".{setting}.{sampler}"))
        metrics = {**METRICS, **metrics_of(setting)}
        cells = tuple(results.overlap(system.name, setting, sampler, metric) for metric in metrics)
        yield Row((results.title(system), SAMPLER_NAMES[sampler], tags, *n), cells)


def programs(results: Results) -> Iterator[Row]:
    """The paper's protocol scored by the paper's programs, which give one figure for all stories."""
    for setting in TABLE_SETTINGS:
        for system in (s for s in results.systems if s.paper):
            name = f"overlap/{system.name}.{setting}.{protocol(system)}"
            record, printed = results.get(name) or {}, paper()["infilling"][setting][system.name]
            cells = tuple(
                Figure(value=record.get(metric), paper=theirs, record=name)
                for metric, theirs in zip(metrics_of(setting), printed, strict=True)
            )
            yield Row((SETTING_NAMES[setting], results.title(system)), cells)


def perplexity(results: Results) -> Iterator[Row]:
    """Tables 4 and 5 of the paper."""
    for system in results.systems:
        name, measured = system.name, results.trainings("likelihood", system.name)
        theirs = "authors" if system.latent else "nll"
        honest = "iw" if system.latent else "with_tags" if system.reads_tags else "nll"
        bound = "" if honest == "nll" else "≤ "
        nll, ppl = paper()["perplexity"].get(name, (None, None))
        lacks = results.slack(name, honest)
        slack = Figure() if not measured or math.isinf(lacks) else Figure(value=lacks, record=f"likelihood/{name}")
        cells = (
            results.likelihood(name, theirs, perplexity=False, paper=nll),
            results.likelihood(name, theirs, paper=ppl),
            results.likelihood(name, "elbo", bound=bound) if system.latent else DASH,
            results.likelihood(name, honest, bound=bound),
            results.likelihood(name, honest, perplexity=False, bound=bound),
            slack if lacks or not measured else DASH,
            results.latent(name, "kl_z") if system.latent else DASH,
            results.latent(name, "f1_s", digits=1) if system.has_tags else DASH,
        )
        yield Row((results.title(system), *counts(measured)), cells)


def calibrated(results: Results) -> Iterator[Row]:
    """Systems whose bound was measured again by a calibrated q."""
    for name, rival in EXACT_RIVALS.items():
        new, behind = figures.calibrated_bound(results, name), figures.calibrated_bound(results, name, rival)
        if new is not None and behind is not None:
            tokens, where = float(np.mean(results.trainings("likelihood", name)[0]["tokens"])), f"bound/{name}"
            ppl, above = (
                [factor * (math.exp(nats / tokens) - less) for nats in (gap.value, gap.low, gap.high)]
                for gap, factor, less in ((new[0], 1, 0), (behind[0], 100, 1))
            )
            cells = (
                results.likelihood(name, "iw", bound="≤ "),
                Figure(value=ppl[0], low=ppl[1], high=ppl[2], record=where, bound="≤ "),
                Figure(value=new[1], record=where),
                results.likelihood(rival, "nll"),
                Figure(value=above[0], low=above[1], high=above[2], record=where),
            )
            yield Row((results.title(BY_NAME[name]), str(new[0].n)), cells)


def control(results: Results) -> Iterator[Row]:
    """Table 6 of the paper."""
    for system in (s for s in results.systems if s.has_tags or s.reads_tags):
        records = results.trainings("control", system.name)
        record, where = (records or [{}])[0], f"control/{system.name}"
        cells = (
            results.control(system.name),
            results.control(system.name, greedy=True),
            Figure(value=record.get("distinct_2"), record=where, digits=3),
            Figure(value=record.get("distinct_2_greedy"), record=where, digits=3),
            *(results.control(system.name, lex, greedy=greedy) for lex in ("afinn", "nrc") for greedy in (False, True)),
            results.latent(system.name, "f1_s", digits=1) if system.latent else DASH,
        )
        yield Row((results.title(system), *counts(records)), cells)


def human(results: Results) -> Iterator[Row]:
    """Table 3 of the paper; ours needs people."""
    names = {"lm": "LM", "slds-vs-lm": "SLDS, against LM", "s2s": "S2S", "slds-vs-s2s": "SLDS, against S2S"}
    for key, title in names.items():
        coherence, _, best = paper()["human"][key]
        yield Row((title,), (Figure(paper=coherence), Figure(paper=best, digits=1)))


def errors(results: Results) -> Iterator[Row]:
    """Appendix B of the paper; ours needs people."""
    for name, (cases, of) in paper()["errors"].items():
        yield Row((name, f"{cases} of {of}"), (Figure(),))


def middle(results: Results) -> Iterator[Row]:
    """Measures beyond the paper on the middle three sentences."""
    names = [f"{anchor}{suffix}" for suffix in figures.LOOKAHEAD_JUDGES for anchor in (HUMAN, PLAIN)]
    names = [name for name in names if "." not in name or results.get(f"lookahead/{name}")]
    systems = [system for system in results.systems if "sample" in system.stages]
    names += [f"{system.name}.{sampler}" for system in systems for sampler in samplers_of(system)]
    for name in names:
        judge, log_p = results.lookahead_judge(name), results.lookahead(name)
        prose = results.get(f"prose/{name}") or {}
        copied = {key: 100 * prose["copied_4grams"][key] for key in ("value", "low", "high")} if prose else {}
        score = interval_figure(results.lookahead_score(name), f"lookahead/{name}")
        if log_p is not None and name.startswith((HUMAN, PLAIN)):
            score = Figure(text="1" if name.startswith(HUMAN) else "0")
        cells = (
            interval_figure(None if log_p is None else results.mean(log_p), f"lookahead/{name}"),
            score,
            Figure(value=prose.get("distinct_2"), record=f"prose/{name}", digits=3),
            Figure(**copied, record=f"prose/{name}", digits=1),
        )
        yield Row((*way_name(results, name), BY_NAME[judge].title if judge else "–"), cells)


def whole_stories(results: Results) -> Iterator[Row]:
    """MAUVE and Story Cloze."""
    for system in (s for s in results.systems if "write" in s.stages):
        name, record = f"mauve/{system.name}", results.get(f"mauve/{system.name}") or {}
        low, high = record.get("low"), record.get("high")
        cells = [Figure(value=record.get("mauve"), low=low, high=high, record=name, digits=3)]
        cloze = results.get(f"cloze/{system.name}")
        for part in ("story", "ending_only", "difference"):
            if system.reads_tags or "cloze" not in system.stages:
                cells.append(DASH)
            elif cloze is None:
                cells.append(Figure())
            else:
                interval = results.mean(cloze["correct"][part])
                cells.append(interval_figure(interval, f"cloze/{system.name}", factor=100, digits=1))
        yield Row((results.title(system),), tuple(cells))


MAKERS: tuple[Callable[[Results], Iterable[Row]], ...] = (
    programs, perplexity, calibrated, control, human, errors, middle, whole_stories,
)  # fmt: skip


def all_tables(results: Results) -> list[Table]:
    """Every table that has a row, in the order of the report."""
    heads = tomllib.loads((resources.files("fabula_paper") / "tables.toml").read_text(encoding="utf-8"))
    tables = []
    for setting in TABLE_SETTINGS:
        columns = list({**METRICS, **metrics_of(setting)}.values())
        head = heads["infilling"] | {"title": f"Infilling: {SETTING_NAMES[setting]}", "columns": columns}
        tables.append(Table(**head, rows=list(infilling(results, setting))))
    for make in MAKERS:
        head = heads[make.__name__]
        columns = [name.format(runs=results.scale.runs) for name in head["columns"]]
        tables.append(Table(**head | {"columns": columns}, rows=list(make(results))))
    return [table for table in tables if table.rows]
