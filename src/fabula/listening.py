"""Words while they are written: whoever listens hears the text so far of one sample, and changes nothing of it.

    with listening(lambda lines: print(lines)):      # {2: "The tree gr"}, by number of the line from 1
        ...

Without a listener a decoder asks once a sentence whether there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

SECONDS = 0.12
"""The least time between two reports."""


class Listener:
    """Gathers the lines of the one sample that is listened to."""

    def __init__(self, hear: Callable[[dict[int, str]], None]) -> None:
        self._hear = hear
        self._decode: Callable[[int, Sequence[int]], str] | None = None
        self._hidden = 0
        self._lines: dict[int, str] = {}
        self._speaker: object = None
        self._next = 0.0

    def begin(self, decode: Callable[[int, Sequence[int]], str], hidden: int) -> None:
        """`decode`: the text of a line's tokens, by its place from 0; `hidden`: lines before the story."""
        self._decode, self._hidden = decode, hidden

    def tokens(self, place: int, tokens: Callable[[], Sequence[int]], ended: bool = False) -> None:
        """The tokens so far of a line; they are asked for only if it is time to report, or the line has ended."""
        if self._decode is not None and (ended or time.monotonic() >= self._next):
            self.lines(None, {place + 1 - self._hidden: self._decode(place, tokens())}, ended)

    def lines(self, speaker: object, lines: dict[int, str], ended: bool = False) -> None:
        """The text so far of lines; of several speakers the first is heard."""
        self._speaker = self._speaker or speaker
        if speaker is not self._speaker:
            return
        self._lines |= lines
        if ended or time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS
            self._hear(dict(self._lines))


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def listener() -> Listener | None:
    """Whoever listens to this thread's work."""
    return _listener.get()


@contextmanager
def listening(hear: Callable[[dict[int, str]], None]) -> Iterator[None]:
    """Inside, `hear` is called with the lines so far, at most about eight times a second and at the end of a line."""
    before = _listener.set(Listener(hear))
    try:
        yield
    finally:
        _listener.reset(before)
