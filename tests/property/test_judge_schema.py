"""Whatever the judge's OpenAPI document allows, and much that it does not, over a living study: never a 500."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import schemathesis

from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.routes import create_app
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out
from schema_requests import ask_everything


@pytest.fixture(scope="module")
def document(
    serving: Callable[[Any], AbstractContextManager[str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    store = Store(tmp_path_factory.mktemp("schema") / "judge.db")
    pairs = [
        Pair(id=str(n), systems=("A", "B"), given=(0,), stories=((f"Kim {n}.", "Red."), (f"Kim {n}.", "Blue.")))
        for n in range(30)
    ]
    store.create_study(lay_out(pairs, StudySettings()), StudySettings())
    for n in range(20):
        store.add(str(n), "ann", [[n % 4], [3 - n % 4]], n % 2, 1.0)
    with serving(create_app(store)) as url:
        yield schemathesis.openapi.from_url(f"{url}/api/openapi.json")


@pytest.mark.parametrize("examples", [2, pytest.param(25, marks=pytest.mark.system)])
def test_every_answer_is_documented(document: Any, examples: int) -> None:
    assert {200, 404, 422} <= set(ask_everything(document, examples))
