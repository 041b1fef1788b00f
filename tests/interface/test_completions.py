"""Completions and chats as others ask for them: the real `openai` client, llm's own, a page in a browser."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import llm
import openai
import pytest
from fastapi.testclient import TestClient
from llm.default_plugins.openai_models import Chat

import fabula
from doors import Serving
from fabula.apps.serve import command
from fabula.apps.serve.app import create_server
from fabula.apps.serve.settings import USUAL_SAMPLES, ServerSettings
from fabula.cli import main

STORY = "Tom was sad. _ _ Tom was glad."
LINES = ["Tom was sad.", None, None, "Tom was glad."]
USER = {"role": "user", "content": STORY}
PAGE = "http://localhost:3000"
TOKEN = "a-long-secret"
SAMPLES = 6
"""Enough for two candidates, and drawn soon."""


@pytest.fixture(scope="module")
def url(serving: Serving, installed: Path) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fabula.apps.serve.completions.USUAL_SAMPLES", SAMPLES)
        with serving(create_server(ServerSettings(token=TOKEN, origins=frozenset({PAGE})))) as address:
            yield address


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0)


def test_the_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["default", "lds", "lm", "s2s"]
    assert client.models.retrieve("lds").owned_by == "fabula"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-5")
    assert caught.value.code == "model_not_found"


def test_a_fill_between_prompt_and_suffix(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "default", "prompt": "Tom was sad.", "suffix": "Tom was glad."}
    extra = {"fabula": {"sentences": 2, "arc": ["negative", None]}}
    answer = client.completions.create(**asked, n=2, seed=7, temperature=0.8, extra_body=extra)
    assert answer.object == "text_completion"
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.finish_reason == "stop" for choice in answer.choices)
    text = answer.choices[0].text
    assert text.startswith(" ")
    assert text.endswith(" "), "prompt + text + suffix is the story"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    told = answer.to_dict()["fabula"]
    assert isinstance(told, dict)
    assert told["seed"] == 7
    assert [len(tags) for tags in told["tags"]] == [2, 2]
    again = client.completions.create(**asked, n=2, seed=7, temperature=0.8, extra_body=extra)
    assert again.choices[0].text == text


def test_it_is_what_fill_answers_for_the_same_seed(client: openai.OpenAI, random_models: Path) -> None:
    filled = fabula.load(random_models / "default").fill(LINES, candidates=1, seed=7, samples=SAMPLES)
    answer = client.completions.create(
        model="default",
        prompt="Tom was sad. ",
        suffix=" Tom was glad.",
        seed=7,
        extra_body={"fabula": {"sentences": 2}},
    )
    assert answer.choices[0].text == " ".join(s.text for s in filled.candidates[0].sentences[1:3])


def test_a_stream_adds_up_to_the_answer(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "default", "prompt": "Tom was sad.", "suffix": "Tom was glad.", "seed": 3, "n": 2}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    for choice in whole.choices:
        mine = [found.choices[0] for found in chunks if found.choices and found.choices[0].index == choice.index]
        assert "".join(part.text for part in mine) == choice.text
        assert len(mine) > 2, "sentence by sentence"
        assert [part.finish_reason for part in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1].finish_reason == "stop"
    assert chunks[-1].usage == whole.usage


def test_tokens_and_stops_end_the_text(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "default", "prompt": "Tom was sad.", "seed": 3}
    whole = client.completions.create(**asked).choices[0].text
    short = client.completions.create(**asked, max_tokens=3).choices[0]
    assert short.finish_reason == "length"
    assert 0 < len(short.text) < len(whole)
    assert whole.startswith(short.text)
    word = whole.split()[1]
    stopped = client.completions.create(**asked, stop=[word]).choices[0]
    assert stopped.text == whole[: whole.index(word)]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"n": 0}, "n"),
        ({"prompt": "word " * 90}, "prompt"),
        ({"temperature": "hot"}, "temperature"),
        ({"fabula": {"moods": "+"}}, "fabula.moods"),
        ({"fabula": {"arc": "+ -", "sentences": 3}}, "arc"),
        ({"fabula": {"arc": "purple"}}, "arc"),
    ],
)
def test_mistakes_come_in_that_apis_shape(client: openai.OpenAI, asked: dict[str, Any], param: str) -> None:
    body = {"model": "default", "prompt": "Tom was sad.", **asked}
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=body.pop("model"), prompt=body.pop("prompt"), extra_body=body)
    assert caught.value.type == "invalid_request_error"
    assert str(caught.value.param).startswith(param)


def test_other_refusals_too(client: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0).models.list()
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="gpt-5", prompt="Tom was sad.")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.APIError, match="unknown tag"):
        list(
            client.completions.create(model="default", prompt="Tom.", stream=True, extra_body={"fabula": {"arc": "x"}})
        )
    gone = httpx.get(f"{url}/v1/nothing", headers={"Authorization": f"Bearer {TOKEN}"})
    assert (gone.status_code, gone.json()["error"]["type"]) == (404, "not_found_error")


def test_a_page_like_mikupad(url: str) -> None:
    """Its requests carry the settings of many samplers; what means nothing here is listed, and the page may ask."""
    bearer = {"Authorization": f"Bearer {TOKEN}", "Origin": PAGE}
    asked = httpx.options(
        f"{url}/v1/completions",
        headers={
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        },
    )
    assert asked.headers["access-control-allow-origin"] == PAGE
    body = {
        "model": "default", "prompt": "Tom was sad. ", "stream": True, "max_tokens": 40, "temperature": 0.7, "seed": 5,
        "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical": 1, "tfs_z": 1, "repetition_penalty": 1.1,
        "presence_penalty": 0, "frequency_penalty": 0, "mirostat_mode": 0, "logprobs": 10, "stop": ["\n\n"],
        "ignore_eos": False, "logit_bias": None,
    }  # fmt: skip
    with httpx.stream("POST", f"{url}/v1/completions", json=body, headers=bearer, timeout=60) as answer:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    parts = [json.loads(line) for line in lines[:-1]]
    assert "".join(part["choices"][0]["text"] for part in parts)
    assert {"top_p", "min_p", "logprobs", "mirostat_mode"} <= set(parts[-1]["fabula"]["ignored"])
    assert "logit_bias" not in parts[-1]["fabula"]["ignored"], "null is as good as nothing"
    foreign = httpx.post(f"{url}/v1/completions", json=body, headers={**bearer, "Origin": "http://evil.example"})
    assert (foreign.status_code, foreign.json()["error"]["type"]) == (403, "permission_error")


# --- chats ----------------------------------------------------------------------------------------------------------


def ask(client: openai.OpenAI, messages: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="default", messages=messages, seed=7, **more)


def test_the_answer_is_the_story_that_fill_gives(client: openai.OpenAI, random_models: Path) -> None:
    filling = fabula.load(random_models / "default").fill(LINES, candidates=2, seed=7, samples=SAMPLES)
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
def test_mistakes_of_chats_come_in_that_apis_shape(client: openai.OpenAI, content: str, complaint: str) -> None:
    with pytest.raises(openai.BadRequestError, match=complaint):
        ask(client, [{"role": "user", "content": content}])


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many samples as there are where nothing is patched."""
    monkeypatch.setattr("fabula.apps.serve.completions.USUAL_SAMPLES", USUAL_SAMPLES)


@pytest.mark.usefixtures("usual")
def test_llm_speaks_with_it(url: str, random_models: Path) -> None:
    """As `extra-openai-models.yaml` sets up such a server."""
    model = Chat("fabula-served", model_name="default", api_base=f"{url}/v1")  # type: ignore[no-untyped-call]
    reply = model.prompt(STORY, stream=True, seed=7, key=TOKEN)
    assert isinstance(reply, llm.Response)
    assert reply.text() == fabula.load(random_models / "default").fill(LINES, candidates=1, seed=7).candidates[0].text


@pytest.mark.usefixtures("usual")
def test_what_serve_prints_and_the_docs_name_is_there(
    url: str, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = httpx.get(f"{url}/api/models", headers={"Authorization": f"Bearer {TOKEN}"}).json()["models"]
    assert [model["name"] for model in listed] == ["default", "lds", "lm", "s2s"]
    served: list[Any] = []
    monkeypatch.setattr("fabula.apps.web.serve.serve", lambda app, *_, **__: served.append(app))
    assert main(["serve"]) == 0
    assert command.ABOUT
    root = TestClient(served[0], base_url="http://127.0.0.1").get("/")
    assert (root.status_code, root.json()["models"]) == (200, "/v1/models")
    answer = client.completions.create(model="default", prompt="Tom was sad.", suffix="Tom was glad.", n=9, seed=1)
    assert len(answer.choices) == 9
