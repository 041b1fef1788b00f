"""The model's work, away from the event loop: worker threads, a queue with a length, and an end when nobody waits.

A job is an iterator that runs in a worker; what it yields comes back to the event loop one by one. Whoever listens
closes the job when its client has left: a waiting job leaves the queue, a running one stops at its next `check`, and
every operation on a tensor is one.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any

from torch.overrides import TorchFunctionMode

from fabula.web.errors import RefusedError

_here = threading.local()


class LeftError(Exception):
    """Nobody waits for this job any more."""


def check(*_: Any) -> None:
    """Stop the job that this thread works on if nobody waits for it; outside of jobs nothing happens."""
    job: Job | None = getattr(_here, "job", None)
    if job is not None and job.left.is_set():
        raise LeftError


class Attentive(TorchFunctionMode):
    """Looks up at every operation on a tensor: whatever a model does, it stops within one of them."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        check()
        return func(*args, **(kwargs or {}))


class Job:
    """One piece of work and the way back from it: `async with job: async for answer in job`."""

    def __init__(self, jobs: Jobs, work: Callable[[], Iterator[Any]]) -> None:
        self.jobs, self.work = jobs, work
        self.left = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def run(self) -> None:
        """In a worker: every answer goes back, then the end or what went wrong."""
        _here.job = self
        try:
            with Attentive():
                for answer in self.work():
                    self._tell("answer", answer)
                    check()
            self._tell("end", None)
        except LeftError:
            self._tell("end", None)
        except BaseException as error:
            self._tell("error", error)
        finally:
            _here.job = None

    def _tell(self, kind: str, value: Any) -> None:
        # A loop that is closed has nobody left to tell.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._answers.put_nowait, (kind, value))

    async def __aenter__(self) -> Job:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nobody listens any more."""
        self.left.set()
        self.jobs.forget(self)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            kind, value = await self._answers.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value

    async def last(self) -> Any:
        """The last answer: what a request without a stream wants."""
        last = None
        async for answer in self:
            last = answer
        return last


class Jobs:
    """Worker threads and their queue."""

    def __init__(self, workers: int = 1, queue: int = 16, begin: Callable[[], None] | None = None) -> None:
        """`begin` runs first in every worker."""
        self.workers, self.queue = workers, queue
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._seconds = 1.0
        self._begin = begin
        self._threads = [
            threading.Thread(target=self._work, name=f"fabula-worker-{n}", daemon=True) for n in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def counts(self) -> dict[str, int]:
        with self._changed:
            return {"running": len(self._running), "waiting": len(self._waiting), "queue": self.queue}

    def submit(self, work: Callable[[], Iterator[Any]]) -> Job:
        """Take a place in the queue, or be told when to come back."""
        job = Job(self, work)
        with self._changed:
            if self._closed:
                raise RefusedError(503, "the server is stopping", headers={"Retry-After": "5"})
            idle = self.workers - len(self._running)
            if len(self._waiting) >= self.queue + idle:
                wait = max(1, min(60, math.ceil(self._seconds * (len(self._waiting) + 1) / self.workers)))
                told = f"{len(self._waiting)} jobs are waiting already: try again in {wait} seconds"
                raise RefusedError(429, told, headers={"Retry-After": str(wait)})
            self._waiting.append(job)
            self._changed.notify()
        return job

    def forget(self, job: Job) -> None:
        """Out of the queue, if it still waits there."""
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)

    def close(self, seconds: float = 5.0) -> None:
        """Everybody leaves; workers end at their next check."""
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *self._running):
                job.left.set()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(seconds)

    def _work(self) -> None:
        if self._begin is not None:
            self._begin()
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                job = self._waiting.popleft()
                self._running.add(job)
            begun = time.monotonic()
            job.run()
            with self._changed:
                self._running.discard(job)
                # A running mean that forgets: what the next Retry-After is reckoned by.
                self._seconds += 0.2 * (time.monotonic() - begun - self._seconds)
