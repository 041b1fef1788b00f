"""The model's work, away from the event loop: fair turns, a queue with a length, and an end when nobody waits.

A job is an iterator that runs in a thread of its own; what it yields comes back to the event loop one by one. Only as
many jobs as there are workers run at a time. A job looks up at every operation on a tensor (`check`): there it ends
when its client has left or its time is spent, and there it hands its turn on when somebody waits who has had much less:
a short job never waits for a long one to end. Jobs that have had about as much follow one another, and waiting counts a
little, so that a long one is not forgotten.

Jobs of one kind (`Together`) that wait at the same time are done in one batch, of at most ROWS rows: the first of them
leads, the others come along, and each has its own answers, its own mistakes and its own way to leave. Where several
workers are free for them, each takes its share. Clients whose batch has ended ask again at almost the same moment, so
that a leader begins when for a moment nobody else has come.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from fabula.apps.studio.attention import Attentive, LeftError, check, here
from fabula.apps.web.errors import RefusedError

SLICE_SECONDS = 0.1
"""How often a job asks whether another needs its turn more."""
SHORT_SECONDS = 3.0
"""A job that has had less than this gives its turn to nobody: to slice equal short jobs makes them all late."""
PATIENCE = 0.02
"""Levels that a second of waiting is worth, when turns are given: a minute, a bit more than one doubling."""
ROWS = 100
"""Stories at once in a batch of jobs. With the small model ten fills of ten rows cost 3.8 times one, and twenty 6.6; a
row of the narrator costs the same from 40 rows on, and its cache of 100 rows takes about 300 MiB."""
GATHER_SECONDS = 0.01
"""The leader of a batch begins when nobody of its kind has come for so long, or for so many batches of late:"""
GATHER_ALONE, GATHER_IN_A_CROWD, GATHER_AT_MOST = 0.02, 0.05, 0.4
"""those who were just answered ask again at almost the same moment, on a busy machine a little later. The last is what
it waits in all."""
CROWD_SECONDS = 1.0
"""How long after two of a kind have met there is a crowd."""


class Together(NamedTuple):
    """Work that can be done at once with other work of its kind."""

    kind: Hashable
    """Jobs of equal kind go together."""
    rows: int
    """Its share of a batch's `ROWS`."""
    call: Any
    """What this job asks."""
    work: Callable[[Sequence[Any]], Iterator[Sequence[Any]]]
    """Rounds of answers, one for each call; an exception in the place of an answer ends that job alone."""


class Job:
    """One piece of work and the way back from it: `async with job: async for answer in job`."""

    def __init__(self, jobs: Jobs, work: Callable[[], Iterator[Any]] | Together) -> None:
        self.jobs = jobs
        self.together = work if isinstance(work, Together) else None
        self.work = None if isinstance(work, Together) else work
        self.party: list[Job] = [self]
        """Those that it leads, itself first."""
        self.leader: Job = self
        self.left = threading.Event()
        self.started = False
        self.steps = 0
        """Operations so far: how far a job is between two of its answers."""
        self.spent, self.waits_since, self.turn_since = 0.0, time.monotonic(), 0.0
        self.began = 0.0
        """The processor's time of its thread when it began."""
        self.unbroken = 0
        self.gathering = False
        """Whether others may still join its batch."""
        self.next_look = SLICE_SECONDS
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    def run(self) -> None:
        """In a thread: every answer goes back, then the end or what went wrong."""
        here.job, self.began = self, time.thread_time()
        going = list(self.party)
        try:
            with Attentive():
                for answers in self._rounds():
                    for job, answer in zip(self.party, answers, strict=True):
                        if job in going:
                            job._tell("error" if isinstance(answer, Exception) else "answer", answer)
                    going = [
                        job for job, answer in zip(self.party, answers, strict=True)
                        if job in going and not isinstance(answer, Exception)
                    ]  # fmt: skip
                    check()
            self._tell_all(going, "end", None)
        except LeftError:
            self._tell_all(going, "end", None)
        except BaseException as error:
            self._tell_all(going, "error", error)
        finally:
            here.job = None

    def _rounds(self) -> Iterator[Sequence[Any]]:
        """The answers of the whole party, round by round."""
        if self.together is not None:
            return self.together.work([job.together.call for job in self.party if job.together is not None])
        assert self.work is not None
        return ([answer] for answer in self.work())

    @staticmethod
    def _tell_all(party: Sequence[Job], kind: str, value: Any) -> None:
        for job in party:
            job._tell(kind, value)

    @property
    def kind(self) -> Hashable:
        return None if self.together is None else self.together.kind

    @property
    def deserted(self) -> bool:
        """Whether everybody in the party has left."""
        return all(job.left.is_set() for job in self.party)

    def had(self, seconds: float) -> float:
        """What each of the party has had of so many seconds."""
        return seconds / len(self.party)

    def look_up(self) -> None:
        self.steps += 1
        if self.deserted:
            raise LeftError
        # By the thread's own clock: on a busy machine a job that hardly had the processor is not to be stopped.
        if self.had(time.thread_time() - self.began) > self.jobs.limit:
            told = f"this took more than {self.jobs.limit:.0f} seconds of computing: ask for fewer lines or samples"
            raise RefusedError(503, told)
        held = time.monotonic() - self.turn_since
        if held > self.next_look and not self.unbroken and self.jobs.wanted:
            self.next_look = held + SLICE_SECONDS
            self.jobs.hand_on(self)

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

    async def next(self, seconds: float | None = None) -> tuple[str, Any]:
        """What comes next: ("answer", value), ("end", None), or ("nothing", None) when it takes longer than this."""
        try:
            kind, value = await asyncio.wait_for(self._answers.get(), seconds)
        except TimeoutError:
            return "nothing", None
        if kind == "error":
            raise value
        return kind, value

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (told := await self.next())[0] == "answer":
            yield told[1]

    async def last(self) -> Any:
        """The last answer: what a request without a stream wants."""
        last = None
        async for answer in self:
            last = answer
        return last


class Jobs:
    """Turns to work and the queue for them."""

    def __init__(
        self, workers: int = 1, queue: int = 16, begin: Callable[[], None] | None = None, limit: float = math.inf
    ) -> None:
        """`begin` runs first in every thread; `limit` is the seconds of work that a job may have in all."""
        self.workers, self.queue, self.limit = workers, queue, limit
        self._waiting: list[Job] = []
        self._running: set[Job] = set()
        self._threads: set[threading.Thread] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._seconds = 1.0
        self._batch_seconds = 0.0
        """What a batch takes by the clock."""
        self._crowded = -math.inf
        """When two jobs of one kind were last here at the same time."""
        self._begin = begin

    @property
    def counts(self) -> dict[str, int]:
        with self._changed:
            return {"running": len(self._running), "waiting": len(self._waiting), "queue": self.queue}

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for a turn."""
        return bool(self._waiting)

    def ahead(self, job: Job) -> int:
        """Jobs that will have a turn before this one, as things stand."""
        with self._changed:
            now = time.monotonic()
            order = sorted(self._waiting, key=lambda one: _need(one, now))
            return order.index(job) + len(self._running) if job in order else 0

    def submit(self, work: Callable[[], Iterator[Any]] | Together) -> Job:
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
            if job.together is not None and any(one.kind == job.kind for one in (*self._waiting, *self._running)):
                self._crowded = time.monotonic()
            self._waiting.append(job)
            self._pass_on()
        return job

    def forget(self, job: Job) -> None:
        """Out of the queue, if it still waits there."""
        with self._changed:
            if job in self._waiting and not job.started:
                self._waiting.remove(job)
            self._changed.notify_all()

    def hand_on(self, job: Job) -> None:
        """Where somebody waits who needs the turn more, the job waits until it is given one again."""
        with self._changed:
            now = time.monotonic()
            own = _level(job.had(job.spent + now - job.turn_since))
            # Never to one of its own kind: to slice equal jobs makes them all late.
            others = [one for one in self._waiting if one.together is None or one.kind != job.kind]
            # Patience earns a free turn, not one that another holds: else a long job breaks into short ones.
            if all(_level(one.had(one.spent)) >= own for one in others):
                return
            self._put_down(job)
            self._waiting.append(job)
            self._pass_on()
            while job not in self._running and not job.deserted:
                self._changed.wait()
            if job in self._waiting:  # it left: it ends at once, out of turn
                self._waiting.remove(job)
                raise LeftError

    def close(self, seconds: float = 5.0) -> None:
        """Everybody leaves; threads end at their next check."""
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *self._running):
                for one in job.party:
                    one.left.set()
            for job in [job for job in self._waiting if not job.started]:
                self._waiting.remove(job)
                job._tell("end", None)
            self._changed.notify_all()
        for thread in list(self._threads):
            thread.join(seconds)

    def _put_down(self, job: Job) -> None:
        now = time.monotonic()
        self._running.discard(job)
        job.spent += now - job.turn_since
        job.waits_since = now

    def _pass_on(self) -> None:
        """Give free turns to those who need them most. With `_changed` held."""
        now = time.monotonic()
        while self._waiting and len(self._running) < self.workers:
            job = min(self._waiting, key=lambda one: _need(one, now))
            self._waiting.remove(job)
            self._running.add(job)
            job.turn_since, job.next_look = now, SLICE_SECONDS
            if not job.started:
                job.started, job.gathering = True, job.together is not None
                thread = threading.Thread(target=self._work, args=(job,), name="fabula-job", daemon=True)
                self._threads.add(thread)
                thread.start()
        self._changed.notify_all()

    def _gather(self, leader: Job) -> None:
        """Those of the leader's kind that wait come along, who waits longest first, while there is room.

        Other workers have their share of them: those that gather too, and those whose job will be put down for them.
        """
        if leader.together is None:
            return
        with self._changed:
            begun = time.monotonic()

            def complete() -> bool:
                now, batch = time.monotonic(), self._batch_seconds
                share = GATHER_IN_A_CROWD if now - self._crowded < CROWD_SECONDS else GATHER_ALONE
                alike = [one for one in self._waiting if one.kind == leader.kind]
                quiet = now - max([begun, *(one.waits_since for one in alike)])
                return (
                    quiet >= max(GATHER_SECONDS, share * batch)
                    or now - begun >= max(10 * GATHER_SECONDS, GATHER_AT_MOST * batch)
                    or sum(map(_rows, alike)) >= self.workers * ROWS
                    or leader.deserted
                )

            while not complete():
                self._changed.wait(GATHER_SECONDS)
            now = time.monotonic()
            leader.turn_since = now
            alike = [one for one in self._waiting if one.kind == leader.kind and not one.started]
            leaders = [one for one in self._running if one.gathering and one.kind == leader.kind]
            yielding = sum(
                _level(one.had(one.spent + now - one.turn_since)) > 0 for one in self._running if not one.gathering
            )
            rows = leader.together.rows
            share = sum(_rows(one) for one in (*alike, *leaders)) / (len(leaders) + yielding)
            room = min(ROWS, math.ceil(share))
            for job in sorted(alike, key=lambda one: _need(one, now)):
                if rows + _rows(job) > room:
                    continue
                rows += _rows(job)
                self._waiting.remove(job)
                job.started, job.leader = True, leader
                leader.party.append(job)
            leader.gathering = False

    def _work(self, job: Job) -> None:
        if self._begin is not None:
            self._begin()
        try:
            self._gather(job)
            job.run()
        finally:
            with self._changed:
                if job in self._running:
                    self._put_down(job)
                self._threads.discard(threading.current_thread())
                # Running means that forget: for the next Retry-After, and for how long a crowd is waited for.
                self._seconds += 0.2 * (job.had(job.spent) - self._seconds)
                if job.together is not None:
                    self._batch_seconds += 0.5 * (job.spent - self._batch_seconds)
                self._pass_on()


def _level(spent: float) -> float:
    """0 up to SHORT_SECONDS of work, one more for each doubling: among jobs of a level the first runs to its end."""
    return float(math.floor(math.log2(spent / SHORT_SECONDS)) + 1) if spent >= SHORT_SECONDS else 0.0


def _need(job: Job, now: float) -> float:
    """Who has had least is first; of those who had about the same, who has waited longest."""
    return _level(job.had(job.spent)) - PATIENCE * (now - job.waits_since)


def _rows(job: Job) -> int:
    return 0 if job.together is None else job.together.rows
