"""Words while they are written: whoever listens hears the text so far of one sample, and changes nothing of it.

with listening(print): ...      # {2: "The tree gr"}, by number of the line from 1
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

SECONDS = 0.12  # the least time between two reports
Hear = Callable[[dict[int, str]], None]
Decode = Callable[[int, Sequence[int]], str]


class Listener:
    """Gathers the lines of the one sample that is listened to."""

    def __init__(self, hear: Hear) -> None:
        self._hear, self._hidden, self._next = hear, 0, 0.0
        self._decode: Decode = lambda *_: ""
        self._lines: dict[int, str] = {}
        self._speaker: object = None

    def begin(self, decode: Decode, hidden: int) -> None:
        """`decode`: the text of a line's tokens, by its place from 0; `hidden`: lines before the story."""
        self._decode, self._hidden = decode, hidden

    def tokens(self, place: int, tokens: Callable[[], Sequence[int]], ended: bool = False) -> None:
        """The tokens so far of a line; they are asked for only if it is time to report, or the line has ended."""
        if ended or time.monotonic() >= self._next:
            self.lines(None, {place + 1 - self._hidden: self._decode(place, tokens())}, ended)

    def lines(self, speaker: object, lines: dict[int, str], ended: bool = False) -> None:
        """The text so far of lines; of several speakers the first is heard."""
        self._speaker = self._speaker or speaker
        if speaker is self._speaker:
            self._lines |= lines
            if ended or time.monotonic() >= self._next:
                self._next = time.monotonic() + SECONDS
                self._hear(dict(self._lines))


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
listener = _listener.get


@contextmanager
def listening(hear: Hear) -> Iterator[None]:
    """Inside, `hear` is called with the lines so far, at most about eight times a second and at the end of a line."""
    before = _listener.set(Listener(hear))
    try:
        yield
    finally:
        _listener.reset(before)
