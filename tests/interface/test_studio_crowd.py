"""Many who ask for the same kind of work at once: batches, and who waits for whom."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fabula.apps.serve import jobs
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
        pool, hold, stop = jobs.WorkerPool(workers=2, queue=9), Gate(), threading.Event()

        def holding() -> Iterator[int]:
            hold.wait()
            yield 0

        def long() -> Iterator[int]:
            while not stop.wait(0.01):
                jobs.check()
            yield 0

        endless, _ = pool.submit(long), pool.submit(holding)
        endless.used_seconds = 2 * jobs.SHORT_SECONDS
        endless.uninterrupted = 1  # until the first half is at work
        many = [pool.submit(jobs.BatchedWork("kind", 10, n, work)) for n in range(8)]
        hold.opened.set()
        await asyncio.to_thread(until, lambda: bool(told))
        endless.uninterrupted = 0
        assert [await asyncio.wait_for(job.last(), SECONDS) for job in many] == list(range(8))
        assert sorted(told) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        stop.set()
        assert await asyncio.wait_for(endless.last(), SECONDS) == 0

        told.clear()
        monkeypatch.setattr(jobs, "GATHER_SECONDS", 1.0)
        some = [pool.submit(jobs.BatchedWork("kind", 10, n, work)) for n in range(6)]
        assert [await asyncio.wait_for(job.last(), SECONDS) for job in some] == list(range(6))
        assert sorted(map(len, told)) == [3, 3]
        await asyncio.to_thread(pool.close, SECONDS)

    run_alone(main())
