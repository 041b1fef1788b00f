"""The report: claims, tables, pictures and stories made from the records, as index.html and report.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from fabula.errors import UserError
from fabula.models.io import write_file
from fabula_paper.claims import Verdict, claims_file, verdicts
from fabula_paper.figures import Results
from fabula_paper.plan import BY_NAME, FULL, MIDDLE, SMALL, SYSTEMS, Scale, samplers_of
from fabula_paper.records import Records
from fabula_paper.stories import english
from fabula_paper.tables import SAMPLER_NAMES, Table, all_tables

PAGES = ("index.html", "report.md")


@dataclass(frozen=True)
class Report:
    """What the templates show."""

    scale: Scale
    facts: dict[str, str]
    claims: list[Verdict]
    tables: list[Table]
    trainings: list[dict[str, Any]]
    stories: dict[str, list[tuple[str, list[str]]]]
    """By system and sampler: id and sentences of the first stories."""
    units: list[dict[str, Any]]
    mixed: list[str]
    """Systems whose records come from different weights."""
    limits: tuple[str, ...] = tuple(claims_file()["limits"])

    @property
    def sections(self) -> list[tuple[str, list[Table]]]:
        return [(name, list(tables)) for name, tables in groupby(self.tables, lambda table: table.section)]


def build(records: Records, scale: Scale) -> Report:
    """The report of all records that are there."""
    results = Results(records, scale)
    units = [record for name in records.names() if (record := results.get(name)) is not None]
    return Report(
        scale=scale,
        facts=facts(units),
        claims=verdicts(results),
        tables=all_tables(results),
        trainings=[training(results, r) for s in SYSTEMS if (r := results.get(f"train/{s.name}")) is not None],
        stories=first_stories(records, scale),
        units=units,
        mixed=mixed_weights(units),
    )


def facts(units: list[dict[str, Any]]) -> dict[str, str]:
    """Where the figures come from."""

    def values(key: str) -> str:
        counts = Counter(str(unit[key]) for unit in units if unit.get(key) is not None)
        return ", ".join(f"{value} ({count})" for value, count in counts.most_common()) or "–"

    return {
        "records": f"{len(units):,}",
        "commits (records)": values("commit"),
        "corpus hash (records)": values("data_hash"),
        "seeds of sampling (records)": values("seed"),
        "machines (records)": values("device"),
        "time of all units": f"{sum(float(unit.get('seconds', 0.0)) for unit in units) / 60:,.0f} minutes",
    }


def training(results: Results, record: dict[str, Any]) -> dict[str, Any]:
    """One training as a table row."""
    is_given, nll = record["stopped"] == "given", record["valid_nll"]
    changes = ", ".join(f"{key} = {value}" for key, value in record["changes"].items())
    title = results.title(BY_NAME[record["system"]])
    return {
        "system": title,
        "cells": {
            "epochs": record["epochs"], "epoch kept": record["best_epoch"],
            "nats a story, validation": "–" if nll is None else f"{nll:.1f}",
            "ended by": "not trained here" if is_given else record["stopped"],
            "parameters": f"{record['parameters']:,}",
            "seconds": "–" if is_given else f"{record['train_seconds']:.0f}", "changes of the recipe": changes or "–",
        },
    }  # fmt: skip


def mixed_weights(units: list[dict[str, Any]]) -> list[str]:
    """Systems whose records come from different weights."""
    weights: dict[str, set[str]] = {}
    for unit in units:
        if unit.get("weights") and unit["stage"] != "lookahead":
            weights.setdefault(unit["system"], set()).add(unit["weights"])
    return sorted(BY_NAME[name].title for name, digests in weights.items() if len(digests) > 1)


def first_stories(records: Records, scale: Scale) -> dict[str, list[tuple[str, list[str]]]]:
    """The first filled-in stories of every system and sampler, without the given sentences."""
    shown: dict[str, list[tuple[str, list[str]]]] = {}
    for system in (s for s in SYSTEMS if "sample" in s.stages):
        for sampler in samplers_of(system):
            title = f"{system.title}, {SAMPLER_NAMES[sampler]}"
            for text in records.shown(f"sample/{system.name}.{MIDDLE}.{sampler}")[: scale.shown]:
                lines = ["[given]", *(english(line) for line in text["lines"]), "[given]"]
                shown.setdefault(title, []).append((text["id"], lines))
    return shown


def render(report: Report) -> dict[str, bytes]:
    """The pages by their names."""
    environment = Environment(
        loader=PackageLoader("fabula_paper"), autoescape=lambda name: name is not None and "html" in name,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    return {name: environment.get_template(f"{name}.j2").render(report=report).encode() for name in PAGES}


def scale_of(records: Records) -> Scale:
    """The scale at which the records were made."""
    names = records.names()
    if not names:
        raise UserError(f"{records.folder} holds no records of fabula reproduce", field="out")
    scales = {(records.read(name) or {}).get("scale", FULL.name) for name in names}
    return SMALL if scales == {SMALL.name} else FULL


def write_pages(records: Records, scale: Scale) -> None:
    for name, content in render(build(records, scale)).items():
        write_file(records.folder / name, content)


def pack(folder: Path) -> int:
    """Put all records into one file and write the pages from it; returns the number of records."""
    records = Records(folder)
    scale = scale_of(records)
    count = records.pack(scale.shown)
    write_pages(records, scale)
    return count


@dataclass(frozen=True)
class Check:
    """What `check` compared, and every difference from what is published."""

    cells: int
    """Values of ours in the tables, each computed again from its record."""
    aggregates: int
    """Means in records that were computed again from the same record's stories."""
    wrong: tuple[str, ...]


def check(folder: Path) -> Check:
    """Compute every page, every cell and every recorded mean again, and compare."""
    records = Records(folder)
    report = build(records, scale_of(records))
    cells = [f for table in report.tables for row in table.rows for f in row.figures if f.value is not None]
    wrong = [f"a cell names no record: {figure}" for figure in cells if records.read(figure.record) is None]
    for name, content in render(report).items():
        try:
            published = (folder / name).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"{folder / name} cannot be read: {error.strerror}", field="out") from error
        wrong += different_lines(name, published, content.decode())
    aggregates = [(unit["unit"], *aggregate) for unit in report.units for aggregate in recomputed(unit)]
    for unit, what, recorded, made in aggregates:
        # The values of stories are rounded to three digits, the mean to four.
        if abs(recorded - made) > 6e-4 * max(1.0, abs(made) / 50):
            wrong.append(f"{unit}: {what} is {recorded} in the record, {made:.4f} by its stories")
    return Check(len(cells), len(aggregates), tuple(wrong))


def different_lines(name: str, published: str, made: str) -> list[str]:
    """The lines that differ."""
    old, new = published.splitlines(), made.splitlines()
    pairs = zip(old, new, strict=False)
    wrong = [f"{name}: {a[:160]!r} is published, the records make {b[:160]!r}" for a, b in pairs if a != b]
    return wrong + ([f"{name}: {len(old)} lines published, {len(new)} made"] if len(old) != len(new) else [])


def recomputed(record: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Every mean of a record that its stories give too: name, as recorded, as computed."""
    stage, stories = record["stage"], record.get("stories", {})
    if stage == "likelihood":
        tokens = float(np.sum(record["tokens"]))
        for name, values in stories.items():
            yield f"nll_story.{name}", record["nll_story"][name], float(np.mean(values))
            yield f"ppl.{name}", record["ppl"][name], math.exp(float(np.sum(values)) / tokens)
    elif stage == "bound":
        yield "nll_story", record["nll_story"], float(np.mean(stories["iw"]))
    elif stage == "control":
        for lexicon in ("vader", "afinn", "nrc"):
            yield f"{lexicon}.mean", record[lexicon]["mean"], float(np.mean(record[lexicon]["f1"]))
    elif stage == "lookahead":
        yield "log_p", record["log_p"], float(np.mean(stories))
    elif stage == "cloze":
        for part, values in record["correct"].items():
            yield part, record["accuracy"][part], float(np.mean(values))
