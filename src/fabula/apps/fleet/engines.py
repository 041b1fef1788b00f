"""The unit of work, a chunk of rows that becomes a shard, and the engine that does it in this process.

An engine is a generator of (chunk, shard) in any order. It takes chunks as it has room for them, which bounds the
memory. The other engines are `local.run` and `cluster.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fabula.apps.fleet.shards import Shard, encode
from fabula.sampling.many import FillsTogether, Item, fill_rows

ENGINES = ("inline", "local", "ray")


class Chunk(NamedTuple):
    """Consecutive rows of the input; `number` is that of their shard."""

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
        results: list[dict[str, Any]] = []
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
