"""Whatever an OpenAPI document allows, and much that it does not: never a 500, and every answer as documented."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
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

from doors import Serving
from fabula.apps.judge import routes
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out
from fabula.apps.studio.app import StudioSettings, create_app

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CALM = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def ask_everything(document: Any, examples: int, change: Callable[[Any], Any] = lambda case: case) -> list[int]:
    """The status of every answer, each of which is checked against the document; few examples are always the same."""
    statuses: list[int] = []
    for operation in (result.ok() for result in document.get_all_operations()):
        for mode in GenerationMode:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(max_examples=examples, derandomize=examples < 10, database=None, suppress_health_check=CALM)
            def answered(case: Any) -> None:
                case = change(case)
                answer = case.call(timeout=60)
                statuses.append(answer.status_code)
                case.validate_response(answer, checks=CHECKS)

            # What takes nothing cannot be asked wrongly.
            with suppress(Unsatisfiable):
                answered()
    return statuses


@pytest.fixture(scope="module")
def studio(serving: Serving, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fabula.apps.serve.completions.USUAL_SAMPLES", 2)
        chosen = StudioSettings(db=tmp_path_factory.mktemp("schema") / "studio.db")
        with serving(create_app(chosen)) as url:
            yield schemathesis.openapi.from_url(f"{url}/api/openapi.json")


def quick(case: Any) -> Any:
    """Few samples and few sentences are as good a question, and answered sooner."""
    body = case.body
    if isinstance(body, dict):
        if isinstance(body.get("samples"), int):
            body["samples"] = min(body["samples"], 2)
        if isinstance(body.get("sentences"), int):
            body["sentences"] = min(body["sentences"], 3)
        elif isinstance(body.get("sentences"), list):
            body["sentences"] = body["sentences"][:3]
        if case.path.endswith(("/fill", "/fill/stream", "/write")):
            body.setdefault("samples", 2)
        if case.path.endswith("/completions") and isinstance(body.get("fabula", {}), dict):
            body["fabula"] = {**body.get("fabula", {}), "sentences": 2}
    return case


@pytest.mark.parametrize(("examples", "least"), [(2, 60), pytest.param(200, 5_000, marks=pytest.mark.system)])
def test_every_answer_of_the_studio_is_documented(studio: Any, examples: int, least: int) -> None:
    assert len(ask_everything(studio, examples, quick)) > least


@pytest.fixture(scope="module")
def judge(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Over a living study."""
    store = Store(tmp_path_factory.mktemp("schema") / "judge.db")
    pairs = [
        Pair(id=str(n), systems=("A", "B"), given=(0,), stories=((f"Kim {n}.", "Red."), (f"Kim {n}.", "Blue.")))
        for n in range(30)
    ]
    store.create_study(lay_out(pairs, StudySettings()), StudySettings())
    for n in range(20):
        store.add(str(n), "ann", [[n % 4], [3 - n % 4]], n % 2, 1.0)
    with serving(routes.create_app(store)) as url:
        yield schemathesis.openapi.from_url(f"{url}/api/openapi.json")


@pytest.mark.parametrize("examples", [2, pytest.param(25, marks=pytest.mark.system)])
def test_every_answer_of_the_judge_is_documented(judge: Any, examples: int) -> None:
    assert {200, 404, 422} <= set(ask_everything(judge, examples))
