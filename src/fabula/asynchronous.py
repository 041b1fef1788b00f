"""A model for programs that wait for many things at once (asyncio).

>>> import asyncio
>>> async def both() -> list[bool]:
...     async with await AsyncStoryModel.load("small") as model:
...         tagging, score = await asyncio.gather(
...             model.tag(["Tom was sad and cried."]), model.score(["Tom was sad.", "Tom smiled."], samples=2)
...         )
...     return [tagging.tags == ("negative",), score.log_p < 0]
>>> asyncio.run(both())
[True, True]
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

from fabula.api import StoryModel, load
from fabula.device import use_threads
from fabula.interrupt import Interruptible

R = TypeVar("R")
NOTHING: Any = object()


def _awaited(method: Callable[..., R]) -> Callable[..., Coroutine[Any, Any, R]]:
    """A method of the model that is awaited."""

    @wraps(method)
    async def call(self: AsyncStoryModel, *args: Any, **kwargs: Any) -> R:
        return await self.run(partial(getattr(self.model, method.__name__), *args, **kwargs))

    return call


def _iterated(method: Callable[..., Iterator[R]]) -> Callable[..., AsyncIterator[R]]:
    """A method of the model whose answers come one by one, for `async for`."""

    @wraps(method)
    async def call(self: AsyncStoryModel, *args: Any, **kwargs: Any) -> AsyncIterator[R]:
        answers = await self.run(partial(method, self.model, *args, **kwargs))
        while (answer := await self.run(partial(next, answers, NOTHING))) is not NOTHING:
            yield answer

    return call


class AsyncStoryModel:
    """A model whose methods are awaited, with the arguments and answers of `StoryModel`'s.

    One thread does the work, call after call, while the event loop goes on; `fill_iter` and `fill_many` let others in
    between two answers. A call that is cancelled ends soon. `fill_many` is faster than many `fill` calls.
    """

    def __init__(self, model: StoryModel) -> None:
        self.model = model
        self._thread = ThreadPoolExecutor(1, "fabula-model", initializer=use_threads)

    @staticmethod
    async def load(
        name_or_path: str | Path | None = "default", device: str = "cpu", threads: int | None = None
    ) -> AsyncStoryModel:
        """`fabula.load`, awaited."""
        return AsyncStoryModel(await asyncio.to_thread(load, name_or_path, device, threads))

    fill = _awaited(StoryModel.fill)
    write = _awaited(StoryModel.write)
    tag = _awaited(StoryModel.tag)
    score = _awaited(StoryModel.score)
    judge = _awaited(StoryModel.judge)
    explain = _awaited(StoryModel.explain)
    words = _awaited(StoryModel.words)
    posterior = _awaited(StoryModel.posterior)
    mentions = _awaited(StoryModel.mentions)
    fill_iter = _iterated(StoryModel.fill_iter)
    fill_many = _iterated(StoryModel.fill_many)

    async def run(self, work: Callable[[], R]) -> R:
        """Any other work with the model, in its thread; cancelled, it ends at its next operation on tensors."""
        left = threading.Event()

        def check() -> None:
            if left.is_set():
                raise InterruptedError("the call was cancelled")

        def interruptible() -> R:
            with Interruptible(check):
                return work()

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, interruptible)
        except asyncio.CancelledError:
            left.set()
            raise

    def close(self) -> None:
        """End the thread when its calls are done."""
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> AsyncStoryModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
