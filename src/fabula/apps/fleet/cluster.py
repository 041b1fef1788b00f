"""Workers on a Ray cluster: actors with a model each; Ray restarts one that dies, and repeats its chunk.

Plain actors, not Ray Data: a job is a stream that is read in order, cut into chunks that become shards. One process
writes them, so that a rename makes "every row once" true. Ray Data would name its outputs differently in a second run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from fabula.apps.fleet.engines import Chunk, Filler, Start
from fabula.apps.fleet.shards import Shard
from fabula.errors import UserError

OBJECT_STORE_BYTES = 256 << 20
"""Of a cluster that is started here: chunks and shards in flight are far smaller."""
ATTEMPTS = 3
"""To start a cluster: Ray gives a new one thirty seconds to come up, which a busy machine may exceed."""


def run(
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
