"""What annotators do: fetch the next pair, and answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fabula.apps.judge.judgement import check_code, check_ratings
from fabula.apps.judge.pairs import Sentences
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import Choice, next_item
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
    ahead: Annotated[int, Field(description="Pairs that they may still get, this one among them.")]
    waiting: Annotated[bool, Field(description="Nothing to do just now, but a pair may come free.")]
    study: Annotated[str, Field(description="The study's own name, for what a browser keeps of it.")]
    code: Annotated[str, Field(description="The code as the study has it: without capitals.")]


def next_task(store: Store, code: str) -> Task:
    """The item that this annotator was shown last and has not answered, else another one.

    The item is reserved for them for a while, so that two people do not both take a pair's last place.
    """
    code, now = check_code(code).lower(), store.clock()
    with store.write() as db:
        (study, settings), items = store.study(), store.items()
        answered = {number for (number,) in db.execute("SELECT number FROM judge_judgements WHERE code = ?", (code,))}
        by_number = "SELECT number, count(*) FROM {} WHERE code != ? GROUP BY number"
        judged = dict(db.execute(by_number.format("judge_judgements"), (code,)).fetchall())
        leases = f"(SELECT * FROM judge_leases WHERE ends > {now!r})"
        held = dict(db.execute(by_number.format(leases), (code,)).fetchall())
        taken = {number: judged.get(number, 0) + held.get(number, 0) for number in {*judged, *held}}
        unanswered = [item for item in items if item.number not in answered]
        ahead = sum(taken.get(item.number, 0) < settings.annotators for item in unanswered)
        waiting = any(judged.get(item.number, 0) < settings.annotators for item in unanswered)
        lease = db.execute("SELECT * FROM judge_leases WHERE code = ?", (code,)).fetchone()
        item, begun = (None, now) if lease is None else (items[lease["number"] - 1], lease["begun"])
        if item is None or taken.get(item.number, 0) >= settings.annotators:
            item, begun = next_item(items, settings, code, answered, taken), now
        if item is not None:
            lease = (code, item.number, begun, now + store.lease_seconds)
            db.execute("INSERT OR REPLACE INTO judge_leases VALUES (?, ?, ?, ?)", lease)
    task = None if item is None else ShownItem(item.number, *item.sides())
    return Task(task, len(answered), ahead, item is None and waiting, study, code)


def answer(
    store: Store, code: str, number: int, sides: Sequence[Sequence[int]], choice: Choice, seconds: float
) -> bool:
    """Keep an annotator's answer as the page gives it, by side; returns whether it is new.

    The same answer sent again is kept once. The time is at most the time since the item was shown.
    """
    code, now = check_code(code).lower(), store.clock()
    with store.write() as db:
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
        lease = db.execute("SELECT * FROM judge_leases WHERE code = ? AND number = ?", (code, number)).fetchone()
        if lease is None:
            raise RefusedError(409, "this pair was not given to you: fetch the next one", field="item")
        if lease["ends"] <= now:
            # The reservation has expired: whoever holds the pair now takes precedence.
            held = store.count("judge_leases WHERE number = ? AND code != ? AND ends > ?", number, code, now)
            judged = store.count("judge_judgements WHERE number = ?", number)
            if held + judged >= store.settings().annotators:
                message = "this pair went to somebody else meanwhile: fetch the next one"
                raise RefusedError(409, message, field="item")
        shown = min(seconds, max(0.0, now - lease["begun"]))
        store.add(item.pair.id, code, ratings, better, shown)
        return True
