"""What annotators do: fetch the next pair, answer it, and look at their last answer again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fabula.apps.judge.judgement import Ratings, check_code, check_ratings, check_seconds
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
    known: Annotated[bool, Field(description="Whether the code had been here before.")]
    study: Annotated[str, Field(description="The study's own name, for what a browser keeps of it.")]
    code: Annotated[str, Field(description="The code as the study has it: without capitals.")]


@dataclass(frozen=True)
class PreviousItem(ShownItem):
    """What an annotator judged last, as it was answered."""

    ratings: Annotated[Ratings, Field(description="Of the left story, then the right.")]
    choice: Choice


def next_task(store: Store, code: str) -> Task:
    """The item that this annotator was shown last and has not answered, else another one.

    The item is reserved for them for a while, so that two people do not both take a pair's last place.
    """
    check_code(code)
    now = store.clock()
    with store.write() as db:
        (study, settings), items = store.study(), store.items()
        code = _admit(store, code)
        known = store.count("judge_annotators WHERE code = ?", code) > 0
        answered = {number for (number,) in db.execute("SELECT number FROM judge_judgements WHERE code = ?", (code,))}
        by_number = "SELECT number, count(*) FROM {} WHERE code != ? GROUP BY number"
        judged = dict(db.execute(by_number.format("judge_judgements"), (code,)).fetchall())
        leases = f"(SELECT * FROM judge_leases WHERE ends > {now!r})"
        held = dict(db.execute(by_number.format(leases), (code,)).fetchall())
        taken = {number: judged.get(number, 0) + held.get(number, 0) for number in {*judged, *held}}
        unanswered = [item for item in items if item.number not in answered]
        pairs = [item for item in unanswered if not item.pair.is_check]
        ahead = sum(taken.get(item.number, 0) < settings.annotators for item in pairs)
        if ahead:  # checks count as pairs do: otherwise the count would give them away
            ahead += len(unanswered) - len(pairs)
        waiting = any(judged.get(item.number, 0) < settings.annotators for item in pairs)
        lease = db.execute("SELECT * FROM judge_leases WHERE code = ?", (code,)).fetchone()
        item, begun = (None, now) if lease is None else (items[lease["number"] - 1], lease["begun"])
        if item is None or (not item.pair.is_check and taken.get(item.number, 0) >= settings.annotators):
            item, begun = next_item(items, settings, code, answered, taken), now
        if item is not None:
            lease = (code, item.number, begun, now + store.lease_seconds)
            db.execute("INSERT OR REPLACE INTO judge_leases VALUES (?, ?, ?, ?)", lease)
            db.execute("INSERT OR IGNORE INTO judge_annotators VALUES (?, ?)", (code, int(now)))
    task = None if item is None else ShownItem(item.number, *item.sides())
    return Task(task, len(answered), ahead, item is None and waiting, known, study, code)


def answer(
    store: Store, code: str, number: int, sides: Sequence[Sequence[int]], choice: Choice, seconds: float,
    again: bool = False,
) -> bool:  # fmt: skip
    """Keep an annotator's answer as the page gives it, by side; returns whether it is new.

    The same answer sent again is kept once. With `again`, another answer to the pair that this annotator judged last
    replaces it. The time is at most the time since the item was shown.
    """
    check_code(code)
    now = store.clock()
    with store.write() as db:
        items, code = store.items(), _admit(store, code)
        if not 1 <= number <= len(items):
            raise RefusedError(404, f"the study has no item {number}", field="item")
        item = items[number - 1]
        ratings, better = check_ratings(item.pair, sides[::-1] if item.swapped else sides), item.better(choice)
        previous = store.judgement_of(item.pair.id, code)
        if previous is not None:
            if (previous.ratings, previous.better) != (ratings, better):
                if not again or _last_id(store, code) != previous.id:
                    raise RefusedError(409, "you have judged this pair already, and otherwise", field="item")
                store.replace(previous.id, ratings, better, previous.seconds)
            return False
        lease = db.execute("SELECT * FROM judge_leases WHERE code = ? AND number = ?", (code, number)).fetchone()
        if lease is None:
            raise RefusedError(409, "this pair was not given to you: fetch the next one", field="item")
        if lease["ends"] <= now and not item.pair.is_check:
            # The reservation has expired: whoever holds the pair now takes precedence.
            held = store.count("judge_leases WHERE number = ? AND code != ? AND ends > ?", number, code, now)
            judged = store.count("judge_judgements WHERE number = ?", number)
            if held + judged >= store.settings().annotators:
                message = "this pair went to somebody else meanwhile: fetch the next one"
                raise RefusedError(409, message, field="item")
        shown = min(check_seconds(seconds), max(0.0, now - lease["begun"]))
        store.add(item.pair.id, code, ratings, better, shown)
        return True


def previous_item(store: Store, code: str) -> PreviousItem | None:
    """What this annotator judged last; None where they have judged nothing."""
    check_code(code)
    with store.read():
        last = _last_id(store, _admit(store, code))
        if not last:
            return None
        judgement = store.judgement(last)
        (item,) = (item for item in store.items() if item.pair.id == judgement.pair)
        ratings = judgement.ratings[::-1] if item.swapped else judgement.ratings
        return PreviousItem(item.number, *item.sides(), ratings, item.choice(judgement.better))


def _last_id(store: Store, code: str) -> int:
    """The id of this annotator's last judgement; 0 where they have judged nothing."""
    with store.read() as db:
        return int(db.execute("SELECT max(id) FROM judge_judgements WHERE code = ?", (code,)).fetchone()[0] or 0)


def _admit(store: Store, code: str) -> str:
    """The code as the study has it, in lower case, or a refusal where it is not invited.

    Whoever was here before the list, or before capitals stopped counting, keeps their code.
    """
    query = "SELECT code FROM judge_annotators WHERE lower(code) = lower(?) ORDER BY code = ? DESC, code"
    with store.read() as db:
        if row := db.execute(query, (code, code)).fetchone():
            return str(row["code"])
    if store.count("judge_invited") and not store.count("judge_invited WHERE code = ?", code.lower()):
        message = "this code is not on the list of this study: look at your invitation again"
        raise RefusedError(403, message, field="code")
    return code.lower()
