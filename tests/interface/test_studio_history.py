"""Nothing that was stored is lost: trash, versions, copies; files of version 0.1; files that vanish or break."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from fabula.apps.studio import store as stores
from fabula.apps.studio.store import Store
from fabula.apps.web.errors import RefusedError

STATE = {"lines": [{"text": "A boat."}, {"text": "It sank."}]}
OLD = """
CREATE TABLE story (
  id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL
);
CREATE TABLE branch (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  story INTEGER NOT NULL REFERENCES story (id) ON DELETE CASCADE,
  parent INTEGER REFERENCES branch (id),
  name TEXT NOT NULL, revision INTEGER NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, state TEXT NOT NULL
);
CREATE INDEX branch_of_story ON branch (story);
INSERT INTO story VALUES (7, 'Old', '2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z');
INSERT INTO branch VALUES (9, 7, NULL, 'main', 3, '2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z',
  '{"lines":[{"text":"Once."},{"text":""}],"seed":4,"undo":[]}');
PRAGMA application_id = 1178681941;
"""
"""What version 0.1 made, word for word."""


def test_a_file_of_the_first_version_is_opened_and_written(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as old:
        old.executescript(OLD)
    for _ in range(2):  # the second time nothing is left to add
        store = Store(path)
        (told,) = store.stories(10, 0)
        assert (told["title"], told["preview"], told["words"], told["automatic"]) == ("Old", "Once.", 1, None)
        assert store.branch(7, 9)["state"]["seed"] == 4
        store.close()
    store = Store(path)
    assert store.save(7, 9, None, STATE, 3)["revision"] == 4
    assert store.rename(7, "New", automatic=True)["automatic"] is True
    assert [version["preview"] for version in store.versions(7, 9)] == ["Once."]


def test_a_deleted_story_waits_in_the_trash(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    one, two = (store.new_story(title, STATE)["id"] for title in ("one", "two"))
    store.delete_story(one)
    assert [told["id"] for told in store.stories(9, 0)] == [two]
    assert [told["id"] for told in store.stories(9, 0, trash=True)] == [one]
    with pytest.raises(RefusedError, match="no story"):
        store.story(one)
    with pytest.raises(RefusedError, match="in the trash"):
        store.delete_story(two, forever=True)  # only what is in the trash can be destroyed
    assert store.restore_story(one)["title"] == "one"
    assert len(store.stories(9, 0)) == 2
    store.delete_story(one)
    store.delete_story(one, forever=True)
    with pytest.raises(RefusedError):
        store.restore_story(one)


def test_stories_are_found_by_any_line_and_copied_whole(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    made = store.new_story("Ölf", STATE)
    leaf = store.new_branch(
        made["id"], made["branch"]["id"], "leaf", {"lines": [{"text": "Ein STRAUß."}, {"text": ""}]}
    )
    store.new_story("other", {"lines": [{"text": "100%"}, {"text": ""}], "undo": ["A boat."]})
    assert not any("state" in told for told in store.stories(9, 0))  # a list stays light
    found = {query: [told["title"] for told in store.stories(9, 0, query)] for query in ("ölf", "strauss", "boat", "%")}
    assert found == {"ölf": ["Ölf"], "strauss": ["Ölf"], "boat": ["Ölf"], "%": ["other"]}
    twin = store.copy_story(made["id"])
    assert (twin["title"], [branch["name"] for branch in twin["tree"]]) == ("Ölf (copy)", ["main", "leaf"])
    assert twin["tree"][1]["parent"] == twin["tree"][0]["id"] != made["branch"]["id"]
    assert store.branch(twin["id"], twin["tree"][1]["id"])["state"] == leaf["state"]


def test_versions_are_kept_now_and_then_and_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "s.db")
    made = store.new_story("x", STATE)
    story, branch = made["id"], made["branch"]["id"]

    def save(n: int) -> None:
        store.save(story, branch, None, {"lines": [{"text": f"{n}"}, {"text": ""}], "undo": ["heavy"]}, n)

    for n in (1, 2, 3):
        save(n)
    assert [version["revision"] for version in store.versions(story, branch)] == [1]  # within five minutes: one
    monkeypatch.setattr(stores, "VERSION_EVERY", timedelta(0))
    monkeypatch.setattr(stores, "VERSIONS", 3)
    for n in (4, 5, 6, 7):
        save(n)
    told = store.versions(story, branch)
    assert not any("state" in version for version in told)
    assert [version["preview"] for version in told] == ["6", "5", "4"]
    assert store.version(story, branch, told[0]["id"])["state"] == {
        "lines": [{"text": "6"}, {"text": ""}], "undo": [], "redo": []
    }  # fmt: skip
    with pytest.raises(RefusedError, match="no version"):
        store.version(story, branch, 999)


def test_a_version_says_what_changed_since_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "VERSION_EVERY", timedelta(0))
    store = Store(tmp_path / "s.db")
    stages = [
        ["Once.", "", "End."],
        ["Once.", "Rain.", "End."],
        ["Once.", "Rain.", "End."],
        ["Once.", "Rain."],
        ["x", ""],
    ]
    made = store.new_story("x", {"lines": [{"text": text} for text in stages[0]]})
    for revision, texts in enumerate(stages[1:], start=1):
        state = {"lines": [{"text": text} for text in texts]}
        store.save(made["id"], made["branch"]["id"], None, state, revision)
    told = store.versions(made["id"], made["branch"]["id"])
    assert [(one["line"], one["changed"]) for one in told] == [(3, ""), (None, ""), (2, "Rain."), (1, "Once.")]


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    Store(tmp_path / "s.db").new_story("x", STATE)
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == dict.fromkeys(
        ("s.db", "s.db-wal", "s.db-shm"), "0o600"
    )


def test_readers_do_not_wait_for_a_writer_that_waits(tmp_path: Path) -> None:
    """Another program holds the lock and a save waits for it: lists are read meanwhile."""
    store = Store(tmp_path / "s.db")
    store.new_story("x", STATE)
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun, told = threading.Event(), []

    def save() -> None:
        begun.set()
        with pytest.raises(RefusedError, match="is locked"):
            store.new_story("y", STATE)
        told.append("refused")

    waiting = threading.Thread(target=save)
    waiting.start()
    begun.wait()
    while not store.database._lock.locked():  # until the save waits
        assert not told
    assert [story["title"] for story in store.stories(9, 0)] == ["x"]
    assert not told  # the save was still waiting
    waiting.join()
    other.execute("ROLLBACK")


def test_a_file_deleted_while_running_takes_nothing_more(tmp_path: Path) -> None:
    for victim in ("s.db", "s.db-wal"):
        folder = tmp_path / victim
        folder.mkdir()
        store = Store(folder / "s.db")
        store.new_story("x", STATE)
        (folder / victim).unlink()
        uses: list[Callable[[], object]] = [partial(store.new_story, "y", STATE), partial(store.stories, 9, 0)]
        for use in uses:
            with pytest.raises(RefusedError, match="was deleted or replaced while Fabula runs") as caught:
                use()
            assert caught.value.status == 503


def test_a_file_damaged_while_running_takes_nothing_more(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    for n in range(40):
        store.new_story(f"{n}", {"lines": [{"text": "long " * 300}, {"text": ""}]})
    store.database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.new_story("y", STATE)
    size = (tmp_path / "s.db").stat().st_size
    with (tmp_path / "s.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\x99" * (size - 8192))
    for _ in range(2):
        with pytest.raises(RefusedError, match="damaged") as caught:
            store.new_story("z", STATE)
        assert caught.value.status == 503
