"""Beside every line stands what its text has, as `fabula tag` reads it, and not what the arc asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

import fabula
from fabula.apps.serve.completions import Answer, CompletionBody
from fabula.apps.serve.models import ModelCache
from fabula.cli import main, show
from fabula.results import Candidate, Filling, Movement, Sentence

ARCS = ("- - - - -", "+ + + + +", ". . . . .", "+ - . ? -", "? ? - + ?")
STORY = ["Tom was sad and cried.", None, None, None, "Tom was very happy."]


def check(model: fabula.StoryModel, filling: Filling, arc: str) -> None:
    for candidate in filling.candidates:
        texts = [sentence.text for sentence in candidate.sentences]
        tagging = model.tag(texts)
        assert candidate.arc == tagging.tags
        assert [model.states.parse(arc)[i][0] for i in range(5)] == [
            -1 if s.asked is None else model.labels.index(s.asked) for s in candidate.sentences
        ]
        for sentence, shares in zip(candidate.sentences, tagging.probabilities, strict=True):
            assert sentence.met == (None if sentence.asked is None else sentence.asked == sentence.tag)
            assert sentence.confidence == pytest.approx(shares[str(sentence.tag)], abs=1e-4)


@pytest.mark.parametrize(
    "name",
    ["slds", "lm", pytest.param("small", marks=pytest.mark.system), pytest.param("default", marks=pytest.mark.system)],
)
def test_the_tag_is_the_texts_and_the_arc_is_asked(
    name: str, random_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For q(S | X), the default model's tagger, and a model that has neither S nor a tagger of its own."""
    model = fabula.load({"slds": random_models / "default", "lm": random_models / "lm"}.get(name, name))
    few: dict[str, Any] = {"samples": 3, "candidates": 2}
    missed = 0
    for seed, arc in enumerate(ARCS):
        for filling in (model.write(5, arc=arc, seed=seed, **few), model.fill(STORY, arc=arc, seed=seed, **few)):
            check(model, filling, arc)
            missed += sum(s.met is False for candidate in filling.candidates for s in candidate.sentences)
    assert missed  # so that the test is about something


def test_a_given_line_keeps_its_tag() -> None:
    sentences = fabula.load("small").fill(STORY[:2], arc="+ ?", samples=1).candidates[0].sentences
    assert (sentences[0].tag, sentences[0].asked, sentences[0].met) == ("negative", "positive", False)


def test_screens_mark_what_was_missed() -> None:
    met = Sentence("Tom was sad.", False, "negative", -9.0, {}, 0.75, "negative", {}, True)
    missed = Sentence("He smiled.", True, "positive", -7.0, {"verb": "emote"}, 0.9, "negative", {"verb": "lose"}, False)
    filling = Filling((Candidate((met, missed), -3.0),), "small", "smc", 1, 1, 0, Movement((None,), None, None, None))
    first, second = show.show_filling(filling, colour=False, verbose=False, factors=["verb"]).splitlines()
    assert "asked" not in first
    assert "[emote]" in second
    assert second.endswith("He smiled.  (asked for negative, lose)")


def test_rows_of_many_and_completions_say_it_too(
    random_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FABULA_MODELS", str(random_models))
    monkeypatch.setattr("fabula.catalogue.PACKAGED", random_models / "none")
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "a", "sentences": STORY, "arc": "+????"}) + "\n")
    assert main(["fill-many", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out"), "--samples", "2"]) == 0
    (candidate, *_) = json.loads((tmp_path / "out" / "part-000000.jsonl").read_text())["candidates"]
    assert (candidate["tags"][0], candidate["asked"][0], candidate["met"][:2]) == (
        "negative",
        "positive",
        [False, None],
    )
    body = CompletionBody.model_validate({"prompt": "Tom was sad.", "suffix": "Tom smiled.", "fabula": {"arc": "- -"}})

    class Models(ModelCache):
        def __init__(self) -> None:
            self.default = "default"

        def get(self, name: str | None) -> fabula.StoryModel:
            return fabula.load("default")

    asked = Answer(body, Models())
    *_, last = asked.completions()
    extra = asked.extra(last)
    assert extra["asked"] == [["negative", "negative"]]
    assert extra["met"] == [[tag == "negative" for tag in extra["tags"][0]]]


def test_a_language_that_the_model_does_not_write_is_said() -> None:
    model = fabula.load("small")
    for lines in (["Der Hund lief nach Hause."], ["狗跑回家了。"], ["Она была счастлива."]):
        assert not model.knows_language(lines)
    assert all(map(model.knows_language, (["Tom was sad."], ["Zoë cried."], ["Our roof began to leak in the storm."])))
    assert "do not look like the language" in model.fill(["Der Hund lief nach Hause.", None], samples=1).notes[0]
