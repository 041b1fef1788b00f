"""A finished report: its records packed into one file, and its pages written again from them."""

from __future__ import annotations

from pathlib import Path

from fabula.errors import UserError
from fabula.reproduce import markdown, page
from fabula.reproduce.plan import FULL, SMALL, Scale
from fabula.reproduce.records import Records
from fabula.reproduce.report import build
from fabula.training.checkpoint import write_file


def scale_of(records: Records) -> Scale:
    """The scale that the records were made at."""
    names = records.names()
    if not names:
        raise UserError(f"{records.folder} holds no records of fabula reproduce", field="out")
    found = {(records.read(name) or {}).get("scale", FULL.name) for name in names}
    return SMALL if found == {SMALL.name} else FULL


def pages(folder: Path) -> dict[str, bytes]:
    """index.html and report.md as the records make them; no sentence of the corpus is in them."""
    records = Records(folder)
    report = build(records, scale_of(records))
    return {"index.html": page.render(report).encode(), "report.md": markdown.render(report).encode()}


def pack(folder: Path) -> int:
    """All records into one file, and the pages again from it."""
    records = Records(folder)
    count = records.pack(scale_of(records).shown)
    for name, content in pages(folder).items():
        write_file(folder / name, content)
    return count
