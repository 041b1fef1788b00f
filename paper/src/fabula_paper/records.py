"""Record files: one JSON for each unit, written whole or not at all, and the texts that belong to it.

    REPORT/records/<stage>/<system>[.<detail>].json     figures, with commit, recipe, seed, n, data hash, kind
    REPORT/texts/<stage>/<system>[.<detail>].jsonl      what was written, by story ids; never a sentence of the corpus
    REPORT/runs/<system>/                               checkpoints; they stay on the machine that trained them
    REPORT/records.jsonl.xz                             all records in one file, a line each (`fabula reproduce --pack`)

A unit is done when its record is there and its texts are what the record says. Folders of several machines are merged
by copying their files together; a record that has a file of its own goes before the packed one.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fabula.corpus.folder import write_errors_for_user
from fabula.errors import UserError, file_errors
from fabula.metrics.record import commit
from fabula.models.io import write_file
from fabula_paper.plan import MIDDLE

COMMIT_VARIABLE = "FABULA_COMMIT"
"""Names the commit on a machine that has the code but no repository."""


@lru_cache(maxsize=1)
def _unpacked(archive: Path, written: int) -> dict[str, dict[str, Any]]:
    """The records of a packed file as it was `written` (nanoseconds)."""
    try:
        lines = lzma.decompress(archive.read_bytes()).decode("utf-8").splitlines()
        return {record["unit"]: record for record in map(json.loads, lines)}
    except (OSError, ValueError, KeyError, TypeError, lzma.LZMAError) as error:
        raise UserError(f"{archive} is damaged: {error}") from error


@dataclass(frozen=True)
class Records:
    """The record and text files below one report folder."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / "records" / f"{name}.json"

    def texts_path(self, name: str) -> Path:
        return self.folder / "texts" / f"{name}.jsonl"

    def read(self, name: str) -> dict[str, Any] | None:
        """A unit's record; None where it is not done."""
        path = self.path(name)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return self.packed.get(name)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} is damaged: {error}; delete it to do its unit again") from error
        if not isinstance(record, dict) or record.get("unit") != name:
            raise UserError(f"{path} is not the record of {name}; delete it to do its unit again")
        return record

    @property
    def archive(self) -> Path:
        return self.folder / "records.jsonl.xz"

    @property
    def packed(self) -> dict[str, dict[str, Any]]:
        """The records of the packed file, by their units; read again where another call has packed."""
        written = self.archive.stat().st_mtime_ns if self.archive.exists() else 0
        return _unpacked(self.archive, written) if written else {}

    def pack(self, shown: int) -> int:
        """Move every record into the packed file, with the first `shown` texts of the middle-three samples."""
        records = [dict(self.read(name) or {}) for name in self.names()]
        for record in records:
            name = record["unit"]
            if name.startswith("sample/"):
                texts = self.texts(name) if self.done(name) else record.pop("shown", [])
                record |= {"shown": texts[:shown]} if f".{MIDDLE}." in name else {}
            if name.startswith("likelihood/"):  # a hundredth of a nat per story: the means keep their digits
                record["stories"] = {key: rounded_list(values, 2) for key, values in record["stories"].items()}
        lines = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
        self._put(self.archive, lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME))
        for path in (self.folder / "records").glob("*/*.json"):
            path.unlink()
        return len(records)

    def shown(self, name: str) -> list[dict[str, Any]]:
        """The texts of a unit, or the first of them that were packed with its record."""
        return self.texts(name) if self.texts_path(name).exists() else (self.read(name) or {}).get("shown", [])

    def done(self, name: str) -> bool:
        """Whether the record is there, and with it the texts that it names."""
        record = self.read(name)
        return record is not None and ("texts_sha256" not in record or self.texts_path(name).exists())

    def write(self, name: str, record: dict[str, Any], texts: Iterable[dict[str, Any]] | None = None) -> None:
        """Write the texts, then the record, so that a record never stands without its texts."""
        content = {"unit": name, **record, "commit": os.environ.get(COMMIT_VARIABLE) or commit()}
        if texts is not None:
            lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in texts).encode()
            content["texts_sha256"] = hashlib.sha256(lines).hexdigest()
            self._put(self.texts_path(name), lines)
        self._put(self.path(name), (json.dumps(content, ensure_ascii=False) + "\n").encode())

    def texts(self, name: str) -> list[dict[str, Any]]:
        """What a unit wrote, checked against the digest in its record."""
        record = self.read(name)
        path = self.texts_path(name)
        with file_errors(f"{path} cannot be read"):
            content = path.read_bytes()
        if record is None or hashlib.sha256(content).hexdigest() != record.get("texts_sha256"):
            raise UserError(f"{path} is not what its record says; delete the record to do {name} again")
        return [json.loads(line) for line in content.decode("utf-8").splitlines()]

    def names(self) -> list[str]:
        """Every unit that has a record."""
        base = self.folder / "records"
        single = {path.relative_to(base).as_posix().removesuffix(".json") for path in base.glob("*/*.json")}
        return sorted(single | set(self.packed))

    def _put(self, path: Path, content: bytes) -> None:
        with write_errors_for_user(self.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)


def rounded_list(values: Iterable[float], digits: int = 3) -> list[float]:
    """An array for a record."""
    return [round(float(value), digits) for value in values]
