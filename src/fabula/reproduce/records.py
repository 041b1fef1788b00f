"""Record files: one JSON for each unit, written whole or not at all, and the texts that belong to it.

    REPORT/records/<stage>/<system>[.<detail>].json     figures, with commit, recipe, seed, n, data hash, kind
    REPORT/texts/<stage>/<system>[.<detail>].jsonl      what was written, by story ids; never a sentence of the corpus
    REPORT/runs/<system>/                               checkpoints; they stay on the machine that trained them

A unit is done when its record is there and its texts are what the record says. Folders of several machines are merged
by copying their files together.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabula.errors import UserError
from fabula.evaluation.record import commit
from fabula.training.checkpoint import write_file

COMMIT_VARIABLE = "FABULA_COMMIT"
"""Names the commit on a machine that has the code but no repository."""


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
            return None
        except (OSError, ValueError) as error:
            raise UserError(f"{path} is damaged: {error}; delete it to do its unit again") from error
        if not isinstance(record, dict) or record.get("unit") != name:
            raise UserError(f"{path} is not the record of {name}; delete it to do its unit again")
        return record

    def done(self, name: str) -> bool:
        """Whether the record is there, and with it the texts that it names."""
        record = self.read(name)
        if record is None:
            return False
        return "texts_sha256" not in record or self.texts_path(name).exists()

    def write(self, name: str, record: dict[str, Any], texts: Iterable[dict[str, Any]] | None = None) -> None:
        """The texts first, then the record: whoever sees the record finds the texts."""
        content = {"unit": name, **record, "commit": this_commit()}
        if texts is not None:
            lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in texts).encode()
            content["texts_sha256"] = hashlib.sha256(lines).hexdigest()
            self._put(self.texts_path(name), lines)
        self._put(self.path(name), compact(content).encode())

    def texts(self, name: str) -> list[dict[str, Any]]:
        """What a unit wrote; texts that are not those of the record say so."""
        record = self.read(name)
        path = self.texts_path(name)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        if record is None or hashlib.sha256(content).hexdigest() != record.get("texts_sha256"):
            raise UserError(f"{path} is not what its record says; delete the record to do {name} again")
        return [json.loads(line) for line in content.decode("utf-8").splitlines()]

    def names(self) -> list[str]:
        """Every unit that is done."""
        base = self.folder / "records"
        found = (path.relative_to(base).as_posix().removesuffix(".json") for path in base.glob("*/*.json"))
        return sorted(name for name in found if self.done(name))

    def _put(self, path: Path, content: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write into {self.folder}: {error.strerror}", field="out") from error
        write_file(path, content)


def compact(content: dict[str, Any]) -> str:
    """A key a line; what belongs to it on the same line, so that arrays stay short."""

    def written(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ": "))

    lines = (f" {json.dumps(key)}: {written(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def this_commit() -> str:
    """The commit of this code: from the repository, or as the caller says."""
    return os.environ.get(COMMIT_VARIABLE) or commit()


def rounded_list(values: Iterable[float], digits: int = 3) -> list[float]:
    """An array for a record."""
    return [round(float(value), digits) for value in values]
