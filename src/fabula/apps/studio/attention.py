"""A job looks up while it works: at every operation on a tensor it may end, or hand its turn on (`jobs.py`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch.overrides import TorchFunctionMode

here = threading.local()
"""`job`: what this thread works on."""


class Attending(Protocol):
    """A job, as far as this file knows it."""

    unbroken: int

    def look_up(self) -> None: ...


class LeftError(Exception):
    """Nobody waits for this job any more."""


def check(*_: Any) -> None:
    """End the job that this thread works on if nobody waits for it, or let others have their turn; else nothing."""
    job: Attending | None = getattr(here, "job", None)
    if job is not None:
        job.look_up()


@contextmanager
def unbroken() -> Iterator[None]:
    """Keep the turn to the end of this: for work under a lock that other jobs may want."""
    job: Attending | None = getattr(here, "job", None)
    if job is None:
        yield
        return
    job.unbroken += 1
    try:
        yield
    finally:
        job.unbroken -= 1


class Attentive(TorchFunctionMode):
    """Looks up at every operation on a tensor: whatever a model does, it stops within one of them."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        check()
        return func(*args, **(kwargs or {}))
