"""The studio's file: revisions under many writers, trash, versions, copies; files that vanish or break."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from fabula.apps.judge.store import Store as JudgeStore
from fabula.apps.studio import store as stores
from fabula.apps.studio.store import Store
from fabula.apps.web import database
from fabula.apps.web.errors import RefusedError
from fabula.errors import UserError

STATE = {"lines": [{"text": "A."}, {"text": "B."}]}
BOAT = {"lines": [{"text": "A boat."}, {"text": "It sank."}]}


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


def test_the_file_of_a_study_is_not_the_studios(tmp_path: Path) -> None:
    """Nor the other way round; each is left as it was."""
    study, stories = tmp_path / "study.db", tmp_path / "s.db"
    JudgeStore(study).close()
    with pytest.raises(UserError, match=r"study\.db belongs to fabula judge: choose another file with --db"):
        Store(study)
    with sqlite3.connect(study) as other:
        assert not other.execute("SELECT 1 FROM sqlite_master WHERE name = 'story'").fetchall()
    Store(stories).close()
    with pytest.raises(UserError, match=r"s\.db belongs to fabula studio: choose another file with --db"):
        JudgeStore(stories)
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


def test_a_deleted_story_waits_in_the_trash(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    one, two = (store.new_story(title, BOAT)["id"] for title in ("one", "two"))
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
    made = store.new_story("Ölf", BOAT)
    leaf = store.new_branch(
        made["id"], made["branch"]["id"], "leaf", {"lines": [{"text": "Ein STRAUß."}, {"text": ""}]}
    )
    store.new_story("other", {"lines": [{"text": "100%"}, {"text": ""}], "tray": ["A boat."]})
    assert not any("state" in told for told in store.stories(9, 0))  # a list stays light
    found = {query: [told["title"] for told in store.stories(9, 0, query)] for query in ("ölf", "strauss", "boat", "%")}
    assert found == {"ölf": ["Ölf"], "strauss": ["Ölf"], "boat": ["Ölf"], "%": ["other"]}
    twin = store.copy_story(made["id"])
    assert (twin["title"], [branch["name"] for branch in twin["tree"]]) == ("Ölf (copy)", ["main", "leaf"])
    assert twin["tree"][1]["parent"] == twin["tree"][0]["id"] != made["branch"]["id"]
    assert store.branch(twin["id"], twin["tree"][1]["id"])["state"] == leaf["state"]


def test_versions_are_kept_now_and_then_and_only_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "s.db")
    made = store.new_story("x", BOAT)
    story, branch = made["id"], made["branch"]["id"]

    def save(n: int) -> None:
        store.save(story, branch, None, {"lines": [{"text": f"{n}"}, {"text": ""}], "notes": "x"}, n)

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
    state = {"lines": [{"text": "6"}, {"text": ""}], "notes": "x"}
    assert store.version(story, branch, told[0]["id"])["state"] == state
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
    Store(tmp_path / "s.db").new_story("x", BOAT)
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == dict.fromkeys(
        ("s.db", "s.db-wal", "s.db-shm"), "0o600"
    )


def test_a_file_deleted_while_running_takes_nothing_more(tmp_path: Path) -> None:
    for victim in ("s.db", "s.db-wal"):
        folder = tmp_path / victim
        folder.mkdir()
        store = Store(folder / "s.db")
        store.new_story("x", BOAT)
        (folder / victim).unlink()
        uses: list[Callable[[], object]] = [partial(store.new_story, "y", BOAT), partial(store.stories, 9, 0)]
        for use in uses:
            with pytest.raises(RefusedError, match="was deleted or replaced while Fabula runs") as caught:
                use()
            assert caught.value.status == 503
