"""A study and its answers in one SQLite file.

Every write is one transaction, on disk when the call returns: an acknowledged answer survives a crash.
The tables are called judge_…, so that a study can share the studio's file.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fabula.apps.judge.judgement import ErrorSheet, Judgement, Ratings, check_code, check_ratings, check_seconds
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.study import Item, StudySettings, next_item
from fabula.apps.web.database import Database
from fabula.apps.web.errors import RefusedError
from fabula.errors import UserError

FORMAT = 1
LEASE_SECONDS = 1800.0
"""How long a pair is reserved for the annotator who was shown it last."""
MAX_INTEGER = 2**63 - 1
"""The largest integer of SQLite."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS judge_study (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, format INTEGER NOT NULL, settings TEXT NOT NULL,
    created INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS judge_items (
    number INTEGER PRIMARY KEY, pair TEXT NOT NULL UNIQUE, content TEXT NOT NULL, swapped INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS judge_invited (code TEXT PRIMARY KEY, created INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS judge_annotators (code TEXT PRIMARY KEY, created INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS judge_leases (
    code TEXT PRIMARY KEY, number INTEGER NOT NULL REFERENCES judge_items (number), begun REAL NOT NULL,
    ends REAL NOT NULL
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
JUDGEMENTS = "judge_judgements JOIN judge_items USING (number)"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an annotator is to do next."""

    item: Item | None
    """None where nothing is left to do at the moment."""
    answered: int
    """Pairs and checks that this annotator has judged."""
    ahead: int
    """Pairs and checks that they may still get, this one among them."""
    waiting: bool
    """Whether a pair may become free, because another annotator's reservation may expire."""
    known: bool
    """Whether the code was used before."""
    study: str
    """The study's id, under which a browser keeps drafts."""
    code: str
    """The annotator's code as the study has it."""


class Store:
    """A file with at most one study in it."""

    def __init__(
        self, path: str | Path, *, create: bool = True, clock: Callable[[], float] = time.time,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:  # fmt: skip
        """Opens the file, making it where `create` allows. `clock` is for tests."""
        self.path, self.clock, self.lease_seconds = Path(path), clock, lease_seconds
        self._cached_items: tuple[str, list[Item]] | None = None
        if not create and not self.path.is_file():
            raise UserError(f"there is no study at {self.path}: make one with fabula judge new PAIRS.jsonl --db FILE")
        self._database = Database(self.path, SCHEMA)

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: what it has read cannot have changed when it writes."""
        with self._database.write() as db:
            db.row_factory = sqlite3.Row
            yield db

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._database.read() as db:
            db.row_factory = sqlite3.Row
            yield db

    # --- the study ---------------------------------------------------------------------------------------------------

    def create_study(self, items: Sequence[Item], settings: StudySettings, *, force: bool = False) -> None:
        """Begin a study in this file; one with answers is never overwritten.

        `force` replaces a study without answers, and begins one beside the studio's stories.
        """
        with self._write() as db:
            if answers := _number(db, "SELECT count(*) FROM judge_judgements"):
                message = f"{self.path} holds a study with {answers:,} answers, which is not overwritten"
                raise RefusedError(409, f"{message}: name another file", field="db")
            if not force:
                self._check_free(db)
            for table in ("errors", "leases", "invited", "annotators", "items", "study"):
                db.execute(f"DELETE FROM judge_{table}")
            row = (secrets.token_hex(8), FORMAT, json.dumps(asdict(settings)), int(self.clock()))
            db.execute("INSERT INTO judge_study VALUES (1, ?, ?, ?, ?)", row)
            rows = [(item.number, item.pair.id, json.dumps(asdict(item.pair)), item.swapped) for item in items]
            db.executemany("INSERT INTO judge_items VALUES (?, ?, ?, ?)", rows)

    def _check_free(self, db: sqlite3.Connection) -> None:
        """Refuse a file that holds a study or the studio's stories."""
        if db.execute("SELECT 1 FROM judge_study").fetchone():
            message = f"{self.path} holds a study already: name another file with --db, or replace it with --force"
        elif db.execute("SELECT 1 FROM sqlite_master WHERE name = 'story'").fetchone():
            message = f"{self.path} belongs to fabula studio: name another file with --db, or keep both in it with"
            message += " --force"
        else:
            return
        raise RefusedError(409, message, field="db")

    def settings(self) -> StudySettings:
        with self._read() as db:
            return self._study(db)[1]

    def _study(self, db: sqlite3.Connection) -> tuple[str, StudySettings]:
        """The study's id and settings."""
        row = db.execute("SELECT * FROM judge_study").fetchone()
        if row is None:
            message = f"there is no study in {self.path.name}: name its file with --db, or make one with"
            raise RefusedError(404, f"{message} fabula judge new")
        if row["format"] != FORMAT:
            raise UserError(f"{self.path} was written by another version of Fabula (format {row['format']})")
        return row["id"], StudySettings(**json.loads(row["settings"]))

    def items(self) -> list[Item]:
        """The study's items in their order."""
        with self._read() as db:
            return self._items(db)

    def _items(self, db: sqlite3.Connection) -> list[Item]:
        """The items, read once for each study."""
        study, _ = self._study(db)
        if self._cached_items is None or self._cached_items[0] != study:
            rows = db.execute("SELECT * FROM judge_items ORDER BY number")
            self._cached_items = (study, [_item(row) for row in rows])
        return self._cached_items[1]

    def _item_of(self, db: sqlite3.Connection, pair: str) -> Item:
        items = self._items(db)
        row = db.execute("SELECT number FROM judge_items WHERE pair = ?", (pair,)).fetchone()
        if row is None:
            raise RefusedError(404, f"the study has no pair {pair[:80]!r}", field="pair")
        return items[int(row["number"]) - 1]

    # --- annotators --------------------------------------------------------------------------------------------------

    def next_task(self, code: str) -> Task:
        """The item that this annotator was shown last and has not answered, else another one.

        The item is reserved for them for a while, so that two people do not both take a pair's last place.
        """
        check_code(code)
        now = self.clock()
        with self._write() as db:
            (study, settings), items = self._study(db), self._items(db)
            code = self._admit(db, code)
            known = db.execute("SELECT 1 FROM judge_annotators WHERE code = ?", (code,)).fetchone() is not None
            answered = {row["number"] for row in db.execute("SELECT * FROM judge_judgements WHERE code = ?", (code,))}
            by_number = "SELECT number, count(*) FROM {} WHERE code != ? {} GROUP BY number"
            judged = dict(db.execute(by_number.format("judge_judgements", ""), (code,)).fetchall())
            held = dict(db.execute(by_number.format("judge_leases", "AND ends > ?"), (code, now)).fetchall())
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
                lease = (code, item.number, begun, now + self.lease_seconds)
                db.execute("INSERT OR REPLACE INTO judge_leases VALUES (?, ?, ?, ?)", lease)
                db.execute("INSERT OR IGNORE INTO judge_annotators VALUES (?, ?)", (code, int(now)))
        return Task(
            item=item, answered=len(answered), ahead=ahead, waiting=item is None and waiting, known=known, study=study,
            code=code,
        )  # fmt: skip

    def answer(
        self, code: str, number: int, sides: Sequence[Sequence[int]], choice: str, seconds: float, again: bool = False
    ) -> tuple[Judgement, bool]:
        """Keep an annotator's answer as the page gives it, by side; also whether it is new.

        The same answer sent again is kept once. With `again`, another answer to the pair that this annotator judged
        last replaces it. The time is at most the time since the item was shown.
        """
        check_code(code)
        now = self.clock()
        with self._write() as db:
            items = self._items(db)
            code = self._admit(db, code)
            if not 1 <= number <= len(items):
                raise RefusedError(404, f"the study has no item {number}", field="item")
            item = items[number - 1]
            ratings, better = check_ratings(item.pair, sides[::-1] if item.swapped else sides), item.better(choice)
            previous = self._judgement_of(db, item, code)
            if previous is not None:
                if previous.has_content(ratings, better):
                    return previous, False
                if not again or self._last_id(db, code) != previous.id:
                    raise RefusedError(409, "you have judged this pair already, and otherwise", field="item")
                return self._update(db, previous.id, ratings, better, previous.seconds), False
            lease = db.execute("SELECT * FROM judge_leases WHERE code = ? AND number = ?", (code, number)).fetchone()
            if lease is None:
                raise RefusedError(409, "this pair was not given to you: fetch the next one", field="item")
            if lease["ends"] <= now and not item.pair.is_check:
                # The reservation has expired: whoever holds the pair now takes precedence.
                held = "SELECT count(*) FROM judge_leases WHERE number = ? AND code != ? AND ends > ?"
                judged = "SELECT count(*) FROM judge_judgements WHERE number = ?"
                taken = _number(db, held, number, code, now) + _number(db, judged, number)
                if taken >= self._study(db)[1].annotators:
                    message = "this pair went to somebody else meanwhile: fetch the next one"
                    raise RefusedError(409, message, field="item")
            shown = min(check_seconds(seconds), max(0.0, now - lease["begun"]))
            return self._add(db, item, code, ratings, better, shown, int(now), int(now)), True

    def _admit(self, db: sqlite3.Connection, code: str) -> str:
        """The code as the study has it, in lower case, or a refusal where it is not invited.

        Whoever was here before the list, or before capitals stopped counting, keeps their code.
        """
        query = "SELECT code FROM judge_annotators WHERE lower(code) = lower(?) ORDER BY code = ? DESC, code"
        if row := db.execute(query, (code, code)).fetchone():
            return str(row["code"])
        invited = [row["code"] for row in db.execute("SELECT code FROM judge_invited")]
        if invited and code.lower() not in invited:
            message = "this code is not on the list of this study: look at your invitation again"
            raise RefusedError(403, message, field="code")
        return code.lower()

    def _last_id(self, db: sqlite3.Connection, code: str) -> int:
        """The id of this annotator's last judgement; 0 where they have judged nothing."""
        return _number(db, "SELECT coalesce(max(id), 0) FROM judge_judgements WHERE code = ?", code)

    def previous(self, code: str) -> tuple[Item, Judgement] | None:
        """What this annotator judged last; None where they have judged nothing."""
        check_code(code)
        with self._read() as db:
            last = self._last_id(db, self._admit(db, code))
            if not last:
                return None
            judgement = self._judgement(db, last)
            return self._item_of(db, judgement.pair), judgement

    def annotators(self) -> list[str]:
        """The codes of all annotators, in the order they came."""
        with self._read() as db:
            return [row["code"] for row in db.execute("SELECT code FROM judge_annotators ORDER BY created, code")]

    def invite(self, codes: Sequence[str]) -> None:
        """Admit these codes, and from now on no others but those who are here already."""
        with self._write() as db:
            self._study(db)
            rows = [(check_code(code).lower(), int(self.clock())) for code in codes]
            db.executemany("INSERT OR IGNORE INTO judge_invited VALUES (?, ?)", rows)

    # --- judgements --------------------------------------------------------------------------------------------------

    def judgements(
        self, *, annotator: str | None = None, pair: str | None = None, limit: int = -1, offset: int = 0
    ) -> tuple[list[Judgement], int]:
        """Judgements by id, and how many there are in all."""
        where = f"{JUDGEMENTS} WHERE (:code IS NULL OR code = :code) AND (:pair IS NULL OR pair = :pair)"
        with self._read() as db:
            if pair is not None:
                self._item_of(db, pair)
            values = {"code": annotator, "pair": pair, "limit": limit, "offset": min(offset, MAX_INTEGER)}
            (total,) = db.execute(f"SELECT count(*) FROM {where}", values).fetchone()
            rows = db.execute(f"SELECT * FROM {where} ORDER BY id LIMIT :limit OFFSET :offset", values)
            return [_judgement(row) for row in rows], total

    def judgement(self, id: int) -> Judgement:
        with self._read() as db:
            return self._judgement(db, id)

    def _judgement(self, db: sqlite3.Connection, id: int) -> Judgement:
        row = db.execute(f"SELECT * FROM {JUDGEMENTS} WHERE id = ?", (id if abs(id) <= MAX_INTEGER else 0,)).fetchone()
        if row is None:
            raise RefusedError(404, f"there is no judgement {id}", field="id")
        return _judgement(row)

    def _judgement_of(self, db: sqlite3.Connection, item: Item, code: str) -> Judgement | None:
        query = f"SELECT * FROM {JUDGEMENTS} WHERE number = ? AND code = ?"
        row = db.execute(query, (item.number, code)).fetchone()
        return None if row is None else _judgement(row)

    def add(
        self, pair: str, code: str, ratings: Sequence[Sequence[int]], better: int | None, seconds: float
    ) -> Judgement:
        """Keep a judgement that comes from elsewhere, by story of the pair."""
        check_code(code)
        with self._write() as db:
            item, now = self._item_of(db, pair), int(self.clock())
            return self._add(db, item, code, check_ratings(item.pair, ratings), better, seconds, now, now)

    def replace(self, id: int, ratings: Sequence[Sequence[int]], better: int | None, seconds: float) -> Judgement:
        with self._write() as db:
            pair = self._item_of(db, self._judgement(db, id).pair).pair
            return self._update(db, id, check_ratings(pair, ratings), better, check_seconds(seconds))

    def _update(
        self, db: sqlite3.Connection, id: int, ratings: Ratings, better: int | None, seconds: float
    ) -> Judgement:
        query = "UPDATE judge_judgements SET ratings = ?, better = ?, seconds = ?, updated = ? WHERE id = ?"
        db.execute(query, (json.dumps(ratings), better, seconds, int(self.clock()), id))
        return self._judgement(db, id)

    def remove(self, id: int) -> None:
        with self._write() as db:
            self._judgement(db, id)
            db.execute("DELETE FROM judge_judgements WHERE id = ?", (id,))

    def restore(self, judgements: Sequence[Judgement]) -> int:
        """Keep judgements of an exported study with their times, all or none; returns how many were new."""
        added = 0
        with self._write() as db:
            for one in judgements:
                item = self._item_of(db, one.pair)
                previous = self._judgement_of(db, item, one.annotator)
                if previous is None:
                    content = (one.annotator, one.ratings, one.better, one.seconds, one.created, one.updated)
                    self._add(db, item, *content)
                    added += 1
                elif not previous.has_content(one.ratings, one.better):
                    raise RefusedError(409, f"{one.annotator} has judged pair {one.pair!r} already, and otherwise")
        return added

    def _add(
        self, db: sqlite3.Connection, item: Item, code: str, ratings: Ratings, better: int | None, seconds: float,
        created: int, updated: int,
    ) -> Judgement:  # fmt: skip
        """Insert a judgement, unless its author has judged the pair or the pair has all its annotators."""
        wanted = self._study(db)[1].annotators
        if self._judgement_of(db, item, code) is not None:
            raise RefusedError(409, f"{code} has judged pair {item.pair.id!r} already", field="annotator")
        judged = _number(db, "SELECT count(*) FROM judge_judgements WHERE number = ?", item.number)
        if not item.pair.is_check and judged >= wanted:
            raise RefusedError(409, f"pair {item.pair.id!r} has its {wanted} judgements already", field="pair")
        db.execute("INSERT OR IGNORE INTO judge_annotators VALUES (?, ?)", (code, created))
        db.execute("DELETE FROM judge_leases WHERE code = ? AND number = ?", (code, item.number))
        row = (item.number, code, json.dumps(ratings), better, check_seconds(seconds), created, updated)
        db.execute("INSERT INTO judge_judgements VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)
        return self._judgement(db, _number(db, "SELECT last_insert_rowid()"))

    # --- the error sheet ---------------------------------------------------------------------------------------------

    def keep_errors(self, sheet: ErrorSheet) -> None:
        """Keep a curator's answers about one story, replacing earlier ones."""
        with self._write() as db:
            item = self._item_of(db, sheet.pair)
            if item.pair.is_check:
                raise UserError("an attention check has no error sheet", field="pair")
            written, given = len(item.pair.written(sheet.story)), len(sheet.ungrammatical)
            if given != written:
                raise UserError(f"{given} answers for {written} written sentences", field="ungrammatical")
            answers = (sheet.ending, sheet.off_topic, json.dumps(sheet.ungrammatical), int(self.clock()))
            values = (item.number, sheet.story, *answers)
            db.execute("INSERT OR REPLACE INTO judge_errors VALUES (?, ?, ?, ?, ?, ?)", values)

    def error_sheets(self) -> list[ErrorSheet]:
        with self._read() as db:
            self._study(db)
            rows = db.execute("SELECT * FROM judge_errors JOIN judge_items USING (number) ORDER BY number, story")
            return [
                ErrorSheet(
                    pair=row["pair"],
                    story=row["story"],
                    ending=bool(row["ending"]),
                    off_topic=bool(row["off_topic"]),
                    ungrammatical=tuple(json.loads(row["ungrammatical"])),
                )
                for row in rows
            ]


def _number(db: sqlite3.Connection, query: str, *values: object) -> int:
    """The single integer that a query returns."""
    return int(db.execute(query, values).fetchone()[0])


def _item(row: sqlite3.Row) -> Item:
    content: dict[str, Any] = json.loads(row["content"])
    first, second = content["stories"]
    pair = Pair(
        id=content["id"],
        systems=None if content["systems"] is None else (content["systems"][0], content["systems"][1]),
        given=tuple(content["given"]),
        stories=(tuple(first), tuple(second)),
        better=content["better"],
    )
    return Item(number=row["number"], pair=pair, swapped=bool(row["swapped"]))


def _judgement(row: sqlite3.Row) -> Judgement:
    ratings = tuple(map(tuple, json.loads(row["ratings"])))
    columns = {name: row[name] for name in ("id", "pair", "better", "seconds", "created", "updated")}
    return Judgement(annotator=row["code"], ratings=ratings, **columns)
