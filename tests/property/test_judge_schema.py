"""Whatever the judge's OpenAPI document allows, and much that it does not, over a living study: never a 500."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.routes import create_app
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CALM = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
KEY = {"X-Fabula-Curator": "the-key"}


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
    with serving(create_app(store, curator="the-key")) as url:
        yield schemathesis.openapi.from_url(f"{url}/api/openapi.json")


def ask_everything(document: Any, examples: int, derandomize: bool) -> set[int]:
    """Every operation with requests that follow the document, and with requests that do not; the statuses seen."""
    seen = set()
    for operation in (found.ok() for found in document.get_all_operations()):
        for mode in GenerationMode:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=examples, deadline=None, derandomize=derandomize, database=None,
                suppress_health_check=CALM,
            )  # fmt: skip
            def answered(case: Any) -> None:
                answer = case.call(timeout=60, headers=KEY)
                seen.add(answer.status_code)
                case.validate_response(answer, checks=CHECKS)

            # What takes nothing cannot be asked wrongly.
            with suppress(Unsatisfiable):
                answered()
    return seen


@pytest.mark.parametrize("examples", [4, pytest.param(25, marks=pytest.mark.system)])
def test_every_answer_is_documented(document: Any, examples: int) -> None:
    assert {200, 404, 422} <= ask_everything(document, examples=examples, derandomize=examples == 4)
