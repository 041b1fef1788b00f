"""Before any request is read: how many may be connected, how long they may say nothing, and how often wrong is said."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import OrderedDict, deque
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADER_SECONDS = 10.0
"""From a connection, or from the first byte of a request, to the end of its headers."""
CONNECTIONS = 512
"""Open at once; beyond, whoever has been silent longest is hung up on."""
BACKLOG = 256
"""Connections that the system holds until they are taken; as many are taken in one go."""
TRIES, TRIES_SECONDS = 10, 60.0
"""Wrong tokens from one address in so many seconds; the next has to wait, right or wrong."""
ADDRESSES = 10_000
"""Whose wrong tokens are remembered, at most."""
SAID, SAID_SECONDS = 20, 60.0
"""How often the log says the same in so many seconds."""


class Connections:
    """Those who are connected, the longest silent first."""

    def __init__(self, most: int = CONNECTIONS) -> None:
        self.most = most
        self.open: OrderedDict[Any, None] = OrderedDict()

    def add(self, one: Any) -> None:
        self.open[one] = None
        if len(self.open) > self.most:
            silent = next((other for other in self.open if other.is_new), None)
            idle = silent or next((other for other in self.open if other.is_idle), one)
            self.remove(idle)
            idle.transport.abort()

    def remove(self, one: Any) -> None:
        self.open.pop(one, None)


def protocol(connections: Connections) -> type[asyncio.Protocol]:
    """uvicorn's protocol, with a clock and a place among the connections."""

    class Patient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        clock: asyncio.TimerHandle | None = None

        @property
        def is_new(self) -> bool:
            """Whether nothing was ever asked here."""
            return self.cycle is None

        @property
        def is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()
            connections.add(self)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self.is_idle:
                self._rest()
            elif self.clock is None:
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._rest()
            connections.remove(self)
            super().connection_lost(exc)

        def _wait(self) -> None:
            self.clock = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._late)

        def _rest(self) -> None:
            if self.clock is not None:
                self.clock.cancel()
                self.clock = None

        def _late(self) -> None:
            self.clock = None
            if self.is_idle and not self.transport.is_closing():
                self.transport.close()

    return Patient


def make_room() -> None:
    """As many open files as the system lets us have: connections, and what the model and the database need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * (CONNECTIONS + BACKLOG)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Throttle:
    """Wrong tokens, by address."""

    def __init__(self, tries: int = TRIES, seconds: float = TRIES_SECONDS) -> None:
        self.tries, self.seconds = tries, seconds
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until this address may try again; 0 where it may now."""
        wrong = self._wrong.get(address)
        if wrong is None or len(wrong) < self.tries:
            return 0.0
        return max(0.0, wrong[0] + self.seconds - time.monotonic())

    def wrong(self, address: str) -> None:
        times = self._wrong.setdefault(address, deque(maxlen=self.tries))
        times.append(time.monotonic())
        self._wrong.move_to_end(address)
        while len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)


class Seldom(logging.Filter):
    """The same words only so often: a log does not grow because somebody knocks without end."""

    def __init__(self, times: int = SAID, seconds: float = SAID_SECONDS) -> None:
        super().__init__()
        self.times, self.seconds = times, seconds
        self._said: dict[tuple[str, str], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        words = (record.name, str(record.msg)[:80])
        if len(self._said) > 1000:
            self._said.clear()
        said = self._said.setdefault(words, [now, 0])
        if now - said[0] > self.seconds:
            said[:] = [now, 0]
        said[1] += 1
        if said[1] == self.times:
            record.msg = f"{record.getMessage()} (said {self.times} times; the next come in {self.seconds:.0f} s)"
            record.args = ()
        return said[1] <= self.times


def quieten() -> None:
    """Every logger that a stranger can make speak."""
    for name in ("asyncio", "uvicorn", "uvicorn.error", "uvicorn.access", "fabula.apps.web.errors"):
        logging.getLogger(name).addFilter(Seldom())
