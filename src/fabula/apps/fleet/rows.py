"""Rows from files as a stream: JSON lines or CSV. A row that cannot be read is an item that says why.

Memory is a line, however long the file is.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from fabula.errors import UserError
from fabula.sampling.many import Item, checked

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}
LINE_BYTES = 2 << 20
"""Of a line of JSON or CSV. The longest story that is accepted has about one million bytes."""


def format_of(path: Path) -> str:
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise UserError(f"{path}: rows come in .jsonl or .csv", field="files") from None


def check_files(files: Sequence[Path]) -> None:
    """Raise a UserError where a file is missing or of an unknown format."""
    for path in files:
        format_of(path)
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


class Broken(NamedTuple):
    """A row that cannot be read."""

    error: str
    id: Any = None


def read_items(files: Sequence[Path], id_column: str | None = None, unique: bool = False) -> Iterator[Item]:
    """Every row of the files, numbered through from 1; a row without an id is called by its number.

    If ids are to be `unique`, one that came before is an error of the later row.
    """
    rows = (row for path in files for row in READERS[format_of(path)](path))
    items = (_numbered(number, row, id_column) for number, row in enumerate(rows, start=1))
    return _first_of_each_id(items) if unique else items


def _numbered(number: int, row: Any, id_column: str | None) -> Item:
    """A row in its place, by the names that `fill` has: the columns of ROCStories are storyid and storytitle."""
    if isinstance(row, Broken):
        return Item(number, row.id, None, row.error)
    if isinstance(row, dict):
        row = {("id" if name == "storyid" else name): row[name] for name in row if name != "storytitle"}
        if id_column is not None and id_column not in row:
            return Item(number, None, None, f"no column {id_column!r} for the id")
        if id_column is not None:
            row["id"] = row.pop(id_column)
    return checked(number, row)


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """Lines of at most `LINE_BYTES`; None in place of a longer one."""
    while line := stream.readline(LINE_BYTES):
        if len(line) == LINE_BYTES and not line.endswith(b"\n"):
            while (part := stream.readline(LINE_BYTES)) and not part.endswith(b"\n"):
                pass
            yield None
        else:
            yield line


def _read_jsonl(path: Path) -> Iterator[Any]:
    with path.open("rb") as stream:
        for number, line in enumerate(_lines(stream)):
            if line is None:
                yield Broken(f"the row has more than {LINE_BYTES:,} bytes")
                continue
            if not line.strip():
                continue
            try:
                yield json.loads(line.decode("utf-8-sig" if number == 0 else "utf-8"))
            except UnicodeDecodeError as error:
                yield Broken(f"not valid UTF-8 at byte {error.start + 1} of the row", _id_of(line))
            except (ValueError, RecursionError) as error:
                yield Broken(f"not valid JSON: {str(error)[:200]}")


def _id_of(line: bytes) -> Any:
    """The id of a row that is not valid UTF-8, if it can be read."""
    try:
        id = json.loads(line.decode("utf-8", errors="replace"))["id"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return None if "\ufffd" in str(id) else id


def _read_csv(path: Path) -> Iterator[Any]:
    """Columns id, sentence1 ... sentenceN (empty where missing) or `sentences` as a JSON list, and those of a row.

    Between commas, semicolons or tabs, whichever the header has most of.
    """
    csv.field_size_limit(LINE_BYTES)
    with path.open("rb") as stream:
        texts = (
            ("" if line is None else line.decode("utf-8-sig" if n == 0 else "utf-8", errors="surrogateescape"))
            for n, line in enumerate(_lines(stream))
        )
        first = next(texts, "")
        delimiter = max(",;\t", key=first.count)  # of equal counts the comma
        reader = csv.reader(chain([first], texts), strict=True, delimiter=delimiter)
        header: list[str] | None = None
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield Broken(f"not valid CSV: {error}")
                continue
            if header is None:
                header = [name.strip() for name in cells]
            elif cells and len(cells) == len(header):
                yield _item(header, cells)
            elif cells:
                yield Broken(f"{len(cells)} cells under {len(header)} columns")


def _item(names: Sequence[str], cells: Sequence[str]) -> dict[str, Any] | Broken:
    """The row of these cells: sentence1 ... sentenceN make `sentences`, and text that holds JSON is read as such."""
    row: dict[str, Any] = {}
    sentences = []
    for name, cell in zip(names, cells, strict=True):
        try:
            content = cell.encode("utf-8", "surrogateescape").decode() or None
        except UnicodeDecodeError:
            return Broken(f"not valid UTF-8 in column {name}", row.get("id"))
        if name.lower().startswith("sentence") and name[8:].isdecimal():
            sentences.append(None if content is None or not content.strip() else content)
        elif content is not None:
            row[name] = content
    if sentences:
        row["sentences"] = sentences
    for name in ("sentences", "starts", "people", "notes", "voice", "settings", "candidates", "seed"):
        if isinstance(row.get(name), str):
            with suppress(ValueError, RecursionError):  # reported when the row is checked: the type is wrong
                row[name] = json.loads(row[name])
    return row


READERS = {"jsonl": _read_jsonl, "csv": _read_csv}


def _first_of_each_id(items: Iterable[Item]) -> Iterator[Item]:
    """Ids in a file of SQLite's that is gone when it is closed: in memory they would grow with the input."""
    with closing(sqlite3.connect("", isolation_level=None)) as ids:
        ids.execute("PRAGMA journal_mode = OFF")
        ids.execute("CREATE TABLE ids (id BLOB PRIMARY KEY, row INTEGER) WITHOUT ROWID")
        ids.execute("BEGIN")
        for item in items:
            key = hashlib.blake2b(str(item.id).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if item.row is None or ids.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (key, item.number)).rowcount:
                yield item
            else:
                first = ids.execute("SELECT row FROM ids WHERE id = ?", (key,)).fetchone()[0]
                yield item.wrong(f"the id stands already in row {first}")
