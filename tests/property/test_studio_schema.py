"""Whatever the OpenAPI document allows, and much that it does not: never a 500, and every answer as documented."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from fabula.apps.studio.app import StudioSettings, create_app
from schema_requests import ask_everything


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
def test_every_answer_is_documented(document: Any, examples: int, least: int) -> None:
    assert len(ask_everything(document, examples, quick)) > least
