"""A prepared folder appears whole or not at all: written beside its place, where a killed run goes on, then renamed."""

import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fabula.corpus.dataset import MANIFEST
from fabula.errors import UserError


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


_ASIDE, _LOCK = "-old.tmp", ".lock"


def _temporary_prefix(target: Path) -> str:
    return f".{target.name}.{socket.gethostname()}-"


def _temporary_name(target: Path, ending: str) -> str:
    return f"{_temporary_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}{ending}"


@contextmanager
def work_folder(target: Path, job: Mapping[str, Any], force: bool) -> Iterator[Path]:
    """A folder beside the target, for one run at a time, which the next run of the same job finds again after a kill.

    At the end it is gone, and so are parents that were made for it alone. Where the run is stopped or cannot write it
    stays, if it is worth keeping; such a folder of another job is cleared with `force` only.
    """
    import fcntl  # not to be had everywhere, and only needed here

    made: list[Path] = []
    folder = target.parent / f".{target.name}.unfinished"
    try:
        for parent in reversed([parent for parent in target.parents if not parent.exists()]):
            parent.mkdir()
            made.append(parent)
        _remove_leftovers(target)
        folder.mkdir(exist_ok=True)
        with (folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"another run is preparing {target}", field="out") from None
            _claim(folder, target, job, force)
            try:
                yield folder
            except BaseException as error:
                if isinstance(error, UserError) or not _is_worth_keeping(folder):
                    _discard(folder, target)
                raise
            _discard(folder, target)
    finally:
        if not target.exists():
            for parent in reversed(made):
                with suppress(OSError):
                    parent.rmdir()


def _is_worth_keeping(folder: Path) -> bool:
    """More than one piece of a split: what is less is soon made again."""
    return any(folder.glob("*-000001.npz"))


def _claim(folder: Path, target: Path, job: Mapping[str, Any], force: bool) -> None:
    """Go on with what an earlier run of the same job has done, or begin anew."""
    record = folder / "job.json"
    try:
        earlier = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = {}
    asked = json.loads(json.dumps(job))
    other = [key for key in asked if earlier.get(key) != asked[key]]
    if not other:
        return
    if _is_worth_keeping(folder) and not force:
        raise UserError(
            f"{target} was begun with another {', '.join(other)} and not finished: go on with the same, or begin anew "
            "with --force", field="out",
        )  # fmt: skip
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()
    write_whole(record, json.dumps(asked, ensure_ascii=False, indent=1).encode())


def _discard(folder: Path, target: Path) -> None:
    trash = folder.with_name(_temporary_name(target, ".tmp"))
    folder.rename(trash)  # at once, or another run could find half of it
    shutil.rmtree(trash, ignore_errors=True)


@contextmanager
def faults_of(target: Path) -> Iterator[None]:
    """A full disk, a folder that may not be written to: the user's to mend, so one line that names the target."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}", field="out") from error


def _remove_leftovers(target: Path) -> None:
    """Clear away what a preparation of the same target left behind when it was killed on this machine."""
    prefix = _temporary_prefix(target)
    for folder in target.parent.iterdir():
        if folder.name.startswith(prefix) and folder.name.endswith(".tmp"):
            process = folder.name.removeprefix(prefix).split("-")[0]
            only_copy = folder.name.endswith(_ASIDE) and not target.exists()  # killed between two renames
            if process.isdigit() and not _is_running(int(process)) and not only_copy:
                shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs, as somebody else's
        pass
    return True


def write(path: Path, content: bytes) -> None:
    """Down to the disk: a full one must say so before the folder is moved into place."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """All of it or nothing: a temporary file, flushed to the disk, then renamed."""
    temporary = path.with_name(f".{path.name}.tmp")
    write(temporary, content)
    os.replace(temporary, path)


def move_into_place(folder: Path, target: Path) -> None:
    """Rename; a corpus that is to be replaced steps aside first and comes back if the rename fails."""
    if not target.exists():
        folder.rename(target)
        return
    aside = target.with_name(_temporary_name(target, _ASIDE))
    target.rename(aside)
    try:
        folder.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
