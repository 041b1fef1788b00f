"""A job: rows in, shards out; killed anywhere and run again, every row has its result once.

A chunk of rows becomes a shard, in this process or in worker processes: generators of (chunk, shard) in any order. They
take chunks as they have room, which bounds the memory.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from importlib import metadata
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from fabula import __version__
from fabula.apps.fleet.rows import check_files, estimated_rows, fingerprint, read_items
from fabula.apps.fleet.shards import Output, Shard, write_shard
from fabula.errors import UserError
from fabula.models.defaults import sampling_defaults
from fabula.sampling.many import FillsTogether, Item, fill_rows, together
from fabula.sampling.protocol import DEFAULT, resolve, sampler_named
from fabula.sampling.settings import whole_number
from fabula.servers import PREFIX, find_server

SMALL_JOB, SMALL_GROUP = 256, 4
"""Rows of a small job on a CPU, and of its groups: there a kill costs seconds, and workers share what there is."""
SHARD = 256
"""Rows of a shard of other jobs, where a group has fewer: millions of rows should not be a hundred thousand files."""
MAX_DEATHS = 20
"""Workers that die one after the other, with no chunk done between, stop the job: it needs more memory or fewer."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be done. Everything but the workers is part of the result."""

    files: Sequence[Path]
    out: Path
    model: str = "default"
    device: str = "cpu"
    threads: int | None = None
    seed: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `fill` for rows that do not say them."""
    id_column: str | None = None
    """The column, or the key, of the rows' ids where it is not `id` or `storyid`."""
    workers: int | None = None
    """Processes, each with its model; None: this process alone."""

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole_number("workers", self.workers, at_least=1)
        if self.model.startswith(PREFIX) and self.workers is not None:
            raise UserError("a model on a server needs no workers: its requests are parallel anyway", field="workers")
        check_files(self.files)

    @cached_property
    def rows(self) -> int:
        """About how many rows are to be read."""
        return sum(map(estimated_rows, self.files))

    @property
    def group(self) -> int:
        """Rows that are filled in together: by the input and the device alone, so that results never depend on more."""
        small = self.rows <= SMALL_JOB and self.device == "cpu"
        return min(SMALL_GROUP, together(self.device)) if small else together(self.device)

    @property
    def shard(self) -> int:
        """Rows of a shard: whole groups."""
        return self.group if self.group == SMALL_GROUP else max(self.group, SHARD)

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting that applies to rows which choose none: those given, the model's, the sampler's."""
        sampler = sampler_named(self.defaults.get("sampler", DEFAULT))
        values, candidates, _ = resolve(sampler, sampling_defaults(self.model), {**self.defaults, "seed": self.seed})
        return {"candidates": candidates, "sampler": sampler.name, **asdict(values)}


def run(job: Job, load: Callable[[], FillsTogether] | None = None, bar: bool = False) -> dict[str, Any]:
    """Do what is left of a job; returns the manifest with the time that this run took."""
    began = time.perf_counter()
    facts = {
        "model": job.model, "model_hash": model_hash(job.model) if load is None else "", "device": job.device,
        "seed": job.seed, "settings": job.settings, "together": job.group,
        "id_column": job.id_column, "input": [fingerprint(path) for path in job.files],
    }  # fmt: skip
    output = Output(job.out)
    if load is None:
        from fabula.api import load as load_model  # imports torch, which takes seconds

        load = partial(load_model, job.model, job.device, job.threads)
    work = Work(load, job.seed, job.defaults, job.group, output.path)
    first_error = ""
    with output.opened(facts):
        already = sum(rows for rows, _ in output.counts.values())
        with tqdm(desc="filling in", unit=" rows", disable=not bar, initial=already, total=job.rows) as progress:
            to_do = chunks(job, output)
            done = run_inline(work, to_do) if job.workers is None else run_workers(work, to_do, job.workers)
            for chunk, shard in done:
                output.keep(chunk.number, shard)
                first_error = first_error or shard.first_error
                progress.update(shard.rows)
        seconds = time.perf_counter() - began
        made_with = {"fabula": __version__, "torch": metadata.version("torch"), "python": sys.version.split()[0]}
        manifest = output.describe(facts, finished=True, made_with=made_with, first_error=first_error)
    took = {"already": already, "seconds": round(seconds, 3)}
    return {**manifest, **took, "rows_per_second": round((manifest["rows"] - already) / seconds, 3)}


def chunks(job: Job, output: Output) -> Iterator[Chunk]:
    """The shards of rows without a result, in their order; rows are read when they are needed."""
    items = read_items(job.files, job.id_column)
    done = {row for first, (rows, _) in output.counts.items() for row in range(first, first + rows, job.group)}
    for first in count(0, job.shard):
        rows = list(islice(items, job.shard))
        if not rows:
            return
        if first not in done:
            yield Chunk(first, rows)


def model_hash(name: str) -> str:
    """A digest of every file of a model, its base included."""
    from fabula.api import find
    from fabula.models.io import files_of

    digest = hashlib.blake2b(digest_size=16)
    if name.startswith(PREFIX):
        server = find_server(name.removeprefix(PREFIX))
        digest.update(repr((server.address, server.model, server.api, server.window, server.again)).encode())
        return digest.hexdigest()
    for path in files_of(find(name)):
        digest.update(path.name.encode())
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "blake2b").digest())
    return digest.hexdigest()


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
