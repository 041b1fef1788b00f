"""The studio's file: revisions under many writers, and one clear line for a file that will not do."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fabula.apps.judge.store import Store as JudgeStore
from fabula.apps.studio import store as stores
from fabula.apps.studio.store import Store
from fabula.apps.web import database
from fabula.apps.web.errors import RefusedError
from fabula.errors import UserError

STATE = {"lines": [{"text": "A."}, {"text": "B."}]}


def test_of_many_writers_of_one_revision_one_wins(tmp_path: Path) -> None:
    """Two files' worth of connections, as two studios have; no save is lost, and none is written over."""
    one, two = Store(tmp_path / "s.db"), Store(tmp_path / "s.db")
    made = one.new_story("x", STATE)
    story, branch = made["id"], made["branch"]["id"]

    def save(n: int) -> bool:
        try:
            (one, two)[n % 2].save(story, branch, None, {**STATE, "seed": n}, 1)
        except RefusedError:
            return False
        return True

    with ThreadPoolExecutor(8) as writers:
        won = [n for n, kept in enumerate(writers.map(save, range(40))) if kept]
    assert len(won) == 1
    found = one.branch(story, branch)
    assert (found["revision"], found["state"]["seed"]) == (2, won[0])


def test_a_refused_write_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    made = store.new_story("x", STATE)
    with pytest.raises(RefusedError):
        store.new_branch(made["id"], 99, "y", STATE)
    with pytest.raises(ValueError, match="JSON"):
        store.save(made["id"], made["branch"]["id"], "z", {"x": float("nan")}, 1)
    assert store.story(made["id"])["tree"] == [{k: v for k, v in made["branch"].items() if k != "state"}]


def test_children_of_a_deleted_branch_grow_from_its_parent(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    made = store.new_story("x", STATE)
    story, root = made["id"], made["branch"]["id"]
    middle = store.new_branch(story, root, "middle", STATE)["id"]
    leaf = store.new_branch(story, middle, "leaf", STATE)["id"]
    store.delete_branch(story, middle)
    assert store.branch(story, leaf)["parent"] == root


def test_an_id_is_never_given_twice(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    first = store.new_story("x", STATE)["id"]
    store.delete_story(first)
    assert store.new_story("y", STATE)["id"] > first


def test_a_story_has_only_so_many_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BRANCHES", 1)
    store = Store(tmp_path / "s.db")
    made = store.new_story("x", STATE)
    with pytest.raises(RefusedError, match="at most 1 branches"):
        store.new_branch(made["id"], None, "y", STATE)


def test_what_is_written_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    assert store.database._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert store.database._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.new_story("x", STATE)
    with sqlite3.connect(tmp_path / "s.db") as other:
        assert other.execute("SELECT title FROM story").fetchall() == [("x",)]


def test_the_file_of_a_study_is_not_the_studios(tmp_path: Path) -> None:
    """It is left as it was; a study that came into the studio's own file does no harm there."""
    study, stories = tmp_path / "study.db", tmp_path / "s.db"
    JudgeStore(study).close()
    with pytest.raises(UserError, match=r"study\.db belongs to fabula judge: choose another file with --db"):
        Store(study)
    with sqlite3.connect(study) as other:
        assert not other.execute("SELECT 1 FROM sqlite_master WHERE name = 'story'").fetchall()
    Store(stories).close()
    JudgeStore(stories).close()
    Store(stories).close()


def test_a_file_that_will_not_do_is_one_clear_line(tmp_path: Path) -> None:
    text = tmp_path / "story.txt"
    text.write_text("Once upon a time. " * 1000, encoding="utf-8")
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    (tmp_path / "folder").mkdir()
    for path, says in (
        (text, "is not a database"),
        (foreign, "is another program's database"),
        (tmp_path / "folder", "cannot open"),
        (text / "below.db", "cannot open"),
    ):
        with pytest.raises(UserError, match=says) as caught:
            Store(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
        assert "--db" in str(caught.value)
    assert text.read_text(encoding="utf-8").startswith("Once upon a time.")
    with sqlite3.connect(foreign) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]


def test_a_locked_file_is_said_to_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)
    path = tmp_path / "s.db"
    store = Store(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UserError, match="is locked by another program"):
        Store(path)
    with pytest.raises(RefusedError, match="is locked by another program: close it and try again") as caught:
        store.new_story("x", STATE)
    assert (caught.value.status, "Retry-After" in caught.value.headers) == (503, True)
    assert store.stories(10, 0) == []  # readers do not wait for a writer
    other.execute("ROLLBACK")
    assert store.new_story("x", STATE)["title"] == "x"


def test_a_file_that_may_not_be_written_is_said_so(tmp_path: Path) -> None:
    """By a connection that may only read: rights on files stop nobody who is root."""
    store = Store(tmp_path / "s.db")
    store.database._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(RefusedError, match="may not be written") as caught:
        store.new_story("x", STATE)
    assert caught.value.status == 503


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert database.default_path("studio.db") == tmp_path / "fabula" / "studio.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert database.default_path("studio.db") == tmp_path / ".local" / "share" / "fabula" / "studio.db"
