"""A prepared folder appears whole or not at all: written beside its place, then renamed into it."""

import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


_ASIDE = "-old.tmp"


def _temporary_prefix(target: Path) -> str:
    return f".{target.name}.{socket.gethostname()}-"


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A new folder beside the target, gone at the end whatever happens; so are parents that were made for it alone."""
    made: list[Path] = []
    folder = target.parent / f"{_temporary_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        with faults_of(target):
            missing = [parent for parent in target.parents if not parent.exists()]
            for parent in reversed(missing):
                parent.mkdir()
                made.append(parent)
            _remove_leftovers(target)
            folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not target.exists():
            for parent in reversed(made):
                with suppress(OSError):
                    parent.rmdir()


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


def move_into_place(folder: Path, target: Path) -> None:
    """Rename; a corpus that is to be replaced steps aside first and comes back if the rename fails."""
    if not target.exists():
        folder.rename(target)
        return
    aside = folder.with_name(folder.name.removesuffix(".tmp") + _ASIDE)
    target.rename(aside)
    try:
        folder.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
