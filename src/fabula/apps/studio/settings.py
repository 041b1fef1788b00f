"""What a studio is told at its start, and the limits that it keeps and tells."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from fabula.apps.web.database import default_path
from fabula.apps.web.guard import MAX_BODY
from fabula.corpus.read import MAX_SENTENCES, MIN_SENTENCES
from fabula.sampling.settings import MOST_OVER_HTTP

SENTENCES = (MIN_SENTENCES, MAX_SENTENCES)
WORDS = 60
"""Of one sentence, between blanks. The command line takes more; here others wait in the queue."""
PIECES = 120
"""Words and marks of one sentence: `!!!!` is four of them, each a step of the model's."""
CHARACTERS = 1_000
CANDIDATES = 10
SAMPLES = MOST_OVER_HTTP
USUAL_SAMPLES = 50
"""Samples of a request that does not say how many, at most."""
SNAPSHOTS = 100
"""Steps that a branch keeps to undo, to redo, and of what was taken from the model."""
TRAY = 60
"""Candidates that a branch keeps."""
SEEDS = 2**53 - 1
"""The largest whole number that a browser holds exactly."""


@dataclass(frozen=True, kw_only=True)
class StudioSettings:
    """One studio."""

    model: str = "default"
    """The model that requests get unless they name one: an installed name, or a folder."""
    db: Path = field(default_factory=lambda: default_path("studio.db"))
    host: str = "127.0.0.1"
    token: str | None = None
    names: frozenset[str] = frozenset()
    """Further names that it may be asked for: those of a reverse proxy."""
    origins: frozenset[str] = frozenset()
    """Pages of other addresses that may ask (CORS); of `fabula serve` only."""
    workers: int = field(default_factory=lambda: min(2, os.cpu_count() or 1))
    """Batches of jobs at once, one thread each."""
    queue: int = 32
    """Jobs that may wait; beyond, 429."""
    limit: float = 300.0
    """Seconds of computing that one job may have."""
    device: str = "cpu"
    threads: int | None = None
    """Of each job; None: what OMP_NUM_THREADS says, else one."""
    max_body: int = MAX_BODY
    loaded: int = 2
    """Models held in memory at once."""

    def __post_init__(self) -> None:
        if self.workers < 1 or self.queue < 0 or self.loaded < 1 or self.limit <= 0:
            raise ValueError("workers and loaded are at least 1, queue at least 0, limit above 0")
