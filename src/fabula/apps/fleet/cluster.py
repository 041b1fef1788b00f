"""Workers on a Ray cluster: actors with a model each; Ray starts one again that dies, and has its chunk done again.

Plain actors, and not Ray Data: a job here is a stream that is read in order (ids must be met once), cut into chunks
that are shards, and these are written by one process, which makes "every row once" a matter of a rename. Ray Data would
cut, schedule and write blocks of its own, and has no names for outputs that a second run could look for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fabula.apps.fleet.shards import Encoded
from fabula.apps.fleet.work import Chunk, Work
from fabula.errors import UserError

NEEDS = "--engine ray needs Ray: install fabula-stories[fleet]"
OBJECTS = 256 << 20
"""Bytes of the object store that is started here: chunks and shards in flight are far smaller."""

ATTEMPTS = 3
"""Times that a cluster is asked for: Ray gives a new one thirty seconds to come up, which a busy machine may need."""


@dataclass(frozen=True)
class Cluster:
    """So many actors, on the cluster at an address, else on one that is started on this machine for the job."""

    workers: int
    address: str | None = None
    gpus: int = 0
    """Of each worker."""

    def run(self, work: Work, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        try:
            import ray
        except ImportError as error:
            raise UserError(NEEDS, field="engine") from error
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        here: dict[str, Any] = {
            "num_cpus": self.workers, "include_dashboard": False, "object_store_memory": OBJECTS,
            "_node_ip_address": "127.0.0.1",
        }  # fmt: skip
        for attempt in range(ATTEMPTS):
            try:
                ray.init(**({"address": self.address} if self.address else here), log_to_driver=False)
                break
            except Exception as error:  # Ray raises plain ones here
                ray.shutdown()
                if attempt == ATTEMPTS - 1:
                    where = f"at {self.address}" if self.address else "could be started here"
                    raise UserError(f"no Ray cluster {where}: {str(error)[:200]}", field="address") from error
        filler: Any = ray.remote(num_cpus=1, num_gpus=self.gpus, max_restarts=-1, max_task_retries=-1)(Filler)
        try:
            pending: dict[Any, tuple[Any, Chunk]] = {}
            for chunk in _some(chunks, self.workers):
                actor = filler.remote(work)
                pending[actor.fill.remote(chunk)] = (actor, chunk)
            while pending:
                (found,), _ = ray.wait(list(pending), num_returns=1)
                actor, done = pending.pop(found)
                try:
                    shard = ray.get(found)
                except ray.exceptions.RayActorError:
                    # Its machine is lost: another actor, elsewhere.
                    actor = filler.remote(work)
                    pending[actor.fill.remote(done)] = (actor, done)
                    continue
                except ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, UserError) else error from None
                if (more := next(chunks, None)) is not None:
                    pending[actor.fill.remote(more)] = (actor, more)
                else:
                    ray.kill(actor)
                yield done, shard
        finally:
            ray.shutdown()


class Filler:
    """What an actor does: the model is loaded once."""

    def __init__(self, work: Work) -> None:
        self._fill = work.begin()

    def fill(self, chunk: Chunk) -> Encoded:
        return self._fill(chunk)


def _some(chunks: Iterator[Chunk], n: int) -> Iterator[Chunk]:
    """Up to n chunks; none is taken beyond them."""
    for _ in range(n):
        chunk = next(chunks, None)
        if chunk is None:
            return
        yield chunk
