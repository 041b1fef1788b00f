"""Whatever the OpenAPI document allows, and much that it does not: never a 500, and every answer as documented."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
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

from fabula.apps.studio.app import create_app
from fabula.apps.studio.settings import StudioSettings

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def document(
    serving: Callable[[Any], AbstractContextManager[str]],
    random_models: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABULA_MODELS", str(random_models))
        patch.setattr("fabula.catalogue.PACKAGED", random_models / "none")
        patch.setattr("fabula.apps.serve.completions.USUAL_SAMPLES", 2)
        chosen = StudioSettings(db=tmp_path_factory.mktemp("schema") / "studio.db")
        with serving(create_app(chosen)) as url:
            yield schemathesis.openapi.from_url(f"{url}/api/openapi.json")


CALM = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


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


def ask_everything(document: Any, examples: int, derandomize: bool) -> int:
    """Every operation with requests that follow the document, and with requests that do not; how many were asked."""
    asked = 0
    for operation in (found.ok() for found in document.get_all_operations()):
        for mode in GenerationMode:

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=examples, deadline=None, derandomize=derandomize, database=None,
                suppress_health_check=CALM,
            )  # fmt: skip
            def answered(case: Any) -> None:
                nonlocal asked
                asked += 1
                case = quick(case)
                case.validate_response(case.call(timeout=60), checks=CHECKS)

            # What takes nothing cannot be asked wrongly.
            with suppress(Unsatisfiable):
                answered()
    return asked


def test_every_answer_is_documented(document: Any) -> None:
    assert ask_everything(document, examples=2, derandomize=True) > 60


@pytest.mark.system
def test_every_answer_is_documented_at_length(document: Any) -> None:
    assert ask_everything(document, examples=200, derandomize=False) > 5_000
