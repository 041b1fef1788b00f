"""Worker processes of this machine, each with a model of its own; one that dies is replaced, and its chunk done again.

Workers are started afresh (spawn), so that no lock or thread of this process lives on in them. A worker holds one chunk
at a time, and reads the next from its pipe. When this process dies, however it dies, the pipe ends, and the worker too.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from fabula.apps.fleet.shards import Encoded
from fabula.apps.fleet.work import Chunk, Work
from fabula.errors import UserError

MOST_DEATHS = 20
"""A chunk that so many workers die of, one after the other, stops the job: more memory or fewer workers are needed."""

READY = "ready"
"""What a worker says when its model is loaded."""


@dataclass
class Worker:
    """A process, both ends' pipe, and the chunk that it has."""

    process: Any
    pipe: Connection
    lifeline: Connection
    chunk: Chunk

    def begin(self) -> None:
        """Hand over the chunk; the worker waits for it. One that has just died is found by its sentinel."""
        with suppress(OSError):
            self.pipe.send(self.chunk)

    def end(self) -> None:
        self.lifeline.close()
        self.pipe.close()
        self.process.join()


@dataclass(frozen=True)
class Local:
    """So many workers on this machine."""

    workers: int

    def run(self, work: Work, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        context = multiprocessing.get_context("spawn")
        waiting: list[Chunk] = []
        deaths: dict[int, int] = {}
        team: list[Worker] = []

        def next_chunk() -> Chunk | None:
            return waiting.pop() if waiting else next(chunks, None)

        def hire(chunk: Chunk) -> None:
            here, there = context.Pipe()
            alive, lifeline = context.Pipe(duplex=False)
            process = context.Process(target=serve, args=(work, there, alive), daemon=True)
            process.start()
            there.close()
            alive.close()
            team.append(Worker(process, here, lifeline, chunk))

        try:
            while len(team) < self.workers and (chunk := next_chunk()) is not None:
                hire(chunk)
            while team:
                ready = set(wait([handle for w in team for handle in (w.pipe, w.process.sentinel)]))
                for worker in [w for w in team if w.pipe in ready or w.process.sentinel in ready]:
                    try:
                        # What a worker sent before it died counts.
                        answer = worker.pipe.recv() if worker.pipe.poll() else None
                    except (EOFError, OSError):
                        answer = None
                    if isinstance(answer, BaseException):
                        raise answer
                    if answer is None:
                        team.remove(worker)
                        worker.process.kill()
                        worker.end()
                        number = worker.chunk.number
                        deaths[number] = deaths.get(number, 0) + 1
                        if deaths[number] >= MOST_DEATHS:
                            told = f"{MOST_DEATHS} workers have died of chunk {number} (exit {worker.process.exitcode})"
                            raise UserError(f"{told}; run again with fewer workers or a smaller batch size")
                        hire(worker.chunk)
                        continue
                    if answer == READY:
                        worker.begin()
                        continue
                    done, deaths = worker.chunk, {}
                    chunk = next_chunk()
                    if chunk is None:
                        team.remove(worker)
                        worker.end()
                    else:
                        worker.chunk = chunk
                        worker.begin()
                    yield done, answer
        finally:
            for worker in team:
                worker.process.kill()
                worker.end()


def serve(work: Work, pipe: Connection, alive: Connection) -> None:
    """A worker's life: chunks in, shards out, until the pipe ends."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    try:
        fill = work.begin()
        pipe.send(READY)
        while True:
            try:
                chunk = pipe.recv()
            except EOFError:
                return
            pipe.send(fill(chunk))
    except (BrokenPipeError, KeyboardInterrupt):
        return
    except UserError as error:
        pipe.send(UserError(str(error), field=error.field))
    except BaseException as error:
        pipe.send(RuntimeError(f"a worker failed: {error}\n{traceback.format_exc()}"))


def _end_with(alive: Connection) -> None:
    """Ends this process when the one that started it is gone; nothing is ever sent."""
    try:
        alive.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
