"""A finished report: its records packed into one file, its pages written again from them, and every cell checked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fabula.errors import UserError
from fabula.models.io import write_file
from fabula_paper import markdown, page
from fabula_paper.plan import FULL, SMALL, Scale
from fabula_paper.records import Records
from fabula_paper.report import Report, build


def scale_of(records: Records) -> Scale:
    """The scale that the records were made at."""
    names = records.names()
    if not names:
        raise UserError(f"{records.folder} holds no records of fabula reproduce", field="out")
    found = {(records.read(name) or {}).get("scale", FULL.name) for name in names}
    return SMALL if found == {SMALL.name} else FULL


def pages(folder: Path, report: Report | None = None) -> dict[str, bytes]:
    """index.html and report.md as the records make them; no sentence of the corpus is in them."""
    records = Records(folder)
    report = build(records, scale_of(records)) if report is None else report
    return {"index.html": page.render(report).encode(), "report.md": markdown.render(report).encode()}


def pack(folder: Path) -> int:
    """All records into one file, and the pages again from it."""
    records = Records(folder)
    count = records.pack(scale_of(records).shown)
    for name, content in pages(folder).items():
        write_file(folder / name, content)
    return count


@dataclass(frozen=True)
class Checked:
    """What `check` compared, and where it found something else than is published."""

    cells: int
    """Numbers of ours in the report's tables, each made again from its record."""
    aggregates: int
    """Figures in records that are means of the same record's stories."""
    wrong: tuple[str, ...]


def check(folder: Path) -> Checked:
    """Make every page and cell again from the records, and every recorded mean from its record's stories."""
    records = Records(folder)
    report = build(records, scale_of(records))
    figures = [
        figure for tables in report.tables.values() for table in tables for row in table.rows for figure in row.figures
    ]
    cells = [figure for figure in figures if figure.ours is not None]
    wrong = [f"a cell names no record: {figure}" for figure in cells if records.read(figure.record) is None]
    for name, content in pages(folder, report).items():
        try:
            published = (folder / name).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"{folder / name} cannot be read: {error.strerror}", field="out") from error
        wrong += different_lines(name, published, content.decode())
    aggregates = 0
    for unit in records.names():
        record = records.read(unit)
        assert record is not None
        for what, recorded, made in recomputed(record):
            aggregates += 1
            # The stories' figures are rounded to three digits, the mean to four.
            if abs(recorded - made) > 6e-4 * max(1.0, abs(made) / 50):
                wrong.append(f"{unit}: {what} is {recorded} in the record, {made:.4f} by its stories")
    return Checked(len(cells), aggregates, tuple(wrong))


def different_lines(name: str, published: str, made: str) -> list[str]:
    """Lines of a page that the records do not make, the pieces of the page's one long line apart."""
    old, new = (text.replace("<tr", "\n<tr").replace("<td", "\n<td").splitlines() for text in (published, made))
    found = [
        f"{name}: {a[:160]!r} is published, the records make {b[:160]!r}"
        for a, b in zip(old, new, strict=False)
        if a != b
    ]
    if len(old) != len(new):
        found.append(f"{name}: {len(old)} lines are published, the records make {len(new)}")
    return found


def recomputed(record: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """A record's own means beside those of its stories, where it holds both: what, as recorded, as made."""
    stage, stories = record["stage"], record.get("stories", {})
    if stage == "likelihood":
        tokens = float(np.sum(record["tokens"]))
        for name, values in stories.items():
            yield f"nll_story.{name}", record["nll_story"][name], float(np.mean(values))
            yield f"ppl.{name}", record["ppl"][name], math.exp(float(np.sum(values)) / tokens)
    elif stage == "bound":
        yield "nll_story", record["nll_story"], float(np.mean(stories["iw"]))
    elif stage == "control":
        for judge in ("vader", "afinn", "nrc"):
            yield f"{judge}.mean", record[judge]["mean"], float(np.mean(record[judge]["f1"]))
    elif stage == "lookahead":
        yield "log_p", record["log_p"], float(np.mean(stories))
    elif stage == "surprise":
        for part in ("", "written_"):
            made = math.exp(float(np.sum(stories[f"{part}nats"])) / float(np.sum(stories[f"{part}tokens"])))
            yield f"{part}ppl", record[f"{part}ppl"], made
    elif stage == "opinion":
        for judge, values in stories.items():
            yield f"mean.{judge}", record["mean"][judge], float(np.mean(values))
    elif stage == "cloze":
        for part, values in record["correct"].items():
            yield part, record["accuracy"][part], float(np.mean(values))
