"""Silence for libraries that write to the terminal past Python: the standard error of Java and C++."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_stderr() -> Iterator[None]:
    """Discards the standard error of this process and of its children meanwhile."""
    sys.stderr.flush()
    saved = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
