"""The unit of work, a chunk of rows that becomes a shard, and the engine that does it in this process.

The other engines are `local.WorkerPool` and `cluster.RayCluster`. An engine takes chunks as it has room for them, which
bounds the memory, and gives shards in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from fabula.apps.fleet.shards import Shard, encode
from fabula.sampling.many import FillsTogether, Item, fill_rows

ENGINES = ("inline", "local", "ray")


class Chunk(NamedTuple):
    """Consecutive rows of the input; `number` is that of their shard."""

    number: int
    items: Sequence[Item]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is done with every chunk. It is sent to other processes, so `load` can be pickled."""

    load: Callable[[], FillsTogether]
    together: int
    """Rows that are filled in as one batch, counted from the beginning of the input."""
    seed: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    format: str = "jsonl"

    def start(self) -> Callable[[Chunk], Shard]:
        """Load the model; returns the function that fills in a chunk."""
        model = self.load()

        def fill(chunk: Chunk) -> Shard:
            results: list[dict[str, Any]] = []
            for first in range(0, len(chunk.items), self.together):
                results += fill_rows(model, chunk.items[first : first + self.together], self.seed, self.defaults)
            return encode(results, self.format)

        return fill


@runtime_checkable
class Engine(Protocol):
    def run(self, work: Work, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Shard]]: ...


class Inline:
    """One chunk after the other in this process."""

    def run(self, work: Work, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Shard]]:
        fill = None
        for chunk in chunks:
            fill = fill or work.start()  # only when there is something to do: a finished job needs no model
            yield chunk, fill(chunk)
