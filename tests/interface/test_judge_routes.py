"""The judge over HTTP: every route's success, its refusals in the one shape, and nothing that tells who wrote what."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.routes import PAGE, create_app
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out

SYSTEMS = ("Alphasystem", "Betasystem")


def pair(n: int) -> Pair:
    first, second = (
        (f"Kim found box {n}.", f"Box {n} was {colour}.", f"Kim sang {n} songs.", f"Kim kept box {n}.")
        for colour in ("red", "blue")
    )
    return Pair(id=f"secret-{n}", systems=SYSTEMS, given=(0, 3), stories=(first, second))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    settings = StudySettings(annotators=2, seed=1)
    store = Store(tmp_path / "judge.db")
    store.create_study(lay_out([pair(n) for n in range(3)], settings), settings)
    return store


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(create_app(store), base_url="http://127.0.0.1") as client:
        yield client


def refused(response: Any, status: int, field: str | None = None) -> str:
    """The message of a refusal, after its shape has been looked at."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) - {"fields"} == {"message", "field", "status"}
    assert error["status"] == status
    assert "\n" not in error["message"]
    if field is not None:
        assert error["field"] == field
    return str(error["message"])


def task(client: TestClient, code: str) -> dict[str, Any]:
    response = client.post("/api/judge/tasks", json={"code": code})
    assert response.status_code == 200, response.text
    shown: dict[str, Any] = response.json()
    return shown


def answer(item: int, code: str = "ann", **other: object) -> dict[str, object]:
    ratings = [[1, 2, 3], [0, 0, 1]]
    return {"code": code, "item": item, "ratings": ratings, "choice": "left", "seconds": 7.5, **other}


def judged(client: TestClient, code: str) -> int:
    item = task(client, code)["task"]["item"]
    assert client.post("/api/judge/answers", json=answer(item, code)).json() == {"kept": True, "new": True}
    return int(item)


# --- annotators ------------------------------------------------------------------------------------------------------


def test_an_annotator_learns_nothing_of_systems_and_pairs(client: TestClient) -> None:
    ahead = []
    while (shown := task(client, "ann"))["task"] is not None:
        text = json.dumps(shown)
        assert not any(word in text for word in (*SYSTEMS, "secret", "better", "swap"))
        assert set(shown["task"]) == {"item", "left", "right"}
        ahead.append(shown["ahead"])
        judged(client, "ann")
    assert ahead == [3, 2, 1]
    study = shown.pop("study")
    assert shown == {"task": None, "answered": 3, "ahead": 0, "code": "ann"}
    assert study == task(client, "bob")["study"]


def test_a_side_is_kept_as_the_story_that_stood_there(client: TestClient, store: Store) -> None:
    for _ in range(3):
        judged(client, "ann")
    items = {item.pair.id: item for item in store.items()}
    assert {item.swapped for item in items.values()} == {False, True}
    for one in store.judgements():
        left = int(items[one.pair].swapped)
        assert one.ratings[left] == (1, 2, 3)
        assert one.better == left


def test_a_wrong_answer_is_refused_and_leaves_nothing(client: TestClient, store: Store) -> None:
    item = task(client, "ann")["task"]["item"]
    changes: list[tuple[dict[str, object], int, str | None]] = [
        ({"item": 99}, 404, "item"),
        ({"item": 10**30}, 404, "item"),
        ({"item": "1"}, 422, "item"),
        ({"code": "no blanks"}, 422, "code"),
        ({"ratings": [[1, 2, 3], [1, 2, 4]]}, 422, "ratings[1][2]"),
        ({"ratings": [[1, 2, 3], [1, 2, True]]}, 422, "ratings[1][2]"),
        ({"ratings": [[1, 2, 3]]}, 422, "ratings"),
        ({"ratings": [[1, 2], [1, 2]]}, 422, None),
        ({"choice": "both"}, 422, "choice"),
        ({"seconds": -1}, 422, "seconds"),
        ({"more": 1}, 422, "more"),
    ]
    for change, status, field in changes:
        refused(client.post("/api/judge/answers", json={**answer(item), **change}), status, field)
    assert store.judgements() == []


# --- pages and guard -------------------------------------------------------------------------------------------------


def test_the_pages_and_all_they_name_are_served_under_a_strict_policy(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.text == (PAGE / "index.html").read_text(encoding="utf-8")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    assert "<style" not in page.text
    assert "style=" not in page.text
    for file in re.findall(r'(?:href|src)="(/(?:page|shared)/[^"]+)"', page.text):
        assert client.get(file).status_code == 200, file
    for file in PAGE.iterdir():
        assert client.get(f"/page/{file.name}").status_code == 200
        assert "innerHTML" not in file.read_text(encoding="utf-8")
        assert "http://" not in file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")


def test_strangers_are_kept_out(store: Store) -> None:
    app = create_app(store, token="a-long-token")
    with TestClient(app, base_url="http://127.0.0.1") as client:
        refused(client.post("/api/judge/tasks", json={"code": "ann"}), 401)
        assert client.get("/?token=a-long-token").status_code == 200
        assert task(client, "ann")["task"] is not None
        refused(client.post("/api/judge/tasks", json={"code": "ann"}, headers={"Origin": "http://evil.example"}), 403)
        refused(client.get("/", headers={"Host": "evil.example"}), 403)
        refused(client.post("/api/judge/tasks", content=b"x" * 100_000), 413)


def test_the_same_answer_again_is_kept_once(client: TestClient, store: Store) -> None:
    item = judged(client, "ann")
    assert client.post("/api/judge/answers", json=answer(item)).json() == {"kept": True, "new": False}
    assert "already" in refused(client.post("/api/judge/answers", json=answer(item, choice="tie")), 409, "item")
    assert len(store.judgements()) == 1
