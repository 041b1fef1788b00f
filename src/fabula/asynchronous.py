"""A narrator for programs that wait for many things at once (asyncio).

>>> import asyncio
>>> async def both() -> list[bool]:
...     async with await AsyncNarrator.load("small") as narrator:
...         tagging, score = await asyncio.gather(
...             narrator.tag(["Tom was sad and cried."]), narrator.score(["Tom was sad.", "Tom smiled."], samples=2)
...         )
...     return [tagging.tags == ("negative",), score.log_p < 0]
>>> asyncio.run(both())
[True, True]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

from fabula.api import Narrator, load
from fabula.device import use_threads

R = TypeVar("R")
NOTHING: Any = object()


def _awaited(method: Callable[..., R]) -> Callable[..., Coroutine[Any, Any, R]]:
    """A method of the narrator that is awaited."""

    @wraps(method)
    async def call(self: AsyncNarrator, *args: Any, **kwargs: Any) -> R:
        return await self.run(partial(method, self.narrator, *args, **kwargs))

    return call


def _iterated(method: Callable[..., Iterator[R]]) -> Callable[..., AsyncIterator[R]]:
    """A method of the narrator whose answers come one by one, for `async for`."""

    @wraps(method)
    async def call(self: AsyncNarrator, *args: Any, **kwargs: Any) -> AsyncIterator[R]:
        answers = await self.run(partial(method, self.narrator, *args, **kwargs))
        while (answer := await self.run(partial(next, answers, NOTHING))) is not NOTHING:
            yield answer

    return call


class AsyncNarrator:
    """A narrator whose methods are awaited, with the arguments and answers of `Narrator`'s.

    The work is done in one thread, a call after another in the order of asking, while the event loop goes on;
    `fill_iter` and `fill_many` let others in between two answers. Whoever stops waiting is not answered, but the thread
    finishes what it has begun. Many stories are written sooner by `fill_many` than by many calls of `fill`.
    """

    def __init__(self, narrator: Narrator) -> None:
        self.narrator = narrator
        self._thread = ThreadPoolExecutor(1, "fabula-narrator", initializer=use_threads)

    @staticmethod
    async def load(
        name_or_path: str | Path = "default", device: str = "cpu", threads: int | None = None
    ) -> AsyncNarrator:
        """`fabula.load`, awaited."""
        return AsyncNarrator(await asyncio.to_thread(load, name_or_path, device, threads))

    fill = _awaited(Narrator.fill)
    write = _awaited(Narrator.write)
    tag = _awaited(Narrator.tag)
    score = _awaited(Narrator.score)
    judge = _awaited(Narrator.judge)
    explain = _awaited(Narrator.explain)
    posterior = _awaited(Narrator.posterior)
    mentions = _awaited(Narrator.mentions)
    fill_iter = _iterated(Narrator.fill_iter)
    fill_many = _iterated(Narrator.fill_many)

    async def run(self, work: Callable[[], R]) -> R:
        """Any other work with the narrator, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread, when it has done what was asked."""
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> AsyncNarrator:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
