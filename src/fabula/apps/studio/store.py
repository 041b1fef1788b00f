"""Stories and their branches in SQLite: a transaction for each write, revisions, and versions to go back to."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

from fabula.apps.studio.document import BRANCHES
from fabula.apps.web.database import Database
from fabula.apps.web.errors import RefusedError

VERSIONS = 50  # versions of one branch, at most; the oldest is dropped first
VERSION_EVERY = timedelta(minutes=5)
"""The least time between two versions of a branch: a save every second is not worth keeping."""
PREVIEW = 160  # characters of a story that its list shows
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

Record = dict[str, Any]
STORY = """SELECT id, title, automatic, deleted, created, updated,
(SELECT count(*) FROM branch WHERE story = s.id) AS branches FROM story AS s"""
LATEST = "(SELECT state FROM branch WHERE story = s.id ORDER BY updated DESC, id DESC LIMIT 1) AS state"
MATCHES = """(instr(folded(title), :query) OR EXISTS (
SELECT 1 FROM branch AS b, json_each(b.state, '$.lines') AS line
WHERE b.story = s.id AND instr(folded(json_extract(line.value, '$.text')), :query)))"""
"""Whether a story's title or one of its lines, on any branch, holds the query."""
BRANCH = "SELECT id, story, parent, name, revision, created, updated, state FROM branch"


class Store:
    """What people wrote. Every method is one transaction, and returns when it is on disk."""

    def __init__(self, path: Path) -> None:
        database = Database(path, SCHEMA, table="story")
        self.read, self.write, self.close = database.read, database.write, database.close
        with self.read() as connection:
            connection.create_function("folded", 1, lambda text: str(text).casefold(), deterministic=True)

    def _all(self, query: str, *values: Any) -> list[Record]:
        with self.read() as connection:
            rows = connection.execute(query, values[0] if values and isinstance(values[0], dict) else values)
            return [dict(row) for row in rows]

    def _run(self, query: str, *values: Any) -> int:
        """The id of the row that the query has inserted, if it inserts."""
        with self.write() as connection:
            return connection.execute(query, values).lastrowid or 0

    def stories(self, limit: int, offset: int, query: str = "", trash: bool = False) -> list[Record]:
        """Stories with how they begin, lately changed ones first; those that hold `query`, or those in the trash."""
        select = STORY.replace(" FROM story", f", {LATEST} FROM story")
        where = f"WHERE (deleted IS NOT NULL) = :trash AND (:query = '' OR {MATCHES})"
        order = "ORDER BY updated DESC, id DESC LIMIT :limit OFFSET :offset"
        values = {"limit": limit, "offset": offset, "query": query.strip().casefold(), "trash": trash}
        return [_with_flag(_without_state(row)) for row in self._all(f"{select} {where} {order}", values)]

    def story(self, story: int, trashed: bool = False) -> Record:
        """A story and its branches, without their states."""
        with self.read():
            rows = self._all(f"{STORY} WHERE id = ? AND (deleted IS NOT NULL) = ?", story, trashed)
            tree = self._all(f"{BRANCH.replace(', state', '')} WHERE story = ? ORDER BY id", story)
        if not rows:
            raise RefusedError(404, f"there is no story {story}{' in the trash' if trashed else ''}", field="story")
        return {**_with_flag(rows[0]), "tree": tree}

    def new_story(self, title: str, state: Record, automatic: bool = False) -> Record:
        """A story with its first branch, which comes whole."""
        with self.write():
            story = self._insert_story(title, automatic)
            branch = self._insert_branch(story, None, "main", state)
            return {**self.story(story), "branch": branch}

    def rename(self, story: int, title: str, automatic: bool = False) -> Record:
        with self.write():
            self.story(story)
            update = "UPDATE story SET title = ?, automatic = ?, updated = ? WHERE id = ?"
            self._run(update, title, automatic, _now(), story)
            return self.story(story)

    def copy_story(self, story: int) -> Record:
        """A copy of the story with all its branches."""
        with self.write():
            original = self.story(story)
            copy = self._insert_story(f"{original['title'][:190]} (copy)", False)
            copies: dict[int | None, int | None] = {None: None}
            for entry in original["tree"]:
                branch = self.branch(story, entry["id"])
                parent = copies.get(branch["parent"])
                copies[branch["id"]] = self._insert_branch(copy, parent, branch["name"], branch["state"])["id"]
            return self.story(copy)

    def delete_story(self, story: int, forever: bool = False) -> None:
        """Put it into the trash, from which it can be restored; with `forever` remove it with all its branches."""
        with self.write():
            self.story(story, trashed=forever)
            if forever:
                self._run("DELETE FROM story WHERE id = ?", story)
            else:
                self._run("UPDATE story SET deleted = ? WHERE id = ?", _now(), story)

    def restore_story(self, story: int) -> Record:
        with self.write():
            self.story(story, trashed=True)
            self._run("UPDATE story SET deleted = NULL WHERE id = ?", story)
            return self.story(story)

    def branch(self, story: int, branch: int, field: str = "branch") -> Record:
        with self.read():
            self.story(story)  # a mistake in the story is told before one in the branch
            rows = self._all(f"{BRANCH} WHERE story = ? AND id = ?", story, branch)
        if not rows:
            raise RefusedError(404, f"story {story} has no branch {branch}", field=field)
        return {**rows[0], "state": json.loads(rows[0]["state"])}

    def new_branch(self, story: int, parent: int | None, name: str, state: Record) -> Record:
        with self.write():
            if self.story(story)["branches"] >= BRANCHES:
                raise RefusedError(409, f"a story has at most {BRANCHES} branches: delete one first")
            if parent is not None:
                self.branch(story, parent, "parent")
            return self._insert_branch(story, parent, name, state)

    def save(self, story: int, branch: int, name: str | None, state: Record, revision: int) -> Record:
        """The branch's next revision; a stale `revision` is refused, and nothing is written."""
        with self.write():
            before = self.branch(story, branch)
            if before["revision"] != revision:
                message = f"the branch is at revision {before['revision']}, not {revision}: load it again"
                raise RefusedError(409, message, field="revision")
            self._keep_version(before)
            update = "UPDATE branch SET name = ?, state = ?, revision = revision + 1, updated = ? WHERE id = ?"
            self._run(update, before["name"] if name is None else name, _text(state), now := _now(), branch)
            self._run("UPDATE story SET updated = ? WHERE id = ?", now, story)
            return self.branch(story, branch)

    def versions(self, story: int, branch: int) -> list[Record]:
        """The versions of a branch, newest first, without their states, and what each changed of the one before it."""
        with self.read():
            self.branch(story, branch)
            rows = self._all("SELECT * FROM version WHERE branch = ? ORDER BY id DESC", branch)
        lines = [*(_lines(row["state"]) for row in rows), []]
        return [_without_state(row) | _change(*pair) for row, pair in zip(rows, pairwise(lines), strict=True)]

    def version(self, story: int, branch: int, version: int) -> Record:
        with self.read():
            self.branch(story, branch)
            rows = self._all("SELECT * FROM version WHERE branch = ? AND id = ?", branch, version)
        if not rows:
            raise RefusedError(404, f"branch {branch} has no version {version}", field="version")
        return {**_without_state(rows[0]), "state": json.loads(rows[0]["state"])}

    def delete_branch(self, story: int, branch: int) -> None:
        """Remove a branch, whose children then grow from its parent. The last branch goes with its story only."""
        with self.write():
            parent = self.branch(story, branch)["parent"]
            if self.story(story)["branches"] == 1:
                raise RefusedError(409, "a story keeps one branch at least: delete the story instead")
            self._run("UPDATE branch SET parent = ? WHERE parent = ?", parent, branch)
            self._run("DELETE FROM branch WHERE id = ?", branch)

    def _insert_story(self, title: str, automatic: bool) -> int:
        insert = "INSERT INTO story (title, automatic, created, updated) VALUES (?, ?, ?, ?)"
        return self._run(insert, title, automatic, _now(), _now())

    def _insert_branch(self, story: int, parent: int | None, name: str, state: Record) -> Record:
        columns, now = "story, parent, name, revision, created, updated, state", _now()
        insert = f"INSERT INTO branch ({columns}) VALUES (?, ?, ?, 1, ?, ?, ?)"
        branch = self._run(insert, story, parent, name, now, now, _text(state))
        self._run("UPDATE story SET updated = ? WHERE id = ?", now, story)
        return self.branch(story, branch)

    def _keep_version(self, branch: Record) -> None:
        """Store what a save is about to replace, unless the last version is younger than VERSION_EVERY."""
        last = self._all("SELECT saved FROM version WHERE branch = ? ORDER BY id DESC LIMIT 1", branch["id"])
        if last and datetime.now(UTC) - datetime.fromisoformat(last[0]["saved"]) < VERSION_EVERY:
            return
        insert = "INSERT INTO version (branch, revision, saved, state) VALUES (?, ?, ?, ?)"
        self._run(insert, branch["id"], branch["revision"], branch["updated"], _text(branch["state"]))
        oldest = "SELECT id FROM version WHERE branch = ? ORDER BY id DESC LIMIT -1 OFFSET ?"
        self._run(f"DELETE FROM version WHERE id IN ({oldest})", branch["id"], VERSIONS)


def _with_flag(row: Record) -> Record:
    return {**row, "automatic": None if row["automatic"] is None else bool(row["automatic"])}


def _without_state(row: Record) -> Record:
    """The row as a list shows it: how the story begins and its number of words in place of the state."""
    text = " ".join(line for line in _lines(row["state"]) if line)
    facts = {name: value for name, value in row.items() if name != "state"}
    return {**facts, "preview": text[:PREVIEW], "words": len(text.split())}


def _lines(state: str) -> list[str]:
    return [line["text"].strip() for line in json.loads(state).get("lines", [])]


def _change(lines: list[str], before: list[str]) -> Record:
    """The number from 1 and the words of the first line that differs from the version before."""
    for number, (text, earlier) in enumerate(zip_longest(lines, before, fillvalue=""), start=1):
        if text != earlier:
            return {"line": number, "changed": text[:PREVIEW]}
    return {"line": None, "changed": ""}


def _text(state: Record) -> str:
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
