"""The queue of the model's work: fair turns, and an end when the client leaves.

A job is an iterator that runs in a thread; its answers come back to the event loop one by one. As many jobs run at a
time as there are workers. A running job calls `check` at its operations on tensors. There it ends when its client has
left or its time is used up, and there it gives its turn to a waiting job that has used much less time. So a short job
never waits for the end of a long one. Waiting counts a little, so that a long job is not forgotten.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from fabula.apps.web.errors import RefusedError
from fabula.apps.web.guard import CLIENT
from fabula.interrupt import Interruptible

SLICE_SECONDS = 0.1  # how often a job looks whether another one needs its turn more
SHORT_SECONDS = 3.0
"""A job that has used less time than this is not preempted: time-slicing short jobs delays all of them."""
LEVELS_PER_WAITING_SECOND = 0.02
"""Priority levels gained per second of waiting. A minute outweighs one doubling of the used time."""
_thread = threading.local()  # `_thread.job` is the job that this thread runs.


class ClientLeftError(Exception):
    """The client of this job has left."""


def check() -> None:
    """End the job of this thread if its client has left, or let another have its turn; else do nothing."""
    job: Job | None = getattr(_thread, "job", None)
    if job is not None:
        job.check()


def current_job() -> Job:
    """The job that this thread runs."""
    job: Job = _thread.job
    return job


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep the turn to the end of the block: for work under a lock that other jobs may want."""
    job = getattr(_thread, "job", None) or SimpleNamespace(uninterrupted=0)
    job.uninterrupted += 1
    try:
        yield
    finally:
        job.uninterrupted -= 1


class Job:
    """One piece of work and its answers. Whoever submits it closes it."""

    def __init__(self, pool: WorkerPool, work: Callable[[], Iterator[Any]]) -> None:
        self.pool, self.work, self.client = pool, work, CLIENT.get()
        self.client_left = threading.Event()
        self.started = False
        self.checks = 0  # calls of `check` so far: progress between two answers is estimated from them
        self.used_seconds, self.waiting_since, self.turn_since = 0.0, time.monotonic(), 0.0
        self.cpu_start, self.next_slice, self.uninterrupted = 0.0, SLICE_SECONDS, 0
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def run(self) -> None:
        """Run in a worker thread: send the answers, then the end or the error."""
        _thread.job, self.cpu_start = self, time.thread_time()
        last: tuple[str, Any] = ("end", None)
        try:
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

    def level(self, now: float | None = None) -> float:
        """0 below SHORT_SECONDS of used time, one more for each doubling.

        With `now` the running turn counts too. Jobs of one level do not interrupt each other.
        """
        seconds = self.used_seconds + (0.0 if now is None else now - self.turn_since)
        return float(math.floor(math.log2(seconds / SHORT_SECONDS)) + 1) if seconds >= SHORT_SECONDS else 0.0

    def priority(self, now: float) -> float:
        """The sort key of waiting jobs: least used time first; among equals the one that has waited longest."""
        return self.level() - LEVELS_PER_WAITING_SECOND * (now - self.waiting_since)

    def check(self) -> None:
        self.checks += 1
        if self.client_left.is_set():
            raise ClientLeftError
        # By the thread's own clock: a job is not stopped because the machine is busy.
        if time.thread_time() - self.cpu_start > self.pool.limit:
            message = f"this took more than {self.pool.limit:.0f} seconds of computing: ask for fewer lines or samples"
            raise RefusedError(503, message)
        turn_seconds = time.monotonic() - self.turn_since
        if turn_seconds > self.next_slice and not self.uninterrupted and self.pool.waiting:
            self.next_slice = turn_seconds + SLICE_SECONDS
            self.pool.yield_turn(self)

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
        self, workers: int = 1, queue: int = 16, begin: Callable[[], None] | None = None, limit: float = math.inf
    ) -> None:
        """`begin` runs first in every thread; `limit` is the seconds of computing that a job may use."""
        self.workers, self.queue, self.limit, self._begin = workers, queue, limit, begin
        self.waiting: list[Job] = []
        self._running: set[Job] = set()
        self._threads: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._job_seconds = 1.0  # a running mean

    @property
    def counts(self) -> dict[str, int]:
        with self._changed:
            return {"running": len(self._running), "waiting": len(self.waiting), "queue": self.queue}

    def ahead(self, job: Job) -> int:
        """How many jobs have a turn before this one, as things stand."""
        with self._changed:
            order = self._by_priority(self.waiting)
            return order.index(job) + len(self._running) if job in order else 0

    def submit(self, work: Callable[[], Iterator[Any]]) -> Job:
        """Queue a new job; `RefusedError` with a Retry-After header if the queue is full, or half of it one's."""
        job = Job(self, work)
        with self._changed:
            if self._closed:
                raise RefusedError(503, "the server is stopping", headers={"Retry-After": "5"})
            idle, theirs = self.workers - len(self._running), sum(other.client == job.client for other in self.waiting)
            full = len(self.waiting) >= self.queue + idle
            if full or theirs >= max(1, self.queue // 2) + idle:
                wait = max(1, min(60, math.ceil(self._job_seconds * (len(self.waiting) + 1) / self.workers)))
                who = f"{len(self.waiting)} jobs" if full else f"{theirs} of your jobs"
                message = f"{who} are waiting already: try again in {wait} seconds"
                raise RefusedError(429, message, headers={"Retry-After": str(wait)})
            self.waiting.append(job)
            self._give_turns()
        return job

    def withdraw(self, job: Job) -> None:
        """Take the job out of the queue, if it still waits there."""
        with self._changed:
            if job in self.waiting and not job.started:
                self.waiting.remove(job)
            self._changed.notify_all()

    def yield_turn(self, job: Job) -> None:
        """If a waiting job needs the turn more, wait until this job is given one again."""
        with self._changed:
            level = job.level(time.monotonic())
            # Waiting time counts only for free workers: a long job that has waited must not preempt a short one.
            if all(other.level() >= level for other in self.waiting):
                return
            self._end_turn(job)
            self.waiting.append(job)
            self._give_turns()
            while job not in self._running and not job.client_left.is_set():
                self._changed.wait()
            if job in self.waiting:
                self.waiting.remove(job)
                raise ClientLeftError

    def close(self, seconds: float = 5.0) -> None:
        """End all jobs; their threads end at the next check."""
        with self._changed:
            self._closed = True
            for job in (*self.waiting, *self._running):
                job.client_left.set()
            for job in [job for job in self.waiting if not job.started]:
                self.waiting.remove(job)
                job.send("end", None)
            self._changed.notify_all()
        for thread in list(self._threads):
            thread.join(seconds)

    def _by_priority(self, jobs: Sequence[Job]) -> list[Job]:
        now = time.monotonic()
        return sorted(jobs, key=lambda job: job.priority(now))

    def _end_turn(self, job: Job) -> None:
        now = time.monotonic()
        self._running.discard(job)
        job.used_seconds += now - job.turn_since
        job.waiting_since = now

    def _give_turns(self) -> None:
        """Give free turns to the jobs that need them most. With `_changed` held."""
        while self.waiting and len(self._running) < self.workers:
            job = self._by_priority(self.waiting)[0]
            self.waiting.remove(job)
            self._running.add(job)
            job.turn_since, job.next_slice = time.monotonic(), SLICE_SECONDS
            if not job.started:
                job.started = True
                thread = threading.Thread(target=self._work, args=(job,), name="fabula-job", daemon=True)
                self._threads.add(thread)
                thread.start()
        self._changed.notify_all()

    def _work(self, job: Job) -> None:
        if self._begin is not None:
            self._begin()
        try:
            job.run()
        finally:
            with self._changed:
                if job in self._running:
                    self._end_turn(job)
                self._threads.discard(threading.current_thread())
                self._job_seconds += 0.2 * (job.used_seconds - self._job_seconds)
                self._give_turns()
