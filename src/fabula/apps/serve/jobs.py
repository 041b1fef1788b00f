"""The queue of the model's work: first come, first served, and an end when the client leaves.

A job is an iterator that runs in a thread; its answers come back to the event loop one by one. As many jobs run at a
time as there are workers. A running job calls `check` at its operations on tensors. There it ends when its client has
left or its time is used up.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fabula.apps.web.errors import RefusedError
from fabula.interrupt import Interruptible

RETRY_SECONDS = 5  # when a client that was refused may try again
_thread = threading.local()  # `_thread.job` is the job that this thread runs.


class ClientLeftError(Exception):
    """The client of this job has left."""


def check() -> None:
    """End the job of this thread if its client has left or its time is used up; else do nothing."""
    job: Job | None = getattr(_thread, "job", None)
    if job is not None:
        job.check()


def current_job() -> Job:
    """The job that this thread runs."""
    job: Job = _thread.job
    return job


class Job:
    """One piece of work and its answers. Whoever submits it closes it."""

    def __init__(self, pool: WorkerPool, work: Callable[[], Iterator[Any]]) -> None:
        self.pool, self.work = pool, work
        self.client_left = threading.Event()
        self.started = False
        self.checks = 0  # calls of `check` so far: progress between two answers is estimated from them
        self.cpu_start = 0.0
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def run(self) -> None:
        """Run in a worker thread: send the answers, then the end or the error."""
        _thread.job, self.cpu_start = self, time.thread_time()
        last: tuple[str, Any] = ("end", None)
        try:
            check()
            with Interruptible(check):
                for answer in self.work():
                    self.send("answer", answer)
                    check()
        except ClientLeftError:
            pass
        except BaseException as error:
            last = ("error", error)
        finally:
            _thread.job = None
        self.send(*last)

    def check(self) -> None:
        self.checks += 1
        if self.client_left.is_set():
            raise ClientLeftError
        # By the thread's own clock: a job is not stopped because the machine is busy.
        if time.thread_time() - self.cpu_start > self.pool.limit:
            message = f"this took more than {self.pool.limit:.0f} seconds of computing: ask for fewer lines or samples"
            raise RefusedError(503, message)

    def send(self, kind: str, value: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._answers.put_nowait, (kind, value))

    def close(self) -> None:
        """Say that nobody waits for the answers any more."""
        self.client_left.set()
        self.pool.withdraw(self)

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

    def __init__(
        self, workers: int = 1, queue_size: int = 16, begin: Callable[[], None] | None = None, limit: float = math.inf
    ) -> None:
        """`begin` runs first in every thread; `limit` is the seconds of computing that a job may use."""
        self.workers, self.queue_size, self.limit, self._begin = workers, queue_size, limit, begin
        self.jobs: list[Job] = []  # that run or wait, in their order
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, name="fabula-job", daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            running = sum(job.started for job in self.jobs)
            return {"running": running, "waiting": len(self.jobs) - running, "queue": self.queue_size}

    def ahead(self, job: Job) -> int:
        """How many jobs come before this one."""
        with self._lock:
            return self.jobs.index(job) if job in self.jobs else 0

    def submit(self, work: Callable[[], Iterator[Any]]) -> Job:
        """Queue a new job; `RefusedError` with a Retry-After header if the queue is full."""
        job = Job(self, work)
        with self._lock:
            if self._closed:
                raise RefusedError(503, "the server is stopping", headers={"Retry-After": str(RETRY_SECONDS)})
            if len(self.jobs) >= self.workers + self.queue_size:
                message = f"{self.queue_size} jobs are waiting already: try again in {RETRY_SECONDS} seconds"
                raise RefusedError(429, message, headers={"Retry-After": str(RETRY_SECONDS)})
            self.jobs.append(job)
        self._queue.put(job)
        return job

    def withdraw(self, job: Job) -> None:
        """Take the job out of the queue, if it still waits there."""
        with self._lock:
            if job in self.jobs and not job.started:
                self.jobs.remove(job)

    def close(self, seconds: float = 5.0) -> None:
        """End all jobs; their threads end at the next check."""
        with self._lock:
            self._closed = True
            for job in self.jobs:
                job.client_left.set()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(seconds)

    def _work(self) -> None:
        """The life of a worker: job after job."""
        if self._begin is not None:
            self._begin()
        while (job := self._queue.get()) is not None:
            with self._lock:
                job.started = True
            job.run()
            with self._lock:
                if job in self.jobs:
                    self.jobs.remove(job)
