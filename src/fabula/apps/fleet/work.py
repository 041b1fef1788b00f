"""A chunk of rows to a shard's content: the unit of work, the same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fabula.apps.fleet.shards import Encoded, encode
from fabula.sampling.many import FillsTogether, Item, fill_rows


class Chunk(NamedTuple):
    """Rows that follow each other in the input; `number` is their shard's."""

    number: int
    items: Sequence[Item]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is done with every chunk. It travels to other processes, so `load` is a function that can be pickled."""

    load: Callable[[], FillsTogether]
    together: int
    """Rows that are filled in at once; they are counted from the beginning of the input."""
    seed: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    format: str = "jsonl"

    def begin(self) -> Callable[[Chunk], Encoded]:
        """The model is loaded, once for a worker."""
        narrator = self.load()

        def fill(chunk: Chunk) -> Encoded:
            results: list[dict[str, Any]] = []
            for first in range(0, len(chunk.items), self.together):
                results += fill_rows(narrator, chunk.items[first : first + self.together], self.seed, self.defaults)
            return encode(results, self.format)

        return fill
