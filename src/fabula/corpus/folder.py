"""A prepared folder appears whole or not at all: written beside its place, where a killed run goes on, then renamed."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fabula.corpus.dataset import MANIFEST
from fabula.errors import UserError

LOCK, JOB, REPLACED = ".lock", "job.json", "replaced"
KEPT_PIECES = 10
"""An unfinished run is kept from so many pieces of a split on: less is soon made again."""


def check_target(out: Path, force: bool) -> Path:
    """The folder to appear; an existing one is replaced with `force` only, and only where it is a corpus or empty."""
    target = Path(os.path.abspath(out))
    if not (target.exists() or target.is_symlink()):
        return target
    if not target.is_dir():
        raise UserError(f"{out} exists and is not a folder", field="out")
    if not force:
        raise UserError(f"{out} exists: choose another folder, or replace it with --force", field="out")
    if any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise UserError(f"{out} is not a prepared corpus, so --force does not replace it", field="out")
    return target.resolve()


@contextmanager
def work_folder(target: Path, job: Mapping[str, Any], force: bool) -> Iterator[Path]:
    """A folder beside the target, for one run at a time, which the next run of the same job finds again after a kill.

    At the end it is gone, and so are parents that were made for it alone. Where the run is stopped or cannot write it
    stays, if it is worth keeping; such a folder of another job is cleared with `force` only.
    """
    import fcntl  # does not exist on every system, and is needed here only

    made = [parent for parent in target.parents if not parent.exists()]
    folder = target.parent / f".{target.name}.unfinished"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"another run is preparing {target}", field="out") from None
            if (folder / REPLACED).exists() and not target.exists():  # a run was killed between two renames
                (folder / REPLACED).rename(target)
                check_target(target, force)
            _claim(folder, target, job, force)
            try:
                yield folder
            except BaseException as error:
                if isinstance(error, UserError) or not _is_worth_keeping(folder):
                    _discard(folder)
                raise
            _discard(folder)
    finally:
        if not target.exists():
            for parent in made:
                with suppress(OSError):
                    parent.rmdir()


def _is_worth_keeping(folder: Path) -> bool:
    return any(folder.glob(f"*-{KEPT_PIECES - 1:06d}.npz"))


def _claim(folder: Path, target: Path, job: Mapping[str, Any], force: bool) -> None:
    """Go on with what an earlier run of the same job has done, or begin anew."""
    job = json.loads(json.dumps(job))
    try:
        earlier = json.loads((folder / JOB).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = {}
    different = [key for key in job if earlier.get(key) != job[key]]
    if not different:
        return
    if _is_worth_keeping(folder) and not force:
        raise UserError(
            f"{target} was begun with another {', '.join(different)} and not finished: go on with the same, or begin "
            "anew with --force", field="out",
        )  # fmt: skip
    _clear(folder)
    write_whole(folder / JOB, json.dumps(job, ensure_ascii=False, indent=1).encode())


def _clear(folder: Path) -> None:
    """Remove all but the lock; the pieces go before the job that they belong to."""
    for path in sorted(folder.iterdir(), reverse=True):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink()


def _discard(folder: Path) -> None:
    _clear(folder)
    (folder / LOCK).unlink()
    with suppress(OSError):  # another run has begun here
        folder.rmdir()


@contextmanager
def write_errors_for_user(target: Path) -> Iterator[None]:
    """Turn an OSError, such as a full disk or missing permission, into a `UserError` that names the target."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}", field="out") from error


def write(path: Path, content: bytes) -> None:
    """Write down to the disk: a full one must say so before the folder is moved into place."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Write all of it or nothing: a temporary file, flushed to the disk, then renamed."""
    temporary = path.with_name(f".{path.name}.tmp")
    write(temporary, content)
    os.replace(temporary, path)


def move_into_place(folder: Path, target: Path) -> None:
    """Rename; a corpus that is to be replaced steps aside first and comes back if the rename fails."""
    aside = folder.with_name(REPLACED)
    replacing = target.exists()
    if replacing:
        target.rename(aside)
    try:
        folder.rename(target)
    except BaseException:
        if replacing:
            aside.rename(target)
        raise
