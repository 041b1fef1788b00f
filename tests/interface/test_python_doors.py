"""What Python and the command line give: text for JSON, records for rows, exact shares, early complaints."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import fabula
from fabula.cli import main, options

STORY = ["Tom was sad.", None, "Tom was glad."]


@pytest.fixture(autouse=True)
def models(random_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABULA_MODELS", str(random_models))
    monkeypatch.setattr("fabula.catalogue.PACKAGED", random_models / "none")
    monkeypatch.setattr("fabula.models.defaults.PACKAGED", random_models / "none")


def test_json_is_the_text_that_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    filling = fabula.load(None).fill(STORY, samples=2, seed=3)
    assert main(["fill", STORY[0] or "", "_", STORY[2] or "", "--samples", "2", "--seed", "3", "--json"]) == 0
    assert filling.to_json() == capsys.readouterr().out.strip()
    assert json.loads(filling.to_json()) == filling.to_dict(decimals=4)


def test_a_row_of_many_is_a_record_with_a_filling() -> None:
    model = fabula.load()
    good, bad = model.fill_many([{"id": "a", "sentences": STORY}, {"id": "b"}], samples=2)
    assert isinstance(good, fabula.FilledRow)
    assert isinstance(good.filling, fabula.Filling)
    assert (bad.filling, bad.error, bad.candidates) == (None, "no list `sentences`", ())


@pytest.mark.parametrize("name", ["default", "lds"])
def test_shares_add_up_to_one(name: str) -> None:
    """In double precision: single precision left 1.0000000198."""
    model = fabula.load(name)
    tagged: tuple[Any, ...] = model.tag(["Tom was sad.", "He was glad."]).probabilities
    for row in (*model.posterior(STORY, samples=97).tags, *tagged):
        assert math.fsum(row.values()) == pytest.approx(1, abs=1e-12)
        assert max(row.values()) <= 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--candidates", "0"], "candidates must be at least 1"),
        (["--temperature", "-1"], "temperature must be above 0"),
        (["--sampler", "magic"], "unknown sampler"),
        (["--arc", "+ purple -"], "unknown tag 'purple'"),
        (["--arc", "+ -"], "the arc has 2 tags for 3 sentences"),
        (["--starts", "1:He"], "sentence 1 is given"),
        (["--seed", str(2**70)], "seed must be a number of 64 bits"),
        (["--person", "Tom:it"], "a pronoun is"),
    ],
)
def test_options_are_checked_before_a_model_is_loaded(
    words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "load_model", lambda args: pytest.fail("a model was loaded"))
    assert main(["fill", "Tom was sad.", "_", "Tom was glad.", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert complaint in line


def test_as_many_samples_as_the_candidates_need() -> None:
    model = fabula.load("lm")
    assert model.usual_samples("rerank") == 1000
    assert model.usual_samples("rerank", candidates=800) == 1600
    assert fabula.load().fill(STORY, candidates=30).samples == 60
    assert fabula.load().write(2, candidates=8).samples == 16
    few = fabula.load().fill(STORY, candidates=30, samples=3)
    assert any(note.startswith(f"only {len(few.candidates)} of the 30 candidates") for note in few.notes)
