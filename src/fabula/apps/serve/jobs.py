"""The queue of the model's work: first come, first served, and an end when the client leaves.

A job is an iterator that runs in a thread; its answers come back to the event loop one by one. As many jobs run at a
time as there are workers. A running job is checked at its operations on tensors. There it ends when its client has
left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch.overrides import TorchFunctionMode

from fabula.apps.web.errors import RefusedError

RETRY_SECONDS = 5  # when a client that was refused may try again
OPERATIONS_PER_CHECK = 16
"""Operations on tensors between two checks: a check costs more than a small operation."""
_thread = threading.local()  # `_thread.job` is the job that this thread runs.


class ClientLeftError(Exception):
    """The client of this job has left."""


def current_job() -> Job:
    """The job that this thread runs."""
    job: Job = _thread.job
    return job


class Interruptible(TorchFunctionMode):
    """Calls `check` at operations on tensors; an exception that it raises ends the work."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__()
        self.check, self.operations = check, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operations += 1
        if self.operations % OPERATIONS_PER_CHECK == 0:
            self.check()
        return func(*args, **(kwargs or {}))


class Job:
    """One piece of work and its answers. Whoever submits it closes it."""

    def __init__(self, pool: WorkerPool, work: Callable[[], Iterator[Any]]) -> None:
        self.pool, self.work = pool, work
        self.client_left = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.future: Future[None] = pool.executor.submit(self.run)

    def run(self) -> None:
        """Run in a worker thread: send the answers, then the end or the error."""
        _thread.job = self
        last: tuple[str, Any] = ("end", None)
        try:
            self.check()
            with Interruptible(self.check):
                for answer in self.work():
                    self.send("answer", answer)
                    self.check()
        except ClientLeftError:
            pass
        except BaseException as error:
            last = ("error", error)
        finally:
            _thread.job = None
        self.send(*last)

    def check(self) -> None:
        """End the job if its client has left; else do nothing."""
        if self.client_left.is_set():
            raise ClientLeftError

    def send(self, kind: str, value: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._answers.put_nowait, (kind, value))

    def close(self) -> None:
        """Say that nobody waits for the answers any more."""
        self.client_left.set()
        self.future.cancel()

    async def next(self, seconds: float | None = None) -> tuple[str, Any]:
        """("answer", value), another kind that was sent, ("end", None), or ("nothing", None) if none comes in time."""
        try:
            kind, value = await asyncio.wait_for(self._answers.get(), seconds)
        except TimeoutError:
            return "nothing", None
        if kind == "error":
            raise value
        return kind, value

    async def last(self) -> Any:
        """The last answer."""
        last = None
        while (event := await self.next())[0] == "answer":
            last = event[1]
        return last


class WorkerPool:
    """The workers and the queue of jobs before them."""

    def __init__(self, workers: int = 1, queue_size: int = 16, begin: Callable[[], None] | None = None) -> None:
        """`begin` runs first in every thread."""
        self.workers, self.queue_size = workers, queue_size
        self.executor = ThreadPoolExecutor(workers, "fabula-job", begin)
        self._jobs: list[Job] = []  # in the order in which they came
        self._closed = False

    @property
    def jobs(self) -> list[Job]:
        """The jobs that run or wait, in their order."""
        self._jobs = [job for job in self._jobs if not job.future.done()]
        return self._jobs

    @property
    def counts(self) -> dict[str, int]:
        jobs = self.jobs
        running = sum(job.future.running() for job in jobs)
        return {"running": running, "waiting": len(jobs) - running, "queue": self.queue_size}

    def ahead(self, job: Job) -> int:
        """How many jobs come before this one, which waits."""
        jobs = self.jobs
        return jobs.index(job) if job in jobs and not job.future.running() else 0

    def submit(self, work: Callable[[], Iterator[Any]]) -> Job:
        """Queue a new job; `RefusedError` with a Retry-After header if the queue is full."""
        retry = {"Retry-After": str(RETRY_SECONDS)}
        if self._closed:
            raise RefusedError(503, "the server is stopping", headers=retry)
        if len(self.jobs) >= self.workers + self.queue_size:
            message = f"{self.queue_size} jobs are waiting already: try again in {RETRY_SECONDS} seconds"
            raise RefusedError(429, message, headers=retry)
        job = Job(self, work)
        self._jobs.append(job)
        return job

    def close(self) -> None:
        """End all jobs: those that wait do not begin, those that run end at their next check."""
        self._closed = True
        for job in self.jobs:
            job.client_left.set()
        self.executor.shutdown()
