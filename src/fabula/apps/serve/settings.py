"""Settings of a server with a model, and the limits of a request."""

from __future__ import annotations

from dataclasses import dataclass

from fabula.apps.web.options import MAX_BODY
from fabula.corpus.read import MAX_SENTENCES, MIN_SENTENCES
from fabula.sampling.settings import MOST_OVER_HTTP

SENTENCES = (MIN_SENTENCES, MAX_SENTENCES)
WORDS = 60  # of one sentence, between blanks. The command line takes more; here other requests wait in the queue.
PIECES = 120  # words and punctuation marks of one sentence: `!!!!` is four of them, each a step of the model
CHARACTERS = 1_000
CANDIDATES = 10
SAMPLES = MOST_OVER_HTTP
USUAL_SAMPLES = 50  # the most samples of a request that does not set their number
SEEDS = 2**53 - 1  # the largest integer that a browser holds exactly


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """One server."""

    model: str = "default"
    """The model of requests that name none: an installed name, or a folder."""
    host: str = "127.0.0.1"
    token: str | None = None
    names: frozenset[str] = frozenset()
    """Further values of the Host header that are accepted: those of a reverse proxy."""
    origins: frozenset[str] = frozenset()
    """Web pages of other addresses that may send requests (CORS); of `fabula serve` only."""
    workers: int = 2
    """Jobs at the same time, one thread each: a short one need not wait for a long one."""
    queue: int = 32
    """Jobs that may wait; a further request is answered with 429."""
    device: str = "cpu"
    threads: int | None = None
    """Of each job; None: OMP_NUM_THREADS, else one."""
    max_body: int = MAX_BODY
    loaded: int = 2
    """Models in memory at the same time."""
