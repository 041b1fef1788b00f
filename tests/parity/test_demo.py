"""README, its picture and `make demo` show one story, which is the shipped model's and fit for a newcomer."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import fabula
from fabula import cli

DOCS = Path(__file__).parents[2] / "docs"
RECORD: dict[str, Any] = json.loads((DOCS / "story.json").read_text(encoding="utf-8"))
PICTURE = runpy.run_path(str(DOCS / "picture.py"))


def test_the_picture_the_pages_and_the_demo_are_one_story() -> None:
    """On any processor: nothing is drawn anew. After a change run `make picture`."""
    sentences = RECORD["answer"]["candidates"][0]["sentences"]
    assert (DOCS / "story.svg").read_text(encoding="utf-8") == PICTURE["picture"](RECORD["answer"])
    assert [None if s["written"] else s["text"] for s in sentences] == list(PICTURE["STORY"])
    assert RECORD["answer"]["seed"] == PICTURE["SEED"]
    assert " ".join(s["text"] for s in sentences) == RECORD["stories"][PICTURE["SEED"]]
    assert f"fill {PICTURE['typed']()}" in (DOCS.parent / "Makefile").read_text(encoding="utf-8")
    for page in PICTURE["PAGES"]:
        assert PICTURE["COMMAND"].search(page.read_text(encoding="utf-8"))[0] == f"fabula fill {PICTURE['typed']()}"


def test_the_story_is_the_shipped_models() -> None:
    assert RECORD["model"] == PICTURE["model_hash"](), "the default model has changed: run make picture"


def test_twenty_seeds_are_fit_for_a_newcomer() -> None:
    assert len(RECORD["stories"]) == 20
    assert not [story for story in RECORD["stories"] if PICTURE["OFF_COLOUR"].search(story)]
    assert PICTURE["OFF_COLOUR"].search("His friend suggested they sleep together.")


@pytest.mark.system
def test_the_shipped_model_gives_the_story_the_same_probability(capsys: pytest.CaptureFixture[str]) -> None:
    """Computed here, with room for another processor's 8-bit rounding, which moved this story by 1.9 of its 82 nats on
    one of two machines; and the demo's live answer is fit too."""
    stated = RECORD["answer"]["candidates"][0]["sentences"]
    score = fabula.load("default").score([sentence["text"] for sentence in stated])
    assert sum(score.log_p_sentences) == pytest.approx(sum(s["log_p"] for s in stated), abs=4)
    for seed in ("0", "1", "2"):
        story = [sentence or "_" for sentence in PICTURE["STORY"]]
        assert cli.main(["fill", *story, "--candidates", "1", "--seed", seed]) == 0
        printed = capsys.readouterr().out
        assert story[0] in printed
        assert not PICTURE["OFF_COLOUR"].search(printed)
