"""The tables of the report: the paper's, each cell with its record, and ours beyond them (heads: tables.toml)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fabula_paper import figures
from fabula_paper.figures import DASH, METRICS, Figure, Results
from fabula_paper.plan import COMPARED, HUMAN, SETTINGS, SYSTEMS, TABLE_SETTINGS, protocol, read_toml, samplers_of
from fabula_paper.readers import ERRORS

SETTING_NAMES = {"2": "2nd missing", "4": "4th missing", "12": "1st and 2nd missing", "34": "3rd and 4th missing"}
SAMPLER_NAMES = {"rerank": "best of many", "gibbs-peek": "gibbs, tags peeked at", "gibbs": "gibbs, no peeking"}
"""In the order of the infilling tables, after the paper's protocol."""


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
    folded: bool = False
    """Whether the page shows it behind a fold."""

    @property
    def beside_paper(self) -> list[bool]:
        """Which columns the paper prints too."""
        return [any(row.figures[m].paper is not None for row in self.rows) for m in range(len(self.columns))]


def metrics_of(setting: str) -> dict[str, str]:
    """The metrics that compare with the paper's: ROUGE-L of two sentences keeps them apart."""
    if len(SETTINGS[setting]) == 1:
        return METRICS
    keys = ["rouge1", "rouge2", figures.ROUGE_L_SENTENCES, "meteor"]
    return dict(zip(keys, METRICS.values(), strict=True))


def infilling(results: Results) -> Iterator[Row]:
    """Table 2 of the paper: the paper's protocol first, then without peeking."""
    for setting in TABLE_SETTINGS:
        systems = [system for system in results.systems if "sample" in system.stages]
        pairs = [(system, protocol(system)) for system in systems]
        pairs += [(system, sampler) for system in systems for sampler in samplers_of(system)[1:]]
        for system, sampler in pairs:
            trainings = len(results.trainings("overlap", system.name, f".{setting}.{sampler}"))
            cells = tuple(results.overlap(system.name, setting, sampler, metric) for metric in metrics_of(setting))
            if sampler != protocol(system):
                cells = tuple(replace(cell, paper=None) for cell in cells)
            lead = (SETTING_NAMES[setting], results.title(system), SAMPLER_NAMES[sampler], str(trainings or "–"))
            yield Row(lead, cells)


def perplexity(results: Results) -> Iterator[Row]:
    """Tables 5 and 6 of the paper."""
    for system in results.systems:
        name, measured = system.name, results.trainings("likelihood", system.name)
        theirs = "authors" if system.latent else "nll"
        honest = "iw" if system.latent else "with_tags" if system.reads_tags else "nll"
        bound = "" if honest == "nll" else "≤ "
        nll, ppl = read_toml("paper")["perplexity"].get(name, (None, None))
        lacks = results.slack(name, honest)
        slack = Figure(text="unknown") if math.isinf(lacks) else Figure(value=lacks, record=f"likelihood/{name}")
        cells = (
            results.likelihood(name, theirs, perplexity=False, paper=nll),
            results.likelihood(name, theirs, paper=ppl),
            results.likelihood(name, honest, bound=bound),
            results.likelihood(name, honest, perplexity=False, bound=bound),
            Figure() if not measured else slack if lacks else DASH,
            results.latent(name, "kl_z") if system.latent else DASH,
            results.latent(name, "kl_s") if system.has_tags else DASH,
            results.latent(name, "f1_s", digits=1) if system.has_tags else DASH,
        )
        yield Row((results.title(system), str(len(measured) or "–")), cells)


def control(results: Results) -> Iterator[Row]:
    """Table 7 of the paper."""
    for system in (s for s in results.systems if "write" in s.stages and (s.has_tags or s.reads_tags)):
        records = results.trainings("control", system.name)
        cells = (
            results.control(system.name),
            results.control(system.name, greedy=True),
            results.control(system.name, "afinn"),
            results.control(system.name, "afinn", greedy=True),
            Figure(value=(records or [{}])[0].get("distinct_2"), record=f"control/{system.name}", digits=3),
        )
        yield Row((results.title(system), str(len(records) or "–")), cells)


def human(results: Results) -> Iterator[Row]:
    """Table 4 of the paper; ours by blind readers."""
    for rival, title in (("lm", "LM"), ("s2s", "S2S")):
        record, where = results.get(f"human/{rival}") or {}, f"human/{rival}"
        for key, side, name in ((rival, "rival", title), (f"slds-vs-{rival}", "slds", f"SLDS, against {title}")):
            coherence, _, best = read_toml("paper")["human"][key]
            values = [record.get(figure, {}).get(side) for figure in ("coherence", "best")]
            agreement = DASH if side == "slds" else Figure(value=record.get("agreement"), record=where)
            cells = (Figure(value=values[0], paper=coherence, record=where),
                     Figure(value=values[1], paper=best, record=where, digits=1), agreement)  # fmt: skip
            yield Row((name,), cells)


def errors(results: Results) -> Iterator[Row]:
    """Appendix B of the paper; ours by blind readers."""
    ours = (results.get("human/errors") or {}).get("errors", {})
    for (name, (cases, of)), key in zip(read_toml("paper")["errors"].items(), ERRORS, strict=True):
        yield Row((f"{name}, of {of}",), (Figure(value=ours.get(key), paper=cases, record="human/errors", digits=1),))


def middle(results: Results) -> Iterator[Row]:
    """Variety of the middle three sentences that readers compare."""
    titles = {HUMAN: "people"} | {f"{s.name}.{protocol(s)}": results.title(s) for s in SYSTEMS if s.name in COMPARED}
    for name, title in titles.items():
        prose = results.get(f"prose/{name}") or {}
        yield Row((title,), (Figure(value=prose.get("distinct_2"), record=f"prose/{name}", digits=3),))


def seeds(results: Results) -> Iterator[Row]:
    """Every training by itself: how it ended, and its figures on the test split."""
    for system in SYSTEMS:
        record = results.get(f"train/{system.name}")
        if record is None:
            continue
        nll = "authors" if system.latent else "nll"
        measured, f1 = results.get(f"likelihood/{system.name}") or {}, results.get(f"control/{system.name}") or {}
        where = f"likelihood/{system.name}"
        cells = (
            Figure(value=record["valid_nll"], record=f"train/{system.name}", digits=1),
            Figure(value=measured.get("nll_story", {}).get(nll), record=where),
            Figure(value=measured.get("nll_story", {}).get("iw"), record=where) if system.latent else DASH,
            Figure(value=f1["vader"]["mean"], record=f"control/{system.name}", digits=1) if f1 else DASH,
        )
        yield Row((system.title, ended(record)), cells)


def ended(record: dict[str, Any]) -> str:
    """How a training ended, in a few words."""
    train, epochs, objective = record["settings"]["train"], record["epochs"], record["settings"].get("objective", {})
    gone = record.get("epochs_without_gain")
    patience = f", {gone} of {train['patience']} of patience" if gone is not None else ""
    words = {
        "given": "trained elsewhere",
        "patience": f"patience, epoch {record['best_epoch']} of {epochs} kept",
        "epochs": f"all {epochs} epochs of batch {train['batch']}, {train['keep']} kept",
        "time": f"the clock, after {epochs} epochs of batch {train['batch']}{patience}",
    }
    alpha = f"; alpha {objective['alpha']:g}" if 0 < objective.get("labelled", 1.0) < 1 else ""
    return words[record["stopped"]] + alpha


MAKERS: tuple[Callable[[Results], Iterable[Row]], ...] = (
    infilling, perplexity, control, human, errors, middle, seeds,
)  # fmt: skip


def all_tables(results: Results) -> list[Table]:
    """Every table that has a row, in the order of the report."""
    tables = []
    for make in MAKERS:
        head = read_toml("tables")[make.__name__]
        columns = [name.format(runs=results.scale.runs) for name in head["columns"]]
        tables.append(Table(**head | {"columns": columns}, rows=list(make(results))))
    return [table for table in tables if table.rows]
