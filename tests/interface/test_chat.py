"""Chats as tools ask for them: with the real `openai` client, and with llm's own client of such servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import llm
import openai
import pytest
from llm.default_plugins.openai_models import Chat

import fabula
from fabula.apps.serve import command
from fabula.apps.serve.app import create_server
from fabula.apps.serve.settings import ServerSettings

STORY = "Tom was sad. _ _ Tom was glad."
LINES = ["Tom was sad.", None, None, "Tom was glad."]
USER = {"role": "user", "content": STORY}


@pytest.fixture(scope="module")
def url(serving: Callable[[Any], AbstractContextManager[str]], random_models: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABULA_MODELS", str(random_models))
        patch.setattr("fabula.catalogue.PACKAGED", random_models / "none")
        with serving(create_server(ServerSettings())) as address:
            yield address


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def ask(client: openai.OpenAI, messages: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="default", messages=messages, seed=7, **more)


def test_the_answer_is_the_story_that_fill_gives(client: openai.OpenAI, random_models: Path) -> None:
    filling = fabula.load(random_models / "default").fill(LINES, candidates=2, seed=7)
    answer = ask(client, [{"role": "system", "content": "Be brief."}, USER], n=2, top_p=0.5)
    assert [choice.message.content for choice in answer.choices] == [story.text for story in filling.candidates]
    assert (answer.object, answer.choices[0].message.role) == ("chat.completion", "assistant")
    assert answer.fabula["ignored"] == ["top_p", "messages.system"]
    streamed = list(ask(client, [USER], n=2, stream=True, stream_options={"include_usage": True}))
    texts = ["".join(c.delta.content or "" for e in streamed for c in e.choices if c.index == i) for i in (0, 1)]
    assert texts == [story.text for story in filling.candidates]
    assert streamed[-1].usage.completion_tokens > 0
    structured = '{"sentences": ["Tom was sad.", null, null, "Tom was glad."], "arc": "- ? ? +"}'
    told = ask(client, [{"role": "user", "content": [{"type": "text", "text": structured}]}])
    assert told.fabula["asked"] == [["negative", None, None, "positive"]]
    begun = ask(client, [{"role": "user", "content": "Tom was sad. He was"}], extra_body={"fabula": {"sentences": 2}})
    assert begun.choices[0].message.content.startswith("Tom was sad. He was")
    cut = ask(client, [USER], max_completion_tokens=3)
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("Tom was", "length")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "no message of the user has a text"),
        ("_ _", "every sentence is missing"),
        ('{"a": 1}', "sentences: is missing"),
    ],
)
def test_mistakes_come_in_that_apis_shape(client: openai.OpenAI, content: str, complaint: str) -> None:
    with pytest.raises(openai.BadRequestError, match=complaint):
        ask(client, [{"role": "user", "content": content}])


def test_llm_speaks_with_it(url: str, random_models: Path) -> None:
    """As `extra-openai-models.yaml` sets up such a server."""
    model = Chat("fabula-served", model_name="default", api_base=f"{url}/v1")  # type: ignore[no-untyped-call]
    reply = model.prompt(STORY, stream=True, seed=7, key="none")
    assert isinstance(reply, llm.Response)
    assert reply.text() == fabula.load(random_models / "default").fill(LINES, candidates=1, seed=7).candidates[0].text


def test_what_serve_prints_and_the_docs_name_is_there(
    url: str, client: openai.OpenAI, random_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [model["name"] for model in httpx.get(f"{url}/api/models").json()["models"]] == [
        "default",
        "lds",
        "lm",
        "s2s",
    ]
    monkeypatch.setenv("FABULA_MODELS", str(random_models))
    monkeypatch.setattr("fabula.catalogue.PACKAGED", random_models / "none")
    served: list[Any] = []
    monkeypatch.setattr("fabula.apps.web.serve.serve", lambda app, *_, **__: served.append(app))
    from fastapi.testclient import TestClient

    from fabula.cli import main

    assert main(["serve"]) == 0
    assert command.ABOUT
    root = TestClient(served[0], base_url="http://127.0.0.1").get("/")
    assert (root.status_code, root.json()["models"]) == (200, "/v1/models")
    answer = client.completions.create(model="default", prompt="Tom was sad.", suffix="Tom was glad.", n=9, seed=1)
    assert len(answer.choices) == 9
