"""A study and its answers in one SQLite file.

Every write is one transaction, on disk when the call returns: an acknowledged answer survives a crash.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from fabula.apps.judge.judgement import ErrorSheet, Judgement, check_code, check_ratings
from fabula.apps.judge.pairs import PAIR
from fabula.apps.judge.study import Item, StudySettings
from fabula.apps.web.database import Database
from fabula.apps.web.errors import RefusedError
from fabula.errors import UserError

FORMAT = 2

SCHEMA = """
CREATE TABLE IF NOT EXISTS judge_study (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, format INTEGER NOT NULL, settings TEXT NOT NULL,
    created INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS judge_curator (one INTEGER PRIMARY KEY CHECK (one = 1), key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS judge_items (
    number INTEGER PRIMARY KEY, pair TEXT NOT NULL UNIQUE, content TEXT NOT NULL, swapped INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS judge_judgements (
    id INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL REFERENCES judge_items (number), code TEXT NOT NULL,
    ratings TEXT NOT NULL, better INTEGER, seconds REAL NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
    UNIQUE (number, code)
);
CREATE TABLE IF NOT EXISTS judge_errors (
    number INTEGER NOT NULL REFERENCES judge_items (number), story INTEGER NOT NULL, ending INTEGER NOT NULL,
    off_topic INTEGER NOT NULL, ungrammatical TEXT NOT NULL, updated INTEGER NOT NULL, PRIMARY KEY (number, story)
);
"""
JUDGEMENTS = """
SELECT pair, code AS annotator, ratings, better, seconds
FROM judge_judgements JOIN judge_items USING (number)
"""
SHEETS = """
SELECT pair, story, ending, off_topic, ungrammatical FROM judge_errors JOIN judge_items USING (number)
ORDER BY number, story
"""
SHEET = TypeAdapter(ErrorSheet)


class Store:
    """A file with at most one study in it."""

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        """Opens the file, making it where `create` allows."""
        self.path = Path(path)
        self._items: tuple[str, list[Item]] | None = None
        if not create and not self.path.is_file():
            raise UserError(f"there is no study at {self.path}: make one with fabula judge new PAIRS.jsonl --db FILE")
        database = Database(self.path, SCHEMA)
        self.read, self.write, self.close = database.read, database.write, database.close

    def count(self, rows: str, *values: object) -> int:
        """The number of rows of a table, or of what follows FROM in a query."""
        with self.read() as db:
            return int(db.execute(f"SELECT count(*) FROM {rows}", values).fetchone()[0])

    # --- the study ---------------------------------------------------------------------------------------------------

    def create_study(self, items: Sequence[Item], settings: StudySettings, *, force: bool = False) -> None:
        """Begin a study in this file; one with answers is never overwritten.

        `force` replaces a study without answers.
        """
        with self.write() as db:
            if answers := self.count("judge_judgements"):
                message = f"{self.path} holds a study with {answers:,} answers, which is not overwritten"
                raise RefusedError(409, f"{message}: name another file", field="db")
            if not force and self.count("judge_study"):
                message = f"{self.path} holds a study already: name another file with --db, or replace it with --force"
                raise RefusedError(409, message, field="db")
            if self.count("sqlite_master WHERE name = 'story'"):
                raise RefusedError(
                    409, f"{self.path} belongs to fabula studio: name another file with --db", field="db"
                )
            for table in ("errors", "items", "study"):
                db.execute(f"DELETE FROM judge_{table}")
            study = (secrets.token_hex(8), FORMAT, json.dumps(asdict(settings)), int(time.time()))
            db.execute("INSERT INTO judge_study VALUES (1, ?, ?, ?, ?)", study)
            rows = [(item.number, item.pair.id, json.dumps(asdict(item.pair)), item.swapped) for item in items]
            db.executemany("INSERT INTO judge_items VALUES (?, ?, ?, ?)", rows)

    def curator_key(self) -> str:
        """The key to what annotators must not see; it is made once for a file."""
        with self.write() as db:
            db.execute("INSERT OR IGNORE INTO judge_curator VALUES (1, ?)", (secrets.token_urlsafe(24),))
            return str(db.execute("SELECT key FROM judge_curator").fetchone()["key"])

    def settings(self) -> StudySettings:
        return self.study()[1]

    def study(self) -> tuple[str, StudySettings]:
        """The study's id and settings."""
        with self.read() as db:
            row = db.execute("SELECT * FROM judge_study").fetchone()
        if row is None:
            message = f"there is no study in {self.path.name}: name its file with --db"
            raise RefusedError(404, f"{message}, or make one with fabula judge new")
        if row["format"] != FORMAT:
            raise UserError(f"{self.path} was written by another version of Fabula (format {row['format']})")
        settings = json.loads(row["settings"])
        return row["id"], StudySettings(seed=settings["seed"], annotators=settings["annotators"])

    def items(self) -> list[Item]:
        """The study's items in their order."""
        with self.read() as db:
            study, _ = self.study()
            if self._items is None or self._items[0] != study:  # read once for each study
                rows = db.execute("SELECT number, content, swapped FROM judge_items ORDER BY number").fetchall()
                items = [Item(number=n, pair=PAIR.validate_json(text), swapped=bool(turn)) for n, text, turn in rows]
                self._items = (study, items)
            return self._items[1]

    def item_of(self, pair: str) -> Item:
        with self.read() as db:
            items = self.items()
            row = db.execute("SELECT number FROM judge_items WHERE pair = ?", (pair,)).fetchone()
        if row is None:
            raise RefusedError(404, f"the study has no pair {pair[:80]!r}", field="pair")
        return items[int(row["number"]) - 1]

    # --- judgements --------------------------------------------------------------------------------------------------

    def judgements(self) -> list[Judgement]:
        """Judgements in the order they came."""
        with self.read() as db:
            return [_judgement(row) for row in db.execute(f"{JUDGEMENTS} ORDER BY id")]

    def judgement_of(self, pair: str, code: str) -> Judgement | None:
        """What this annotator said about the pair."""
        with self.read() as db:
            row = db.execute(f"{JUDGEMENTS} WHERE pair = ? AND code = ?", (pair, code)).fetchone()
        return None if row is None else _judgement(row)

    def add(self, pair: str, code: str, ratings: Sequence[Sequence[int]], better: int | None, seconds: float) -> None:
        """Keep a judgement of now, by story of the pair, unless this annotator has judged it."""
        with self.write() as db:
            item, now = self.item_of(pair), int(time.time())
            if self.judgement_of(pair, code) is not None:
                raise RefusedError(409, f"{code} has judged pair {pair!r} already", field="annotator")
            valid = json.dumps(check_ratings(item.pair, ratings))
            row = (item.number, check_code(code), valid, better, round(seconds, 3), now, now)
            db.execute("INSERT INTO judge_judgements VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)

    # --- the error sheet ---------------------------------------------------------------------------------------------

    def keep_errors(self, sheet: ErrorSheet) -> None:
        """Keep a curator's answers about one story, replacing earlier ones."""
        with self.write() as db:
            item = self.item_of(sheet.pair)
            written, given = len(item.pair.written(sheet.story)), len(sheet.ungrammatical)
            if given != written:
                raise UserError(f"{given} answers for {written} written sentences", field="ungrammatical")
            answers = (sheet.ending, sheet.off_topic, json.dumps(sheet.ungrammatical), int(time.time()))
            values = (item.number, sheet.story, *answers)
            db.execute("INSERT OR REPLACE INTO judge_errors VALUES (?, ?, ?, ?, ?, ?)", values)

    def error_sheets(self) -> list[ErrorSheet]:
        with self.read() as db:
            self.study()
            rows = [{**row, "ungrammatical": json.loads(row["ungrammatical"])} for row in db.execute(SHEETS)]
            return [SHEET.validate_python(row) for row in rows]


def _judgement(row: sqlite3.Row) -> Judgement:
    return Judgement(**{**row, "ratings": tuple(map(tuple, json.loads(row["ratings"])))})
