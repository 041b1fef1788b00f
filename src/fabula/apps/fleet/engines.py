"""The unit of work, a chunk of rows that becomes a shard, and the three engines that do it.

An engine is a generator of (chunk, shard) in any order. It takes chunks as it has room, which bounds the memory.

For worker processes, `concurrent.futures.ProcessPoolExecutor` will not do: its workers share one result pipe, and a
worker that is killed while it writes a shard blocks that pipe for ever. Here every worker has a pipe, which ends when
either side dies. Workers are spawned, so that they inherit no lock or thread of this process.

On a cluster, plain Ray actors, not Ray Data: a job is a stream that is read in order, cut into chunks that become
shards. One process writes them, so that a rename makes "every row once" true. Ray Data would name its outputs
differently in a second run.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from fabula.apps.fleet.shards import Shard, encode
from fabula.errors import UserError
from fabula.sampling.many import FilledRow, FillsTogether, Item, fill_rows

MAX_DEATHS = 20
"""A chunk at which so many workers die stops the job: it needs more memory or fewer workers."""
READY = "ready"
"""Sent by a worker whose model is loaded: a chunk sent earlier could block this process."""
OBJECT_STORE_BYTES = 256 << 20
"""Of a cluster that is started here: chunks and shards in flight are far smaller."""
ATTEMPTS = 3
"""To start a cluster: Ray gives a new one thirty seconds to come up, which a busy machine may exceed."""


class Chunk(NamedTuple):
    """Consecutive rows of the input; `number` is that of their shard: how many rows stand before them."""

    number: int
    items: Sequence[Item]


class Filler:
    """A model, loaded once in each process, that fills in chunks."""

    def __init__(
        self, load: Callable[[], FillsTogether], together: int, seed: int, defaults: Mapping[str, Any], format: str
    ) -> None:
        """`together` rows are filled in as one batch, counted from the beginning of the input."""
        self.model, self.together, self.seed, self.defaults, self.format = load(), together, seed, defaults, format

    def fill(self, chunk: Chunk) -> Shard:
        results: list[FilledRow] = []
        for first in range(0, len(chunk.items), self.together):
            results += fill_rows(self.model, chunk.items[first : first + self.together], self.seed, self.defaults)
        return encode(results, self.format)


Start = partial[Filler]
"""Makes a filler. It is sent to other processes, so that its arguments can be pickled."""


def run_inline(start: Start, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Shard]]:
    """One chunk after the other in this process."""
    filler = None
    for chunk in chunks:
        filler = filler or start()  # only when there is something to do: a finished job needs no model
        yield chunk, filler.fill(chunk)


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


def run_local(start: Start, chunks: Iterator[Chunk], workers: int) -> Iterator[tuple[Chunk, Shard]]:
    """Processes of this machine, each with its model; one that dies is replaced, and its chunk is repeated."""
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


def run_on_ray(
    start: Start, chunks: Iterator[Chunk], workers: int, address: str | None, gpus: int
) -> Iterator[tuple[Chunk, Shard]]:
    """Actors on the cluster at an address, else on one that is started on this machine; each has so many GPUs."""
    ray = _connect(workers, address)
    filler = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=-1)(Filler)
    pending: dict[Any, tuple[Any, Chunk]] = {}

    def submit(actor: Any, chunk: Chunk) -> None:
        actor = actor or filler.remote(*start.args, **start.keywords)
        pending[actor.fill.remote(chunk)] = (actor, chunk)

    try:
        for chunk in islice(chunks, workers):
            submit(None, chunk)
        while pending:
            (finished,), _ = ray.wait(list(pending), num_returns=1)
            actor, chunk = pending.pop(finished)
            try:
                shard = ray.get(finished)
            except ray.exceptions.RayActorError:
                submit(None, chunk)  # its machine is lost: another actor, elsewhere
                continue
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, UserError) else error from None
            if (following := next(chunks, None)) is not None:
                submit(actor, following)
            else:
                ray.kill(actor)
            yield chunk, shard
    finally:
        ray.shutdown()


def _connect(workers: int, address: str | None) -> Any:
    """The module `ray`, connected to a cluster."""
    try:
        import ray
    except ImportError as error:
        raise UserError("--engine ray needs Ray: install fabula-stories[fleet]", field="engine") from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"address": address}
    if not address:
        options = {"num_cpus": workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        options["object_store_memory"] = OBJECT_STORE_BYTES
    for attempt in range(ATTEMPTS):
        try:
            ray.init(**options, log_to_driver=False)
            break
        except Exception as error:  # Ray raises plain exceptions here
            ray.shutdown()
            if attempt == ATTEMPTS - 1:
                where = f"at {address}" if address else "could be started here"
                raise UserError(f"no Ray cluster {where}: {str(error)[:200]}", field="address") from error
    return ray
