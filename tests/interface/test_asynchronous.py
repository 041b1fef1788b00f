"""A model that is awaited gives the answers of the other one, while the event loop goes on."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import fabula
from fabula import AsyncStoryModel, StoryModel, UserError
from own_loop import run_alone

STORY = ["Mia's car would not start.", None, "Mia made it to work on time."]
ROWS: list[dict[str, Any]] = [{"id": n, "sentences": STORY, "candidates": 2} for n in range(3)] + [{"id": "bad"}]


def texts(filling: fabula.Filling) -> list[str]:
    return [candidate.text for candidate in filling.candidates]


def words(result: fabula.FilledRow) -> Any:
    """Of a result of `fill_many`, without figures: their last bit may differ."""
    return result.error or [candidate.text for candidate in result.candidates]


def test_answers_are_those_of_the_narrator(random_models: Path) -> None:
    model = fabula.load(random_models / "default")

    async def main() -> None:
        async with AsyncStoryModel(model) as waiting:
            first, second = await asyncio.gather(*(waiting.fill(STORY, samples=3, seed=n) for n in (1, 2)))
            assert [texts(first), texts(second)] == [texts(model.fill(STORY, samples=3, seed=n)) for n in (1, 2)]
            many = [one async for one in waiting.fill_many(ROWS, samples=3)]
            assert list(map(words, many)) == list(map(words, model.fill_many(ROWS, samples=3)))
            *_, last = [one async for one in waiting.fill_iter(STORY, samples=20)]
            assert texts(last) == texts(model.fill(STORY, samples=20))
            with pytest.raises(UserError, match="samples"):
                await waiting.fill(STORY, samples=0)
        with pytest.raises(RuntimeError):
            await waiting.tag(["Tom was sad."])

    run_alone(main())


def test_the_loop_goes_on_while_the_model_works(random_models: Path) -> None:
    """The work can only end when the event loop says so: were it done in the loop, both would wait for ever."""
    let_go = threading.Event()

    async def main() -> None:
        async with await AsyncStoryModel.load(random_models / "default") as model:
            working = asyncio.create_task(model.run(lambda: let_go.wait(60)))
            await asyncio.sleep(0)
            let_go.set()
            assert await working

    run_alone(main())


def test_a_cancelled_call_ends(random_models: Path) -> None:
    """Work that never ends by itself: the next call has its turn only if cancelling ends it."""
    begun = threading.Event()

    def endless() -> None:
        begun.set()
        while True:
            torch.zeros(1)

    async def main() -> None:
        async with await AsyncStoryModel.load(random_models / "default") as model:
            working = asyncio.create_task(model.run(endless))
            await asyncio.to_thread(begun.wait, 60)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert await asyncio.wait_for(model.run(lambda: 3), 60) == 3

    run_alone(main())


def test_nothing_of_the_narrator_is_missing() -> None:
    """All but what answers at once, and `fill_together`, which is the servers' way in."""
    quick = {"count_tokens", "usual_samples", "settings", "sampler", "read_values", "read_tags", "knows_language"}
    quick.add("fill_together")
    public = {name for name in dir(StoryModel) if not name.startswith("_")}
    assert {name for name in public - quick if callable(getattr(StoryModel, name))} <= set(dir(AsyncStoryModel))
    waiting, plain = (inspect.signature(kind.fill).parameters for kind in (AsyncStoryModel, StoryModel))
    assert waiting.keys() == plain.keys()


def test_many_results_are_a_table(random_models: Path) -> None:
    model = fabula.load(random_models / "default")
    rows = fabula.many_rows(model.fill_many(ROWS, samples=3))
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert all(isinstance(value, str | int | float | None) for row in rows for value in row.values())
    assert len(rows) == 3 * 2 * 3 + 1
    assert rows[0].keys() == {"row", "id", *model.fill(STORY, samples=1).rows()[0], "error"}
    assert (rows[0]["id"], rows[0]["text"], rows[0]["error"]) == (0, STORY[0], None)
    assert (rows[-1]["id"], rows[-1]["text"], rows[-1]["error"]) == ("bad", None, "no list `sentences`")
