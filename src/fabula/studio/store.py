"""Stories and their branches in SQLite: a transaction for each write, a revision for each branch."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fabula.web.database import Database
from fabula.web.errors import RefusedError

BRANCHES = 500
"""Of one story, at most."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS story (
  id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS branch (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  story INTEGER NOT NULL REFERENCES story (id) ON DELETE CASCADE,
  parent INTEGER REFERENCES branch (id),
  name TEXT NOT NULL, revision INTEGER NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, state TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS branch_of_story ON branch (story)
"""

Record = dict[str, Any]
STORY = (
    "SELECT id, title, created, updated, (SELECT count(*) FROM branch WHERE story = s.id) AS branches FROM story AS s"
)
BRANCH = "SELECT id, story, parent, name, revision, created, updated, state FROM branch"
LIGHT = BRANCH.replace(", state", "")


class Store:
    """What people wrote. Every method is one transaction, and returns when it is on disk."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, SCHEMA, own="story")

    def close(self) -> None:
        self.database.close()

    def stories(self, limit: int, offset: int) -> list[Record]:
        """Lately changed ones first."""
        with self.database.read() as connection:
            order = "ORDER BY updated DESC, id DESC LIMIT ? OFFSET ?"
            return _all(connection, f"{STORY} {order}", limit, offset)

    def story(self, story: int) -> Record:
        """A story and its branches, without what is in them."""
        with self.database.read() as connection:
            return _story(connection, story)

    def new_story(self, title: str, state: Record) -> Record:
        """A story with its first branch, which comes whole."""
        with self.database.write() as connection:
            now = _now()
            made = connection.execute("INSERT INTO story (title, created, updated) VALUES (?, ?, ?)", (title, now, now))
            branch = _insert(connection, made.lastrowid or 0, None, "main", state)
            return {**_story(connection, made.lastrowid or 0), "branch": branch}

    def rename(self, story: int, title: str) -> Record:
        with self.database.write() as connection:
            _story(connection, story)
            connection.execute("UPDATE story SET title = ?, updated = ? WHERE id = ?", (title, _now(), story))
            return _story(connection, story)

    def delete_story(self, story: int) -> None:
        with self.database.write() as connection:
            _story(connection, story)
            connection.execute("DELETE FROM story WHERE id = ?", (story,))

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
            connection.execute(
                "UPDATE branch SET name = ?, state = ?, revision = revision + 1, updated = ? WHERE id = ?",
                (old["name"] if name is None else name, _text(state), now, branch),
            )
            connection.execute("UPDATE story SET updated = ? WHERE id = ?", (now, story))
            return _branch(connection, story, branch)

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


def _story(connection: sqlite3.Connection, story: int) -> Record:
    found = _all(connection, f"{STORY} WHERE id = ?", story)
    if not found:
        raise RefusedError(404, f"there is no story {story}", field="story")
    tree = _all(connection, f"{LIGHT} WHERE story = ? ORDER BY id", story)
    return {**found[0], "tree": tree}


def _branch(connection: sqlite3.Connection, story: int, branch: int, field: str = "branch") -> Record:
    found = _all(connection, f"{BRANCH} WHERE story = ? AND id = ?", story, branch)
    if not found:
        raise RefusedError(404, f"story {story} has no branch {branch}", field=field)
    return {**found[0], "state": json.loads(found[0]["state"])}


def _all(connection: sqlite3.Connection, query: str, *values: Any) -> list[Record]:
    cursor = connection.execute(query, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _text(state: Record) -> str:
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
