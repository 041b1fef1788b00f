"""A prepared folder appears whole or not at all: it is written beside its place, then renamed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from fabula.corpus.dataset import MANIFEST
from fabula.errors import UserError, file_errors


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
def work_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside the target. At the end it is gone, and so are parents that were made for it alone."""
    with no_empty_folders(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            yield Path(folder)


@contextmanager
def no_empty_folders(target: Path) -> Iterator[None]:
    """At the end, folders that were made for the target and in which nothing came to lie are gone."""
    missing = [folder for folder in (target, *target.parents) if not folder.exists()]
    try:
        yield
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def write_errors_for_user(target: Path) -> AbstractContextManager[None]:
    """Turn an OSError, such as a full disk or missing permission, into a `UserError` that names the target."""
    return file_errors(f"cannot write {target}", field="out")


def write(path: Path, content: bytes) -> None:
    """Write down to the disk: a full one must say so before the folder is moved into place."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Write all of it or nothing: a temporary file, flushed to the disk, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary, content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def move_into_place(folder: Path, target: Path) -> None:
    """Rename; a corpus that is to be replaced steps aside first and comes back if the rename fails."""
    aside = folder.with_name("replaced")
    replacing = target.exists()
    if replacing:
        target.rename(aside)
    try:
        folder.rename(target)
    except BaseException:
        if replacing:
            aside.rename(target)
        raise
