"""The schemas of schema/ are those of the code, and what the code writes fits them."""

import json
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import fabula

FOLDER = Path(__file__).parents[2] / "schema"
STORY = ["Tom was sad.", "He made it to work.", "Tom was glad."]


def fits(name: str, answer: Any) -> None:
    schema = json.loads((FOLDER / f"{name}.v1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json.dumps(answer)), schema)


def test_the_files_are_up_to_date() -> None:
    make = runpy.run_path(str(FOLDER / "make.py"))
    kept = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert kept == make["schemas"](), "python schema/make.py writes them anew"
    assert make["PAGE_SCHEMA"].read_text(encoding="utf-8") == make["page_schema"](), "so is page/schema.js"


def test_every_answer_fits(random_models: Path) -> None:
    narrator = fabula.load(random_models / "default")
    filling = narrator.fill([STORY[0], None, STORY[2]], samples=3)
    fits("filling", filling.to_dict(4))
    fits("filling", filling.to_dict())
    assert filling.to_dict()["candidates"][0]["score"] == filling.candidates[0].score  # with every digit
    fits("filling", narrator.write(3, samples=2, sampler="gibbs").to_dict(4))
    fits("tagging", narrator.tag(STORY).to_dict(4))
    fits("score", narrator.score(STORY, samples=2).to_dict(4))
    fits("explanation", narrator.explain(STORY, arc="- ? +").to_dict(4))
    fits("posterior", narrator.posterior([STORY[0], None], samples=2).to_dict(4))
    with pytest.raises(jsonschema.ValidationError):
        fits("filling", {"candidates": []})


def test_a_state_of_before_still_opens() -> None:
    """What a studio of 0.1 kept: no tray, no model."""
    from fabula.apps.studio.document import State

    old = {"lines": [{"text": "Tom was sad."}, {"write": True}], "seed": 3}
    state = State.model_validate(old)
    assert state.tray == []
    fits("story", state.model_dump())
