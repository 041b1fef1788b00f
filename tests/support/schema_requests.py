"""Requests made from an OpenAPI document: those that follow it, and those that do not."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

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
