"""A study and its answers in one SQLite file.

Every write is one transaction, on disk when the call returns: an answer that was acknowledged is there after a crash.
Tables are called judge_…, so that a study can live in the studio's file too.
Over 400 lines: one class, whose methods share one schema, and the checks within its transactions.
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

from fabula.apps.judge.assign import choose
from fabula.apps.judge.invite import admitted
from fabula.apps.judge.judgement import Judgement, check_code, check_ratings, check_seconds
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.study import Item, StudySettings
from fabula.apps.web.database import Database
from fabula.apps.web.errors import RefusedError
from fabula.errors import UserError

FORMAT = 1
LEASE_SECONDS = 1800.0
"""How long a pair is kept for the annotator who was shown it last."""
LARGEST = 2**63 - 1
"""SQLite's: a number beyond it names nothing."""

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


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an annotator is to do next."""

    item: Item | None
    """None where nothing is left to do just now."""
    answered: int
    """Pairs and checks that this annotator has judged."""
    ahead: int
    """Pairs and checks that they may still get, this one among them; others may take some of them first."""
    waiting: bool
    """Whether a pair may come free, because somebody who holds it may not finish."""
    known: bool
    """Whether the code had been here before."""
    study: str
    """The study's own name: what a browser keeps of one study does not show in another."""
    code: str
    """The annotator's code as the study has it."""


@dataclass(frozen=True, kw_only=True)
class ErrorSheet:
    """Appendix B's questions about one story."""

    pair: str
    story: int
    ending: bool
    """The ending is not connected with the sentences before."""
    off_topic: bool
    """Some sentence is mildly off topic: of the story's subject, but not of its neighbours'."""
    ungrammatical: tuple[bool, ...]
    """For each sentence that the system wrote, whether it is ungrammatical."""


class Store:
    """A file with at most one study in it."""

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        clock: Callable[[], float] = time.time,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """Opens the file, making it where `create` allows. `clock` is for tests."""
        self.path, self.clock, self.lease_seconds = Path(path), clock, lease_seconds
        self._laid_out: tuple[str, list[Item], dict[str, Item]] | None = None
        if not create and not self.path.is_file():
            raise UserError(f"there is no study at {self.path}: make one with fabula judge new PAIRS.jsonl --db FILE")
        self._database = Database(self.path, SCHEMA)

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One transaction, begun as a writer's: what it has read cannot have changed when it writes."""
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

        `force` replaces one without, and begins a study beside the studio's stories.
        """
        with self._write() as db:
            (answers,) = db.execute("SELECT count(*) FROM judge_judgements").fetchone()
            if answers:
                raise RefusedError(
                    409,
                    f"{self.path} holds a study with {answers:,} answers, which is not overwritten: name another file",
                    field="db",
                )
            if not force:
                self._check_free(db)
            for table in ("errors", "leases", "invited", "annotators", "items", "study"):
                db.execute(f"DELETE FROM judge_{table}")
            now = int(self.clock())
            row = (secrets.token_hex(8), FORMAT, json.dumps(asdict(settings)), now)
            db.execute("INSERT INTO judge_study VALUES (1, ?, ?, ?, ?)", row)
            db.executemany(
                "INSERT INTO judge_items VALUES (?, ?, ?, ?)",
                ((item.number, item.pair.id, json.dumps(asdict(item.pair)), item.swapped) for item in items),
            )

    def _check_free(self, db: sqlite3.Connection) -> None:
        """Neither a study nor the studio's stories are here already."""
        if db.execute("SELECT 1 FROM judge_study").fetchone():
            told = f"{self.path} holds a study already: name another file with --db, or replace it with --force"
            raise RefusedError(409, told, field="db")
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'story'").fetchone():
            told = f"{self.path} belongs to fabula studio: name another file with --db, or keep both in it with --force"
            raise RefusedError(409, told, field="db")

    def settings(self) -> StudySettings:
        with self._read() as db:
            return self._settings(db)

    def _settings(self, db: sqlite3.Connection) -> StudySettings:
        row = db.execute("SELECT * FROM judge_study").fetchone()
        if row is None:
            told = f"there is no study in {self.path.name}: name its file with --db, or make one with fabula judge new"
            raise RefusedError(404, told)
        if row["format"] != FORMAT:
            raise UserError(f"{self.path} was written by another version of Fabula (format {row['format']})")
        return StudySettings(**json.loads(row["settings"]))

    def items(self) -> list[Item]:
        """The study's items in their order."""
        with self._read() as db:
            return self._items(db)[0]

    def _items(self, db: sqlite3.Connection) -> tuple[list[Item], dict[str, Item]]:
        """In order, and by the pair's id; read once for each study."""
        self._settings(db)
        (study,) = db.execute("SELECT id FROM judge_study").fetchone()
        if self._laid_out is None or self._laid_out[0] != study:
            items = [
                Item(number=row["number"], pair=_pair(json.loads(row["content"])), swapped=bool(row["swapped"]))
                for row in db.execute("SELECT * FROM judge_items ORDER BY number")
            ]
            self._laid_out = (study, items, {item.pair.id: item for item in items})
        return self._laid_out[1], self._laid_out[2]

    def _item(self, db: sqlite3.Connection, pair: str) -> Item:
        found = self._items(db)[1].get(pair)
        if found is None:
            raise RefusedError(404, f"the study has no pair {pair[:80]!r}", field="pair")
        return found

    # --- annotators --------------------------------------------------------------------------------------------------

    def next_task(self, code: str) -> Task:
        """What this annotator judges next: what they were shown last and have not answered, else another item.

        The item is kept for them a while, so that two people do not both take a pair's last place.
        """
        check_code(code)
        now = self.clock()
        with self._write() as db:
            settings, (items, _) = self._settings(db), self._items(db)
            code = admitted(db, code)
            known = db.execute("SELECT 1 FROM judge_annotators WHERE code = ?", (code,)).fetchone() is not None
            answered = {
                number for (number,) in db.execute("SELECT number FROM judge_judgements WHERE code = ?", (code,))
            }
            judged = _counts(db, "SELECT number, count(*) FROM judge_judgements WHERE code != ? GROUP BY number", code)
            held = _counts(
                db, "SELECT number, count(*) FROM judge_leases WHERE code != ? AND ends > ? GROUP BY number", code, now
            )
            taken = {number: judged.get(number, 0) + held.get(number, 0) for number in {*judged, *held}}
            wanting = [item for item in items if not item.pair.is_check and item.number not in answered]
            ahead = sum(taken.get(item.number, 0) < settings.annotators for item in wanting)
            if ahead:  # checks count as pairs do, or the count would give them away
                ahead += sum(item.pair.is_check and item.number not in answered for item in items)
            waiting = any(judged.get(item.number, 0) < settings.annotators for item in wanting)
            lease = db.execute("SELECT * FROM judge_leases WHERE code = ?", (code,)).fetchone()
            item = None
            if lease is not None:
                item = items[lease["number"] - 1]
                if not item.pair.is_check and taken.get(item.number, 0) >= settings.annotators:
                    item = None  # it lapsed, and others came first
            if item is None:
                item = choose(
                    items, seed=settings.seed, annotators=settings.annotators, code=code, answered=answered, taken=taken
                )
                begun = now
            else:
                begun = lease["begun"]
            if item is not None:
                db.execute(
                    "INSERT OR REPLACE INTO judge_leases VALUES (?, ?, ?, ?)",
                    (code, item.number, begun, now + self.lease_seconds),
                )
                db.execute("INSERT OR IGNORE INTO judge_annotators VALUES (?, ?)", (code, int(now)))
            (study,) = db.execute("SELECT id FROM judge_study").fetchone()
        return Task(
            item=item, answered=len(answered), ahead=ahead, waiting=item is None and waiting, known=known, study=study,
            code=code,
        )  # fmt: skip

    def answer(
        self, code: str, number: int, sides: Sequence[Sequence[int]], choice: str, seconds: float, again: bool = False
    ) -> tuple[Judgement, bool]:
        """Keep an annotator's answer as the page gives it, by side; also whether it is new.

        Sent again, the same answer is acknowledged again and kept once; with `again`, another answer to the pair that
        this annotator judged last takes its place. No clock counts longer than the time since the
        item was shown.
        """
        check_code(code)
        if choice not in ("left", "right", "tie"):
            raise UserError("a choice is left, right or tie", field="choice")
        now = self.clock()
        with self._write() as db:
            items, _ = self._items(db)
            code = admitted(db, code)
            if not 1 <= number <= len(items):
                raise RefusedError(404, f"the study has no item {number}", field="item")
            item = items[number - 1]
            if len(sides) != 2:
                raise UserError(f"ratings are of two stories, not {len(sides)}", field="ratings")
            ratings = check_ratings(item.pair, (sides[1], sides[0]) if item.swapped else sides)
            better = None if choice == "tie" else int((choice == "right") != item.swapped)
            before = db.execute(
                "SELECT * FROM judge_judgements WHERE number = ? AND code = ?", (item.number, code)
            ).fetchone()
            if before is not None:
                kept = self._judgement(db, before)
                if (kept.ratings, kept.better) == (ratings, better):
                    return kept, False
                if not again or self._last(db, code) != kept.id:
                    raise RefusedError(409, "you have judged this pair already, and otherwise", field="item")
                db.execute(
                    "UPDATE judge_judgements SET ratings = ?, better = ?, updated = ? WHERE id = ?",
                    (json.dumps(ratings), better, int(now), kept.id),
                )
                return self._judgement(db, self._row(db, kept.id)), False
            lease = db.execute("SELECT * FROM judge_leases WHERE code = ? AND number = ?", (code, number)).fetchone()
            if lease is None:
                raise RefusedError(409, "this pair was not given to you: fetch the next one", field="item")
            if lease["ends"] <= now and not item.pair.is_check:
                # Too late for a sure place: whoever holds the pair now has the better right.
                query = "SELECT count(*) FROM judge_leases WHERE number = ? AND code != ? AND ends > ?"
                (held,) = db.execute(query, (number, code, now)).fetchone()
                (judged,) = db.execute("SELECT count(*) FROM judge_judgements WHERE number = ?", (number,)).fetchone()
                if held + judged >= self._settings(db).annotators:
                    raise RefusedError(
                        409, "this pair went to somebody else meanwhile: fetch the next one", field="item"
                    )
            shown = min(check_seconds(seconds), max(0.0, now - lease["begun"]))
            return self._add(db, item, code, ratings, better, shown, int(now)), True

    def _last(self, db: sqlite3.Connection, code: str) -> int | None:
        (last,) = db.execute("SELECT max(id) FROM judge_judgements WHERE code = ?", (code,)).fetchone()
        return None if last is None else int(last)

    def previous(self, code: str) -> tuple[Item, Judgement] | None:
        """What this annotator judged last, to be looked at again; None where they have judged nothing."""
        check_code(code)
        with self._read() as db:
            last = self._last(db, admitted(db, code))
            if last is None:
                return None
            found = self._judgement(db, self._row(db, last))
            return self._item(db, found.pair), found

    def annotators(self) -> list[str]:
        """Everybody who was here, in the order they came."""
        with self._read() as db:
            return [row["code"] for row in db.execute("SELECT code FROM judge_annotators ORDER BY created, code")]

    def invite(self, codes: Sequence[str]) -> None:
        """Let in these codes, and from now on no others but those who are here already."""
        with self._write() as db:
            self._settings(db)
            for code in codes:
                check_code(code)
                db.execute("INSERT OR IGNORE INTO judge_invited VALUES (?, ?)", (code.casefold(), int(self.clock())))

    # --- judgements --------------------------------------------------------------------------------------------------

    def judgements(
        self, *, annotator: str | None = None, pair: str | None = None, limit: int = -1, offset: int = 0
    ) -> tuple[list[Judgement], int]:
        """Judgements by id, and how many there are in all."""
        with self._read() as db:
            where = " WHERE (:code IS NULL OR code = :code) AND (:number IS NULL OR number = :number)"
            named = {
                "code": annotator,
                "number": None if pair is None else self._item(db, pair).number,
                "limit": limit,
                "offset": min(offset, LARGEST),
            }
            (total,) = db.execute(f"SELECT count(*) FROM judge_judgements{where}", named).fetchone()
            if not total:
                return [], 0
            rows = db.execute(f"SELECT * FROM judge_judgements{where} ORDER BY id LIMIT :limit OFFSET :offset", named)
            return [self._judgement(db, row) for row in rows.fetchall()], total

    def judgement(self, id: int) -> Judgement:
        with self._read() as db:
            return self._judgement(db, self._row(db, id))

    def add(
        self, pair: str, code: str, ratings: Sequence[Sequence[int]], better: int | None, seconds: float
    ) -> Judgement:
        """Keep a judgement that comes from elsewhere, by story of the pair."""
        check_code(code)
        with self._write() as db:
            item = self._item(db, pair)
            return self._add(
                db, item, code, check_ratings(item.pair, ratings), check_better(better), seconds, int(self.clock())
            )

    def replace(self, id: int, ratings: Sequence[Sequence[int]], better: int | None, seconds: float) -> Judgement:
        with self._write() as db:
            old = self._judgement(db, self._row(db, id))
            checked = check_ratings(self._item(db, old.pair).pair, ratings)
            db.execute(
                "UPDATE judge_judgements SET ratings = ?, better = ?, seconds = ?, updated = ? WHERE id = ?",
                (json.dumps(checked), check_better(better), check_seconds(seconds), int(self.clock()), id),
            )
            return self._judgement(db, self._row(db, id))

    def remove(self, id: int) -> None:
        with self._write() as db:
            self._row(db, id)
            db.execute("DELETE FROM judge_judgements WHERE id = ?", (id,))

    def restore(self, judgements: Sequence[Judgement]) -> int:
        """Keep judgements of an exported study with their own times, all or none; how many were new."""
        new = 0
        with self._write() as db:
            for one in judgements:
                check_code(one.annotator)
                item = self._item(db, one.pair)
                ratings, better = check_ratings(item.pair, one.ratings), check_better(one.better)
                row = db.execute(
                    "SELECT * FROM judge_judgements WHERE number = ? AND code = ?", (item.number, one.annotator)
                ).fetchone()
                if row is not None:
                    kept = self._judgement(db, row)
                    if (kept.ratings, kept.better) != (ratings, better):
                        raise RefusedError(409, f"{one.annotator} has judged pair {one.pair!r} already, and otherwise")
                    continue
                self._add(db, item, one.annotator, ratings, better, one.seconds, one.created, one.updated)
                new += 1
        return new

    def _add(
        self,
        db: sqlite3.Connection,
        item: Item,
        code: str,
        ratings: tuple[tuple[int, ...], tuple[int, ...]],
        better: int | None,
        seconds: float,
        created: int,
        updated: int | None = None,
    ) -> Judgement:
        """Every way in leads here: nobody judges a pair twice, and no pair has more people than the study says."""
        wanted = self._settings(db).annotators
        rows = db.execute("SELECT code FROM judge_judgements WHERE number = ?", (item.number,)).fetchall()
        if any(row["code"] == code for row in rows):
            raise RefusedError(409, f"{code} has judged pair {item.pair.id!r} already", field="annotator")
        if not item.pair.is_check and len(rows) >= wanted:
            raise RefusedError(409, f"pair {item.pair.id!r} has its {wanted} judgements already", field="pair")
        db.execute("INSERT OR IGNORE INTO judge_annotators VALUES (?, ?)", (code, created))
        db.execute("DELETE FROM judge_leases WHERE code = ? AND number = ?", (code, item.number))
        cursor = db.execute(
            "INSERT INTO judge_judgements (number, code, ratings, better, seconds, created, updated)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                item.number,
                code,
                json.dumps(ratings),
                better,
                check_seconds(seconds),
                created,
                created if updated is None else updated,
            ),
        )
        assert cursor.lastrowid is not None
        return self._judgement(db, self._row(db, cursor.lastrowid))

    def _row(self, db: sqlite3.Connection, id: int) -> sqlite3.Row:
        row = None
        if 0 <= id <= LARGEST:
            row = db.execute("SELECT * FROM judge_judgements WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise RefusedError(404, f"there is no judgement {id}", field="id")
        assert isinstance(row, sqlite3.Row)
        return row

    def _judgement(self, db: sqlite3.Connection, row: sqlite3.Row) -> Judgement:
        first, second = json.loads(row["ratings"])
        return Judgement(
            id=row["id"],
            pair=self._items(db)[0][row["number"] - 1].pair.id,
            annotator=row["code"],
            ratings=(tuple(first), tuple(second)),
            better=row["better"],
            seconds=row["seconds"],
            created=row["created"],
            updated=row["updated"],
        )

    # --- the error sheet ---------------------------------------------------------------------------------------------

    def keep_errors(self, sheet: ErrorSheet) -> None:
        """Keep a curator's answers about one story, in the place of earlier ones."""
        with self._write() as db:
            item = self._item(db, sheet.pair)
            if item.pair.is_check:
                raise UserError("an attention check has no error sheet", field="pair")
            if sheet.story not in (0, 1):
                raise UserError("a pair has the stories 0 and 1", field="story")
            wanted = len(item.pair.written(sheet.story))
            if len(sheet.ungrammatical) != wanted:
                raise UserError(
                    f"{len(sheet.ungrammatical)} answers for {wanted} written sentences", field="ungrammatical"
                )
            db.execute(
                "INSERT OR REPLACE INTO judge_errors VALUES (?, ?, ?, ?, ?, ?)",
                (
                    item.number,
                    sheet.story,
                    sheet.ending,
                    sheet.off_topic,
                    json.dumps(sheet.ungrammatical),
                    int(self.clock()),
                ),
            )

    def error_sheets(self) -> list[ErrorSheet]:
        with self._read() as db:
            items, _ = self._items(db)
            return [
                ErrorSheet(
                    pair=items[row["number"] - 1].pair.id,
                    story=row["story"],
                    ending=bool(row["ending"]),
                    off_topic=bool(row["off_topic"]),
                    ungrammatical=tuple(json.loads(row["ungrammatical"])),
                )
                for row in db.execute("SELECT * FROM judge_errors ORDER BY number, story")
            ]


def check_better(better: int | None) -> int | None:
    if better is not None and (isinstance(better, bool) or better not in (0, 1)):
        raise UserError("the better story is 0, 1 or null for a tie", field="better")
    return better


def _pair(content: dict[str, Any]) -> Pair:
    first, second = content["stories"]
    return Pair(
        id=content["id"],
        systems=None if content["systems"] is None else (content["systems"][0], content["systems"][1]),
        given=tuple(content["given"]),
        stories=(tuple(first), tuple(second)),
        better=content["better"],
    )


def _counts(db: sqlite3.Connection, query: str, *values: object) -> dict[int, int]:
    return dict(db.execute(query, values))
