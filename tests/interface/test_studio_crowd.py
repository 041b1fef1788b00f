"""Many who ask for the same kind of work at once: batches, and who waits for whom."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fabula.apps.studio import attention, jobs
from gates import SECONDS, Gate, until
from own_loop import run_alone


def test_free_workers_share_those_who_wait_and_a_crowd_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long job leaves its worker to half of eight alike; who comes just after another of its kind joins its batch."""
    told: list[list[int]] = []
    both = threading.Barrier(2)

    def work(calls: Any) -> Iterator[list[Any]]:
        told.append(sorted(calls))
        both.wait(SECONDS)
        yield list(calls)

    async def main() -> None:
        pool, hold, stop = jobs.Jobs(workers=2, queue=9), Gate(), threading.Event()

        def holding() -> Iterator[int]:
            hold.wait()
            yield 0

        def long() -> Iterator[int]:
            while not stop.wait(0.01):
                attention.check()
            yield 0

        endless, _ = pool.submit(long), pool.submit(holding)
        endless.spent = 2 * jobs.SHORT_SECONDS
        endless.unbroken = 1  # until the first half is at work
        many = [pool.submit(jobs.Together("kind", 10, n, work)) for n in range(8)]
        hold.opened.set()
        await asyncio.to_thread(until, lambda: bool(told))
        endless.unbroken = 0
        assert [await asyncio.wait_for(job.last(), SECONDS) for job in many] == list(range(8))
        assert sorted(told) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        stop.set()
        assert await asyncio.wait_for(endless.last(), SECONDS) == 0

        told.clear()
        monkeypatch.setattr(jobs, "GATHER_SECONDS", 1.0)
        monkeypatch.setattr(jobs, "CROWD_SECONDS", math.inf)
        some = [pool.submit(jobs.Together("kind", 10, n, work)) for n in range(6)]
        assert [await asyncio.wait_for(job.last(), SECONDS) for job in some] == list(range(6))
        assert sorted(map(len, told)) == [3, 3]
        await asyncio.to_thread(pool.close, SECONDS)

    run_alone(main())


def test_a_batch_begins_when_nobody_else_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of a kind, each 1.2 s after the one before: the leader waits 2 s from the last of them."""
    monkeypatch.setattr(jobs, "GATHER_SECONDS", 2.0)
    told: list[int] = []

    def work(calls: Any) -> Iterator[list[Any]]:
        told.append(len(calls))
        yield list(calls)

    async def main() -> None:
        pool = jobs.Jobs(workers=1, queue=9)
        some = []
        for n in range(3):
            some.append(pool.submit(jobs.Together("kind", 10, n, work)))
            await asyncio.sleep(1.2)
        assert [await asyncio.wait_for(job.last(), SECONDS) for job in some] == [0, 1, 2]
        assert told == [3]
        await asyncio.to_thread(pool.close, SECONDS)

    run_alone(main())
