"""The unit of work, a chunk of rows that becomes a shard, and who does it: this process, or worker processes.

Both are generators of (chunk, shard) in any order. They take chunks as they have room, which bounds the memory.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fabula.apps.fleet.shards import Shard, write_shard
from fabula.errors import UserError
from fabula.sampling.many import FillsTogether, Item, fill_rows

MAX_DEATHS = 20
"""Workers that die one after the other, with no chunk done between, stop the job: it needs more memory or fewer."""


class Chunk(NamedTuple):
    """The rows of a shard; `number` is the shard's: how many rows stand before them."""

    number: int
    items: Sequence[Item]


class Work(NamedTuple):
    """How chunks are done. It is sent to other processes, so all of it can be pickled."""

    load: Callable[[], FillsTogether]
    seed: int
    defaults: Mapping[str, Any]
    group: int  # rows that are filled in together
    path: Callable[[int], Path]  # where the shard of a number goes


def fill_chunk(model: FillsTogether, work: Work, chunk: Chunk) -> Shard:
    groups = (chunk.items[i : i + work.group] for i in range(0, len(chunk.items), work.group))
    results = [result for group in groups for result in fill_rows(model, group, work.seed, work.defaults)]
    return write_shard(work.path(chunk.number), results)


def run_inline(work: Work, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Shard]]:
    """One chunk after the other in this process."""
    model = None
    for chunk in chunks:
        model = model or work.load()  # only when there is something to do: a finished job needs no model
        yield chunk, fill_chunk(model, work, chunk)


def run_workers(work: Work, chunks: Iterator[Chunk], workers: int) -> Iterator[tuple[Chunk, Shard]]:
    """Processes, each with its model. Where one dies all are begun anew, and their chunks are repeated.

    They are spawned, so that they inherit no lock or thread of this process. What a worker sends is shorter than what a
    pipe takes at once: half a message of a worker that was killed would block the pipe, which all of them share.
    """
    held: dict[int, Chunk] = {}
    deaths = 0
    context = multiprocessing.get_context("spawn")
    while held := held or {chunk.number: chunk for chunk in islice(chunks, workers)}:
        with ProcessPoolExecutor(workers, context, _end_with_parent, ()) as pool:
            running: dict[Future[Shard], int] = {}
            try:
                while held:
                    held |= {chunk.number: chunk for chunk in islice(chunks, workers - len(held))}
                    for number in sorted(held.keys() - running.values()):
                        running[pool.submit(_fill, work, held[number])] = number
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        shard = future.result()
                        deaths = 0
                        yield held.pop(running.pop(future)), shard
            except BrokenProcessPool:
                deaths += 1
                if deaths >= MAX_DEATHS:
                    message = f"{MAX_DEATHS} workers have died at chunk {min(held)}"
                    raise UserError(f"{message}; run again with fewer workers") from None
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


_models: list[FillsTogether] = []
"""Of this worker: its one model."""


def _fill(work: Work, chunk: Chunk) -> Shard:
    """The work of a worker, which loads its model for its first chunk."""
    if not _models:
        _models.append(work.load())
    return fill_chunk(_models[0], work, chunk)


def _end_with_parent() -> None:
    """Before a worker's first chunk: it is to end when the process that started it ends, in whatever way."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
