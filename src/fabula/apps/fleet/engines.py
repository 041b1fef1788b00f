"""Where chunks are worked on: in this process, in worker processes, or on a Ray cluster.

An engine takes chunks as it has room for them, which bounds the memory, and gives results in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from fabula.apps.fleet.shards import Encoded
from fabula.apps.fleet.work import Chunk, Work

ENGINES = ("inline", "local", "ray")


@runtime_checkable
class Engine(Protocol):
    def run(self, work: Work, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Encoded]]: ...


class Inline:
    """One chunk after the other, here."""

    def run(self, work: Work, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        fill = None
        for chunk in chunks:
            # Not before there is something to do: a finished job needs no model.
            fill = fill or work.begin()
            yield chunk, fill(chunk)
