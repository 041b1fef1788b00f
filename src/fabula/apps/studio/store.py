"""Stories and their branches in SQLite: a transaction for each write, revisions, and versions to go back to."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from fabula.apps.studio.bodies import HISTORY_FIELDS
from fabula.apps.web.database import Database
from fabula.apps.web.errors import RefusedError

BRANCHES = 500
"""Of one story, at most."""

VERSIONS = 50
"""Of one branch, the oldest given up first."""
VERSION_EVERY = timedelta(minutes=5)
"""Between two versions of a branch: a save every second is not worth keeping, an afternoon's work is."""
PREVIEW = 160
"""Characters of a story that its list shows."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS story (
  id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL,
  automatic INTEGER, deleted TEXT
);
CREATE TABLE IF NOT EXISTS branch (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  story INTEGER NOT NULL REFERENCES story (id) ON DELETE CASCADE,
  parent INTEGER REFERENCES branch (id),
  name TEXT NOT NULL, revision INTEGER NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, state TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS branch_of_story ON branch (story);
CREATE TABLE IF NOT EXISTS version (
  id INTEGER PRIMARY KEY AUTOINCREMENT, branch INTEGER NOT NULL REFERENCES branch (id) ON DELETE CASCADE,
  revision INTEGER NOT NULL, saved TEXT NOT NULL, state TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS version_of_branch ON version (branch)
"""
ADDED = {"automatic": "INTEGER", "deleted": "TEXT"}
"""Columns of `story` that a file of version 0.1 does not have."""

Record = dict[str, Any]
STORY = """SELECT id, title, automatic, deleted, created, updated,
(SELECT count(*) FROM branch WHERE story = s.id) AS branches FROM story AS s"""
LATEST = "(SELECT state FROM branch WHERE story = s.id ORDER BY updated DESC, id DESC LIMIT 1) AS state"
HOLDS = """(instr(folded(title), :query) OR EXISTS (
SELECT 1 FROM branch AS b, json_each(b.state, '$.lines') AS line
WHERE b.story = s.id AND instr(folded(json_extract(line.value, '$.text')), :query)))"""
"""Whether a story's title or one of its lines, on any branch, holds the words that are looked for."""
BRANCH = "SELECT id, story, parent, name, revision, created, updated, state FROM branch"
LIGHT = BRANCH.replace(", state", "")


class Store:
    """What people wrote. Every method is one transaction, and returns when it is on disk."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, SCHEMA, own="story")
        with self.database.write() as connection:
            known = {row[1] for row in connection.execute("PRAGMA table_info(story)")}
            for column in ADDED.keys() - known:
                connection.execute(f"ALTER TABLE story ADD COLUMN {column} {ADDED[column]}")
        with self.database.read() as connection:
            connection.create_function("folded", 1, lambda text: str(text).casefold(), deterministic=True)

    def close(self) -> None:
        self.database.close()

    def stories(self, limit: int, offset: int, query: str = "", trash: bool = False) -> list[Record]:
        """Lately changed ones first, with how they begin; those that hold `query`, or those in the trash."""
        where = f"WHERE (deleted IS NOT NULL) = :trash AND (:query = '' OR {HOLDS})"
        named = {"limit": limit, "offset": offset, "query": query.strip().casefold(), "trash": trash}
        with self.database.read() as connection:
            order = "ORDER BY updated DESC, id DESC LIMIT :limit OFFSET :offset"
            found = _all(connection, f"{STORY.replace(' FROM story', f', {LATEST} FROM story')} {where} {order}", named)
        return [_facts(_light(row)) for row in found]

    def story(self, story: int) -> Record:
        """A story and its branches, without what is in them."""
        with self.database.read() as connection:
            return _story(connection, story)

    def new_story(self, title: str, state: Record, automatic: bool = False) -> Record:
        """A story with its first branch, which comes whole."""
        with self.database.write() as connection:
            made = _new(connection, title, automatic)
            branch = _insert(connection, made.lastrowid or 0, None, "main", state)
            return {**_story(connection, made.lastrowid or 0), "branch": branch}

    def rename(self, story: int, title: str, automatic: bool = False) -> Record:
        with self.database.write() as connection:
            _story(connection, story)
            connection.execute(
                "UPDATE story SET title = ?, automatic = ?, updated = ? WHERE id = ?", (title, automatic, _now(), story)
            )
            return _story(connection, story)

    def copy_story(self, story: int) -> Record:
        """The same story once more, with all its branches."""
        with self.database.write() as connection:
            old = _story(connection, story)
            made = _new(connection, f"{old['title'][:190]} (copy)", False).lastrowid or 0
            known: dict[int | None, int | None] = {None: None}
            for light in old["tree"]:
                branch = _branch(connection, story, light["id"])
                parent = known.get(branch["parent"])
                known[branch["id"]] = _insert(connection, made, parent, branch["name"], branch["state"])["id"]
            return _story(connection, made)

    def delete_story(self, story: int, forever: bool = False) -> None:
        """Into the trash, from which it can be restored; `forever`, and it is gone with all its branches."""
        with self.database.write() as connection:
            _story(connection, story, trashed=forever)
            if forever:
                connection.execute("DELETE FROM story WHERE id = ?", (story,))
            else:
                connection.execute("UPDATE story SET deleted = ? WHERE id = ?", (_now(), story))

    def restore_story(self, story: int) -> Record:
        with self.database.write() as connection:
            _story(connection, story, trashed=True)
            connection.execute("UPDATE story SET deleted = NULL WHERE id = ?", (story,))
            return _story(connection, story)

    def branch(self, story: int, branch: int) -> Record:
        with self.database.read() as connection:
            return _branch(connection, story, branch)

    def new_branch(self, story: int, parent: int | None, name: str, state: Record) -> Record:
        with self.database.write() as connection:
            if _story(connection, story)["branches"] >= BRANCHES:
                raise RefusedError(409, f"a story has at most {BRANCHES} branches: delete one first")
            if parent is not None:
                _branch(connection, story, parent, "parent")
            return _insert(connection, story, parent, name, state)

    def save(self, story: int, branch: int, name: str | None, state: Record, revision: int) -> Record:
        """The branch's next revision; whoever saw an older one is told so, and nothing is written."""
        with self.database.write() as connection:
            old = _branch(connection, story, branch)
            if old["revision"] != revision:
                told = f"the branch is at revision {old['revision']}, not {revision}: load it again"
                raise RefusedError(409, told, field="revision")
            now = _now()
            _keep_version(connection, old)
            connection.execute(
                "UPDATE branch SET name = ?, state = ?, revision = revision + 1, updated = ? WHERE id = ?",
                (old["name"] if name is None else name, _text(state), now, branch),
            )
            connection.execute("UPDATE story SET updated = ? WHERE id = ?", (now, story))
            return _branch(connection, story, branch)

    def versions(self, story: int, branch: int) -> list[Record]:
        """What a branch was, newest first, without the states, and what each changed of the one before it."""
        with self.database.read() as connection:
            _branch(connection, story, branch)
            found = _all(connection, "SELECT * FROM version WHERE branch = ? ORDER BY id DESC", branch)
        lines = [*(_lines(row["state"]) for row in found), []]
        return [_light(row) | _change(now, old) for row, (now, old) in zip(found, pairwise(lines), strict=True)]

    def version(self, story: int, branch: int, version: int) -> Record:
        with self.database.read() as connection:
            _branch(connection, story, branch)
            found = _all(connection, "SELECT * FROM version WHERE branch = ? AND id = ?", branch, version)
        if not found:
            raise RefusedError(404, f"branch {branch} has no version {version}", field="version")
        return {**found[0], **_summary(found[0]["state"]), "state": json.loads(found[0]["state"])}

    def delete_branch(self, story: int, branch: int) -> None:
        """Its children grow from its parent then; the last branch goes with its story only."""
        with self.database.write() as connection:
            old = _branch(connection, story, branch)
            if _story(connection, story)["branches"] == 1:
                raise RefusedError(409, "a story keeps one branch at least: delete the story instead")
            connection.execute("UPDATE branch SET parent = ? WHERE parent = ?", (old["parent"], branch))
            connection.execute("DELETE FROM branch WHERE id = ?", (branch,))


def _insert(connection: sqlite3.Connection, story: int, parent: int | None, name: str, state: Record) -> Record:
    now = _now()
    made = connection.execute(
        "INSERT INTO branch (story, parent, name, revision, created, updated, state) VALUES (?, ?, ?, 1, ?, ?, ?)",
        (story, parent, name, now, now, _text(state)),
    )
    connection.execute("UPDATE story SET updated = ? WHERE id = ?", (now, story))
    return _branch(connection, story, made.lastrowid or 0)


def _new(connection: sqlite3.Connection, title: str, automatic: bool) -> sqlite3.Cursor:
    return connection.execute(
        "INSERT INTO story (title, automatic, created, updated) VALUES (?, ?, ?, ?)", (title, automatic, _now(), _now())
    )


def _story(connection: sqlite3.Connection, story: int, trashed: bool = False) -> Record:
    found = _all(connection, f"{STORY} WHERE id = ? AND (deleted IS NOT NULL) = ?", story, trashed)
    if not found:
        raise RefusedError(404, f"there is no story {story}{' in the trash' if trashed else ''}", field="story")
    tree = _all(connection, f"{LIGHT} WHERE story = ? ORDER BY id", story)
    return {**_facts(found[0]), "tree": tree}


def _facts(row: Record) -> Record:
    return {**row, "automatic": None if row["automatic"] is None else bool(row["automatic"])}


def _light(row: Record) -> Record:
    """What a list says of a row: how it begins, not all that is in it."""
    return {**{name: value for name, value in row.items() if name != "state"}, **_summary(row["state"])}


def _summary(state: str) -> Record:
    """How a story begins, and how many words it has."""
    text = " ".join(line for line in _lines(state) if line)
    return {"preview": text[:PREVIEW], "words": len(text.split())}


def _lines(state: str) -> list[str]:
    return [line["text"].strip() for line in json.loads(state).get("lines", [])]


def _change(now: list[str], old: list[str]) -> Record:
    """The first line, by its number from 1, that is another than it was, and its words now."""
    for number, (text, before) in enumerate(zip_longest(now, old, fillvalue=""), start=1):
        if text != before:
            return {"line": number, "changed": text[:PREVIEW]}
    return {"line": None, "changed": ""}


def _keep_version(connection: sqlite3.Connection, branch: Record) -> None:
    """What a save is about to replace, unless a version was kept a moment ago or it says the same as that."""
    last = _all(connection, "SELECT saved FROM version WHERE branch = ? ORDER BY id DESC LIMIT 1", branch["id"])
    if last and datetime.now(UTC) - datetime.fromisoformat(last[0]["saved"]) < VERSION_EVERY:
        return
    bare = {**branch["state"], **{name: [] for name in HISTORY_FIELDS}}
    connection.execute(
        "INSERT INTO version (branch, revision, saved, state) VALUES (?, ?, ?, ?)",
        (branch["id"], branch["revision"], branch["updated"], _text(bare)),
    )
    old = "SELECT id FROM version WHERE branch = ? ORDER BY id DESC LIMIT -1 OFFSET ?"
    connection.execute(f"DELETE FROM version WHERE id IN ({old})", (branch["id"], VERSIONS))


def _branch(connection: sqlite3.Connection, story: int, branch: int, field: str = "branch") -> Record:
    _story(connection, story)  # what is wrong with the story is said before what is wrong with the branch
    found = _all(connection, f"{BRANCH} WHERE story = ? AND id = ?", story, branch)
    if not found:
        raise RefusedError(404, f"story {story} has no branch {branch}", field=field)
    return {**found[0], "state": json.loads(found[0]["state"])}


def _all(connection: sqlite3.Connection, query: str, *values: Any) -> list[Record]:
    cursor = connection.execute(query, values[0] if values and isinstance(values[0], dict) else values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _text(state: Record) -> str:
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
