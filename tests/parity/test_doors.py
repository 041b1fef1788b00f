"""Three doors to one function: the command line, Python and HTTP give the same answer for the same seed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import fabula
from doors import Serving
from fabula.apps.studio.app import StudioSettings, create_app
from fabula.cli import main

STORY = ["Mia's car would not start.", None, None, "Mia made it to work on time."]
GIVEN = ["_" if sentence is None else sentence for sentence in STORY]
TOLD = ["Tom was sad.", "Zorblax went home.", "Tom was glad."]


@pytest.fixture(scope="module")
def client(serving: Serving, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = StudioSettings(db=tmp_path_factory.mktemp("doors") / "studio.db")
    with serving(create_app(settings)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body", "call", "words"),
    [
        (
            "fill",
            {"sentences": STORY, "seed": 5, "candidates": 2, "samples": 8},
            lambda n: n.fill(STORY, seed=5, candidates=2, samples=8),
            ["fill", *GIVEN, "--seed", "5", "--candidates", "2", "--samples", "8"],
        ),
        (
            "fill",
            {
                "sentences": STORY,
                "arc": ["negative", None, "neutral", "positive"],
                "sampler": "gibbs",
                "samples": 9,
                "starts": {"2": "She was"},
                "top_k": 3,
                "temperature": 0.9,
            },
            lambda n: n.fill(
                STORY, arc="-?.+", sampler="gibbs", samples=9, starts={2: "She was"}, top_k=3, temperature=0.9
            ),
            [
                *["fill", *GIVEN, "--arc=-?.+", "--sampler", "gibbs", "--samples", "9", "--starts", "2:She was"],
                *["--top-k", "3", "--temperature", "0.9"],
            ],
        ),
        (
            "fill",
            {"sentences": STORY, "model": "lm", "samples": 8},
            lambda _: fabula.load("lm").fill(STORY, samples=8),
            ["fill", *GIVEN, "--model", "lm", "--samples", "8"],
        ),
        (
            "write",
            {"sentences": 3, "arc": ["negative", "neutral", None], "candidates": 2, "samples": 4},
            lambda n: n.write(3, arc="-.?", candidates=2, samples=4),
            ["write", "--sentences", "3", "--arc=-.?", "--candidates", "2", "--samples", "4"],
        ),
        ("tag", {"sentences": TOLD}, lambda n: n.tag(TOLD), ["tag", *TOLD]),
        (
            "score",
            {"sentences": TOLD, "seed": 4, "samples": 7},
            lambda n: n.score(TOLD, seed=4, samples=7),
            ["score", *TOLD, "--seed", "4", "--samples", "7"],
        ),
    ],
)
def test_command_line_python_and_http_agree(
    client: httpx.Client,
    path: str,
    body: dict[str, Any],
    call: Callable[[fabula.StoryModel], Any],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr().out.strip()
    python = call(fabula.load("default"))
    assert printed == python.to_json()
    http = client.post(f"/api/{path}", json=body)
    assert http.status_code == 200
    assert json.loads(printed) == python.to_dict(4) == http.json()


def test_what_only_python_and_http_have_agrees(client: httpx.Client) -> None:
    model = fabula.load("default")
    why = client.post("/api/explain", json={"sentences": TOLD, "arc": [None, None, "positive"], "seed": 8}).json()
    assert why == json.loads(model.explain(TOLD, arc="??+", seed=8).to_json())
    moods = client.post("/api/posterior", json={"sentences": STORY, "seed": 8}).json()
    told = model.posterior(STORY, seed=8).to_dict(4)
    assert moods == {name: told[name] for name in ("tags", "samples", "seed", "model")}
