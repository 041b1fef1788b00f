"""What annotators do: fetch the next pair, and answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fabula.apps.judge.judgement import check_code, check_ratings
from fabula.apps.judge.pairs import Sentences
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import Choice
from fabula.apps.web.errors import RefusedError


@dataclass(frozen=True)
class ShownItem:
    """What an annotator sees of an item."""

    item: int
    left: Sentences
    right: Sentences


@dataclass(frozen=True)
class Task:
    """What an annotator is to do next."""

    task: ShownItem | None
    answered: Annotated[int, Field(description="What this annotator has judged so far.")]
    ahead: Annotated[int, Field(description="Pairs that still want a judgement of theirs, this one among them.")]
    study: Annotated[str, Field(description="The study's own name, for what a browser keeps of it.")]
    code: Annotated[str, Field(description="The code as the study has it: without capitals.")]


def next_task(store: Store, code: str) -> Task:
    """The first pair of the study's order that wants a judgement, and has none of this annotator."""
    code = check_code(code).lower()
    with store.read() as db:
        (study, settings), items = store.study(), store.items()
        answered = {number for (number,) in db.execute("SELECT number FROM judge_judgements WHERE code = ?", (code,))}
        judged = dict(db.execute("SELECT number, count(*) FROM judge_judgements GROUP BY number").fetchall())
    open_items = [item for item in items if judged.get(item.number, 0) < settings.annotators]
    unanswered = [item for item in open_items if item.number not in answered]
    task = ShownItem(unanswered[0].number, *unanswered[0].sides()) if unanswered else None
    return Task(task, len(answered), len(unanswered), study, code)


def answer(
    store: Store, code: str, number: int, sides: Sequence[Sequence[int]], choice: Choice, seconds: float
) -> bool:
    """Keep an annotator's answer as the page gives it, by side; returns whether it is new.

    The same answer sent again is kept once. A pair that others have finished meanwhile gets one judgement more.
    """
    code = check_code(code).lower()
    with store.write():
        items = store.items()
        if not 1 <= number <= len(items):
            raise RefusedError(404, f"the study has no item {number}", field="item")
        item = items[number - 1]
        ratings, better = check_ratings(item.pair, sides[::-1] if item.swapped else sides), item.better(choice)
        previous = store.judgement_of(item.pair.id, code)
        if previous is not None:
            if (previous.ratings, previous.better) != (ratings, better):
                raise RefusedError(409, "you have judged this pair already, and otherwise", field="item")
            return False
        store.add(item.pair.id, code, ratings, better, seconds)
        return True
