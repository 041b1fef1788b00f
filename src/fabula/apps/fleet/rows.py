"""Rows from files as a stream: JSON lines or CSV. A row that cannot be read is an item that says why.

Memory is a row, however long the file is.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from fabula.errors import UserError
from fabula.sampling.many import Item, checked

LONGEST = 2 << 20
"""Characters of a line. The longest story that is accepted has about one million bytes; the rest is another line."""


def check_files(files: Sequence[Path]) -> None:
    """Raise a UserError where a file is missing or of an unknown format."""
    for path in files:
        if path.suffix.lower() not in READERS:
            raise UserError(f"{path}: rows come in .jsonl or .csv", field="files")
        if not path.is_file():
            raise UserError(f"{path} is not a file", field="files")


def fingerprint(path: Path) -> dict[str, Any]:
    """Enough to tell a changed input from the same one, without reading all of it."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        digest = hashlib.blake2b(stream.read(1 << 20), digest_size=16)
        stream.seek(max(0, size - (1 << 20)))
        digest.update(stream.read())
    return {"name": path.name, "bytes": size, "ends": digest.hexdigest()}


def estimated_rows(path: Path) -> int:
    """About how many rows a file has, by the lines at its beginning."""
    with path.open("rb") as stream:
        beginning = stream.read(4 << 20)
    return round(beginning.count(b"\n") * path.stat().st_size / max(1, len(beginning)))


def read_items(files: Sequence[Path], id_column: str | None = None) -> Iterator[Item]:
    """Every row of the files, numbered through from 1; a row without an id is called by its number."""
    rows = (row for path in files for row in READERS[path.suffix.lower()](path))
    for number, row in enumerate(rows, start=1):
        if isinstance(row, UserError):
            yield Item(number, None, None, str(row))
        elif isinstance(row, dict) and id_column is not None and id_column not in row:
            yield Item(number, None, None, f"no column {id_column!r} for the id")
        elif isinstance(row, dict):  # the columns of ROCStories are storyid and storytitle
            known = {"id" if name == "storyid" else name: row[name] for name in row if name != "storytitle"}
            if id_column is not None:
                known.pop(id_column, None)
                known["id"] = row[id_column]
            yield checked(number, known)
        else:
            yield checked(number, row)


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file. A byte that is not UTF-8 becomes half a character, which `str.encode` refuses."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        while line := stream.readline(LONGEST):
            yield line


def _read_jsonl(path: Path) -> Iterator[Any]:
    """The value of every line, or what is wrong with it."""
    for line in filter(str.strip, _lines(path)):
        try:
            line.encode()
            yield json.loads(line)
        except UnicodeEncodeError:
            yield UserError("not valid UTF-8")
        except (ValueError, RecursionError) as error:
            yield UserError(f"not valid JSON: {str(error)[:200]}")


def _read_csv(path: Path) -> Iterator[dict[str, Any] | UserError]:
    """Columns id, sentence1 ... sentenceN (empty where missing) or `sentences` as a JSON list, and those of a row.

    Between commas, semicolons or tabs, whichever the header has most of.
    """
    csv.field_size_limit(LONGEST)
    lines = _lines(path)
    header = next(lines, "")
    delimiter = max(",;\t", key=header.count)  # of equal counts the comma
    reader = csv.DictReader(chain([header], lines), strict=True, delimiter=delimiter)
    names = [name.strip() for name in reader.fieldnames or ()]
    if len(set(names)) < len(names):
        yield UserError("the header names a column twice")
        return
    while True:
        try:
            cells = next(reader)
            if None in cells or None in cells.values():
                yield UserError(f"not the {len(reader.fieldnames or ())} cells of the header")
                continue
            "".join(cells.values()).encode()
            yield _row(cells)
        except StopIteration:
            return
        except UnicodeEncodeError:
            yield UserError("not valid UTF-8")
        except csv.Error as error:
            yield UserError(f"not valid CSV: {error}")


def _row(cells: dict[str, str]) -> dict[str, Any]:
    """The row of these cells: sentence1 ... sentenceN make `sentences`, and text that holds JSON is read as such."""
    named = {name.strip(): cell for name, cell in cells.items()}
    columns = [name for name in named if name.lower().startswith("sentence") and name[8:].isdecimal()]
    row: dict[str, Any] = {name: cell for name, cell in named.items() if cell and name not in columns}
    if columns:
        row["sentences"] = [named[name] if named[name].strip() else None for name in columns]
    for name in ("sentences", "starts", "people", "notes", "voice", "settings", "candidates", "seed"):
        if isinstance(row.get(name), str):
            with suppress(ValueError, RecursionError):  # reported when the row is checked: the type is wrong
                row[name] = json.loads(row[name])
    return row


READERS = {".jsonl": _read_jsonl, ".ndjson": _read_jsonl, ".json": _read_jsonl, ".csv": _read_csv}
