"""The output folder: numbered shards that appear whole or not at all, and a manifest.

    DIR/manifest.json          settings, model hash, input, counts; `finished` when every row has its result
    DIR/part-000000.jsonl      results of the first chunk of rows, in the order of the input
    DIR/part-000032.jsonl      those of the chunk that has 32 rows before it

A shard is written under another name, flushed to the disk and renamed. So a file with a shard's name is complete, and a
run that was killed anywhere goes on with the chunks that have none.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fabula.corpus.folder import write, write_errors_for_user, write_whole
from fabula.errors import UserError
from fabula.sampling.many import FilledRow

MANIFEST, LOCK = "manifest.json", ".lock"


class Shard(NamedTuple):
    """What there is to say of a shard that was written."""

    rows: int
    errors: int
    first_error: str = ""
    """What is wrong with the first row that failed."""


def write_shard(path: Path, rows: Sequence[FilledRow]) -> Shard:
    """Write results beside their place: whoever holds the folder renames them (`Output.keep`)."""
    results = [row.to_dict() for row in rows]
    data = "".join(json.dumps(result, ensure_ascii=False) + "\n" for result in results).encode("utf-8", "replace")
    with write_errors_for_user(path):
        write(_beside(path), data)
    wrong = [f"row {row.row}: {row.error}" for row in rows if row.error is not None]
    return Shard(len(results), len(wrong), wrong[0][:1000] if wrong else "")


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


class Output:
    """The folder of one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: dict[int, tuple[int, int]] = {}
        """Rows and errors of each shard that is done, by the number of rows before it."""

    def path(self, number: int) -> Path:
        return self.folder / f"part-{number:06d}.jsonl"

    @contextmanager
    def opened(self, job: Mapping[str, Any]) -> Iterator[None]:
        """Lock the folder for this process, and find the shards of an earlier run of the same job."""
        with write_errors_for_user(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / LOCK).open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"another run is writing into {self.folder}", field="out") from None
            self._resume(job)
            yield

    def _resume(self, job: Mapping[str, Any]) -> None:
        path = self.folder / MANIFEST
        if not path.exists():
            others = [file.name for file in self.folder.iterdir() if not file.name.startswith(".")]
            if others:
                raise UserError(f"{self.folder} is neither empty nor the folder of a job: {others[0]}", field="out")
            self.describe(job, finished=False)
            return
        try:
            earlier = json.loads(path.read_text(encoding="utf-8"))["job"]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is damaged: {error}", field="out") from error
        changed = [key for key in {**earlier, **job} if earlier.get(key) != json.loads(json.dumps(job.get(key)))]
        if changed:
            message = f"{self.folder} holds a job with another {', '.join(changed)}"
            raise UserError(f"{message}; go on with the same, or choose another folder", field="out")
        for file in self.folder.glob("part-*.jsonl"):
            failed = [result.get("error") is not None for result in read_shard(file)]
            self.counts[_number_of(file)] = (len(failed), sum(failed))
        for unfinished in self.folder.glob("*.tmp"):
            unfinished.unlink()

    def keep(self, number: int, shard: Shard) -> None:
        """Put a shard that `write_shard` has written into its place."""
        with write_errors_for_user(self.path(number)):
            os.replace(_beside(self.path(number)), self.path(number))
        self.counts[number] = (shard.rows, shard.errors)

    def describe(self, job: Mapping[str, Any], finished: bool, **more: Any) -> dict[str, Any]:
        """Write the manifest."""
        rows, errors = sum(rows for rows, _ in self.counts.values()), sum(errors for _, errors in self.counts.values())
        counts = {"rows": rows, "errors": errors, "shards": len(self.counts)}
        manifest = {"finished": finished, **counts, "job": dict(job), **more}
        with write_errors_for_user(self.folder / MANIFEST):
            write_whole(self.folder / MANIFEST, (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode())
        return manifest


def _number_of(path: Path) -> int:
    return int(path.stem.removeprefix("part-"))


def read_shard(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as stream:
        yield from map(json.loads, stream)


def read_results(folder: Path) -> Iterator[dict[str, Any]]:
    """The results of a job in the order of the input."""
    for path in sorted(folder.glob("part-*"), key=_number_of):
        yield from read_shard(path)
