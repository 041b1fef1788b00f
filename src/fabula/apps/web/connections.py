"""Limits on connections, silence, guessed tokens and repeated log lines, before any request reaches the application."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import OrderedDict, defaultdict, deque
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADER_SECONDS = 10.0  # from a connection, or from the first byte of a request, to the end of its headers
CONNECTIONS = 512  # open connections, at most; then the one that has been silent longest is closed
BACKLOG = 256  # connections that the system holds until they are accepted
TRIES, TRIES_SECONDS = 10, 60.0
"""Wrong tokens of one address in so many seconds; a further one has to wait, right or wrong."""
ADDRESSES = 10_000  # addresses whose wrong tokens are remembered, at most
LOG_TIMES, LOG_SECONDS = 20, 60.0  # how often the log has the same line in so many seconds


class Connections:
    """The open connections, the longest silent first."""

    def __init__(self, most: int = CONNECTIONS) -> None:
        self.most = most
        self.open: OrderedDict[Any, None] = OrderedDict()

    def add(self, connection: Any) -> None:
        self.open[connection] = None
        if len(self.open) > self.most:
            unused = next((other for other in self.open if other.cycle is None), None)
            idle = unused or next((other for other in self.open if other.is_idle), connection)
            self.remove(idle)
            idle.transport.abort()

    def remove(self, connection: Any) -> None:
        self.open.pop(connection, None)


def protocol(connections: Connections) -> type[asyncio.Protocol]:
    """uvicorn's protocol with a timeout for headers and a place among the connections."""

    class TimedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        timer: asyncio.TimerHandle | None = None

        @property
        def is_idle(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_timer()
            connections.add(self)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self.is_idle:
                self._stop_timer()
            elif self.timer is None:
                self._start_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            connections.remove(self)
            super().connection_lost(exc)

        def _start_timer(self) -> None:
            self.timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._time_out)

        def _stop_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def _time_out(self) -> None:
            self.timer = None
            if self.is_idle and not self.transport.is_closing():
                self.transport.close()

    return TimedProtocol


def raise_file_limit() -> None:
    """Allow as many open files as connections, the model and the database need, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * (CONNECTIONS + BACKLOG)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Throttle:
    """The times of wrong tokens, by address."""

    def __init__(self, tries: int = TRIES, seconds: float = TRIES_SECONDS) -> None:
        self.tries, self.seconds = tries, seconds
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until this address may try again; 0 where it may now."""
        times = self._wrong.get(address, deque())
        return max(0.0, times[0] + self.seconds - time.monotonic()) if len(times) >= self.tries else 0.0

    def wrong(self, address: str) -> None:
        self._wrong.setdefault(address, deque(maxlen=self.tries)).append(time.monotonic())
        self._wrong.move_to_end(address)
        while len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)


class RateLimitFilter(logging.Filter):
    """Passes the same message only so often, so that strangers cannot fill the disk through the log."""

    def __init__(self, times: int = LOG_TIMES, seconds: float = LOG_SECONDS) -> None:
        super().__init__()
        self.times, self.seconds = times, seconds
        self._seen: dict[tuple[str, str], list[float]] = defaultdict(lambda: [time.monotonic(), 0])

    def filter(self, record: logging.LogRecord) -> bool:
        if len(self._seen) > 1000:
            self._seen.clear()
        seen = self._seen[record.name, str(record.msg)[:80]]
        if time.monotonic() - seen[0] > self.seconds:
            seen[:] = [time.monotonic(), 0]
        seen[1] += 1
        if seen[1] == self.times:
            record.msg = f"{record.getMessage()} (said {self.times} times; the next come in {self.seconds:.0f} s)"
            record.args = ()
        return seen[1] <= self.times


def limit_logs() -> None:
    """Limit every logger that a stranger can make write."""
    for name in ("asyncio", "uvicorn", "uvicorn.error", "uvicorn.access", "fabula.apps.web.errors"):
        logging.getLogger(name).addFilter(RateLimitFilter())
