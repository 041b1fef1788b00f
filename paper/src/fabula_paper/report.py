"""The report made from the records: README.md for everybody, report.md with all tables, index.html with pictures."""

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

from fabula.errors import UserError, file_errors
from fabula.models.io import write_file
from fabula_paper.bench import english
from fabula_paper.claims import finding, summary, verdicts
from fabula_paper.figures import Results
from fabula_paper.plan import BY_NAME, COMPARED, FULL, MIDDLE, SMALL, Scale, protocol, read_toml
from fabula_paper.readers import outcome
from fabula_paper.records import Records
from fabula_paper.tables import Table, all_tables

PAGES = ("README.md", "report.md", "index.html")


class Report:
    """What the templates show of all records that are there."""

    def __init__(self, records: Records, scale: Scale) -> None:
        results = Results(records, scale)
        self.scale, self.tables, self.summary = scale, all_tables(results), summary(results)
        self.finding, self.claims = finding(results), verdicts(results)
        self.stories = first_stories(records, scale)
        self.units = [record for name in records.names() if (record := results.get(name)) is not None]

    @property
    def limits(self) -> list[str]:
        """The limits of claims.toml, and those that the records show."""
        dirty = sum(str(unit.get("commit")).endswith("+") for unit in self.units)
        limits = list(read_toml("claims")["limits"])
        limits += [f"{dirty} records were made with uncommitted changes in the code."] if dirty else []
        mixed = ", ".join(mixed_weights(self.units))
        return limits + ([f"Records of different weights stand side by side for: {mixed}."] if mixed else [])

    @property
    def sections(self) -> list[tuple[str, list[Table]]]:
        return [(name, list(tables)) for name, tables in groupby(self.tables, lambda table: table.section)]

    @property
    def facts(self) -> dict[str, str]:
        """Where the figures come from."""

        def values(key: str) -> str:
            counts = Counter(str(unit[key]) for unit in self.units if unit.get(key) is not None)
            return ", ".join(f"{value} ({count})" for value, count in counts.most_common()) or "–"

        return {
            "records": f"{len(self.units):,}",
            "commits (records)": values("commit"),
            "corpus hash (records)": values("data_hash"),
            "seeds of sampling (records)": values("seed"),
            "machines (records)": values("device"),
            "time of all units": f"{sum(float(unit.get('seconds', 0.0)) for unit in self.units) / 60:,.0f} minutes",
        }


def mixed_weights(units: list[dict[str, Any]]) -> list[str]:
    """Systems whose records come from different weights."""
    weights = {(unit["system"], unit["weights"]) for unit in units if unit.get("weights")}
    counts = Counter(name for name, _ in weights)
    return sorted(BY_NAME[name].title for name, count in counts.items() if count > 1)


def first_stories(records: Records, scale: Scale) -> dict[str, list[tuple[str, list[str]]]]:
    """The first filled-in stories of the systems that readers compare, without the given sentences."""
    shown: dict[str, list[tuple[str, list[str]]]] = {}
    for system in (BY_NAME[name] for name in COMPARED):
        for text in records.shown(f"sample/{system.name}.{MIDDLE}.{protocol(system)}")[: scale.shown]:
            lines = ["[given]", *(english(line) for line in text["lines"]), "[given]"]
            shown.setdefault(system.title, []).append((text["id"], lines))
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
    for name, content in render(Report(records, scale)).items():
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
    report = Report(records, scale_of(records))
    cells = [f for table in report.tables for row in table.rows for f in row.figures if f.value is not None]
    wrong = [f"a cell names no record: {figure}" for figure in cells if records.read(figure.record) is None]
    for name, content in render(report).items():
        with file_errors(f"{folder / name} cannot be read", field="out"):
            published = (folder / name).read_text(encoding="utf-8")
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
        for lexicon in ("vader", "afinn"):
            yield f"{lexicon}.mean", record[lexicon]["mean"], float(np.mean(record[lexicon]["f1"]))
    elif stage == "human" and "pairs" in record:
        for side, share in outcome(record["pairs"])["best"].items():
            yield f"best.{side}", record["best"][side], share
