"""A study and its answers in one SQLite file.

Every write is one transaction, on disk when the call returns: an acknowledged answer survives a crash.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fabula.apps.judge.pairs import PAIR, Sentences
from fabula.apps.judge.study import Choice, Item, StudySettings
from fabula.apps.web.database import Database
from fabula.apps.web.errors import RefusedError
from fabula.errors import UserError

FORMAT = 2

SCHEMA = """
CREATE TABLE IF NOT EXISTS judge_study (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, format INTEGER NOT NULL, settings TEXT NOT NULL,
    created INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS judge_items (
    number INTEGER PRIMARY KEY, pair TEXT NOT NULL UNIQUE, content TEXT NOT NULL, swapped INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS judge_judgements (
    id INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL REFERENCES judge_items (number), code TEXT NOT NULL,
    ratings TEXT NOT NULL, better INTEGER, seconds REAL NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
    UNIQUE (number, code)
)
"""


@dataclass(frozen=True)
class Judgement:
    """An answer, by story of the pair, whichever side the story stood on."""

    pair: str
    annotator: str
    ratings: tuple[tuple[int, ...], ...]
    """For each of the two stories, a rating of every sentence but the first."""
    better: int | None
    """The story that connects its beginning and end better, None for a tie."""
    seconds: float
    """Time the pair was looked at."""


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


class Store:
    """A file with at most one study in it."""

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        """Opens the file, making it where `create` allows."""
        self.path = Path(path)
        self._items: list[Item] = []
        if not create and not self.path.is_file():
            raise UserError(f"there is no study at {self.path}: make one with fabula judge new PAIRS.jsonl --db FILE")
        database = Database(self.path, SCHEMA, table="judge_study")
        self.read, self.write, self.close = database.read, database.write, database.close

    def create_study(self, items: Sequence[Item], settings: StudySettings) -> None:
        """Begin a study in this file; one that is there is never overwritten."""
        with self.write() as db:
            if db.execute("SELECT 1 FROM judge_study").fetchone():
                raise RefusedError(409, f"{self.path} holds a study already: name another file with --db", field="db")
            study = (secrets.token_hex(8), FORMAT, json.dumps(asdict(settings)), int(time.time()))
            db.execute("INSERT INTO judge_study VALUES (1, ?, ?, ?, ?)", study)
            rows = [(item.number, item.pair.id, json.dumps(asdict(item.pair)), item.swapped) for item in items]
            db.executemany("INSERT INTO judge_items VALUES (?, ?, ?, ?)", rows)

    def study(self) -> tuple[str, StudySettings]:
        """The study's id and settings."""
        with self.read() as db:
            row = db.execute("SELECT * FROM judge_study").fetchone()
        if row is None:
            message = f"there is no study in {self.path.name}: name its file with --db"
            raise RefusedError(404, f"{message}, or make one with fabula judge new")
        if row["format"] != FORMAT:
            raise UserError(f"{self.path} was written by another version of Fabula (format {row['format']})")
        return row["id"], StudySettings(**json.loads(row["settings"]))

    def items(self) -> list[Item]:
        """The study's items in their order. They are read once, because a study never changes."""
        if not self._items:
            with self.read() as db:
                self.study()
                rows = db.execute("SELECT number, content, swapped FROM judge_items ORDER BY number")
                self._items = [
                    Item(number=number, pair=PAIR.validate_json(content), swapped=bool(swapped))
                    for number, content, swapped in rows
                ]
        return self._items

    def judgements(self, annotator: str | None = None) -> list[Judgement]:
        """Judgements in the order they came, of all annotators or of one."""
        with self.read() as db:
            rows = db.execute(
                "SELECT pair, code, ratings, better, seconds FROM judge_judgements JOIN judge_items USING (number) "
                "WHERE code = coalesce(?, code) ORDER BY id",
                (annotator,),
            )
            return [
                Judgement(pair, code, tuple(map(tuple, json.loads(ratings))), better, seconds)
                for pair, code, ratings, better, seconds in rows
            ]

    def next_task(self, code: str) -> Task:
        """The first pair of the study's order that wants a judgement, and has none of this annotator."""
        code = code.lower()
        with self.read() as db:
            (study, settings), items = self.study(), self.items()
            rows = db.execute("SELECT number FROM judge_judgements WHERE code = ?", (code,))
            answered = {number for (number,) in rows}
            judged = dict(db.execute("SELECT number, count(*) FROM judge_judgements GROUP BY number").fetchall())
        open_items = [item for item in items if judged.get(item.number, 0) < settings.annotators]
        unanswered = [item for item in open_items if item.number not in answered]
        task = ShownItem(unanswered[0].number, *unanswered[0].sides()) if unanswered else None
        return Task(task, len(answered), len(unanswered), study, code)

    def answer(self, code: str, number: int, sides: Sequence[Sequence[int]], choice: Choice, seconds: float) -> bool:
        """Keep an annotator's answer as the page gives it, by side; returns whether it is new.

        The same answer sent again is kept once. A pair that others have finished meanwhile gets one judgement more.
        """
        with self.write():
            items = self.items()
            if not 1 <= number <= len(items):
                raise RefusedError(404, f"the study has no item {number}", field="item")
            item = items[number - 1]
            for side, (sentences, ratings) in enumerate(zip(item.sides(), sides, strict=True)):
                if len(ratings) != len(sentences) - 1:
                    fault = f"{len(ratings)} ratings for {len(sentences) - 1} sentences: all but the first have one"
                    raise UserError(fault, field=f"ratings[{side}]")
            first, second = sides[::-1] if item.swapped else sides
            by_story, better = (tuple(first), tuple(second)), item.better(choice)
            for previous in self.judgements(code.lower()):
                if previous.pair == item.pair.id:
                    if (previous.ratings, previous.better) != (by_story, better):
                        raise RefusedError(409, "you have judged this pair already, and otherwise", field="item")
                    return False
            self.add(item.pair.id, code.lower(), by_story, better, seconds)
            return True

    def add(self, pair: str, code: str, ratings: Sequence[Sequence[int]], better: int | None, seconds: float) -> None:
        """Write a judgement, by story of the pair."""
        now = int(time.time())
        values = (code, json.dumps(ratings), better, round(seconds, 3), now, now, pair)
        with self.write() as db:
            select = "SELECT NULL, number, ?, ?, ?, ?, ?, ? FROM judge_items WHERE pair = ?"
            db.execute(f"INSERT INTO judge_judgements {select}", values)
