"""Worker processes of this machine, each with its model; one that dies is replaced, and its chunk is repeated.

`concurrent.futures.ProcessPoolExecutor` will not do: its workers share one result pipe, and a worker that is killed
while it writes a shard blocks that pipe for ever. Here every worker has a pipe, which ends when either side dies.
Workers are spawned, so that they inherit no lock or thread of this process.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any

from fabula.apps.fleet.engines import Chunk, Start
from fabula.apps.fleet.shards import Shard
from fabula.errors import UserError

MAX_DEATHS = 20
"""A chunk at which so many workers die stops the job: it needs more memory or fewer workers."""
READY = "ready"
"""Sent by a worker whose model is loaded: a chunk sent earlier could block this process."""


class Worker:
    """A process with its pipe, and the chunk that it works on."""

    def __init__(self, start: Start, chunk: Chunk) -> None:
        context = multiprocessing.get_context("spawn")
        self.chunk = chunk
        self.pipe, worker_end = context.Pipe()
        self.process = context.Process(target=serve, args=(start, worker_end), daemon=True)
        self.process.start()
        worker_end.close()

    def send(self) -> None:
        """Send the chunk. A worker that has just died is noticed when its pipe is read."""
        with suppress(OSError):
            self.pipe.send(self.chunk)

    def receive(self) -> Any:
        """READY, a shard, an exception, or None where the worker has died; what it sent before it died counts."""
        try:
            return self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            return None

    def stop(self) -> None:
        self.process.kill()
        self.pipe.close()
        self.process.join()


def run(start: Start, chunks: Iterator[Chunk], workers: int) -> Iterator[tuple[Chunk, Shard]]:
    deaths: Counter[int] = Counter()
    pool: list[Worker] = []
    try:
        pool += (Worker(start, chunk) for chunk in islice(chunks, workers))
        while pool:
            ready = set(wait([handle for one in pool for handle in (one.pipe, one.process.sentinel)]))
            for worker in [one for one in pool if one.pipe in ready or one.process.sentinel in ready]:
                answer, chunk = worker.receive(), worker.chunk
                if isinstance(answer, BaseException):
                    raise answer
                if answer == READY:
                    worker.send()
                elif answer is None:
                    worker.stop()
                    deaths[chunk.number] += 1
                    if deaths[chunk.number] >= MAX_DEATHS:
                        exit = worker.process.exitcode
                        message = f"{MAX_DEATHS} workers have died of chunk {chunk.number} (exit {exit})"
                        raise UserError(f"{message}; run again with fewer workers or a smaller batch size")
                    pool[pool.index(worker)] = Worker(start, chunk)
                else:
                    deaths.clear()
                    if (following := next(chunks, None)) is None:
                        worker.stop()
                        pool.remove(worker)
                    else:
                        worker.chunk = following
                        worker.send()
                    yield chunk, answer
    finally:
        for worker in pool:
            worker.stop()


def serve(start: Start, pipe: Connection) -> None:
    """The main function of a worker: chunks in, shards out, until the pipe ends."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        filler = start()
        pipe.send(READY)
        while True:
            try:
                chunk = pipe.recv()
            except EOFError:
                return
            pipe.send(filler.fill(chunk))
    except (BrokenPipeError, KeyboardInterrupt):
        return
    except UserError as error:
        pipe.send(UserError(str(error), field=error.field))
    except BaseException as error:
        pipe.send(RuntimeError(f"a worker failed: {error}\n{traceback.format_exc()}"))


def _exit_with_parent() -> None:
    """End this process when the one that started it ends, in whatever way."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
