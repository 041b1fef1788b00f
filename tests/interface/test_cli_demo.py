"""`fabula demo`: trains where nothing is installed, keeps what it trained, and uses what is there."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fabula import api, cli
from fabula.cli import demo
from fabula.corpus.toy import toy_stories
from fabula.training.recipe import Recipe

REAL_RECIPE = demo.toy_recipe()


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty place for models, and a toy model of a second instead of a minute."""
    monkeypatch.setenv("FABULA_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr("fabula.catalogue.PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(demo, "STORIES", 60)

    def recipe() -> Recipe:
        return dataclasses.replace(REAL_RECIPE, train=dataclasses.replace(REAL_RECIPE.train, epochs=1))

    monkeypatch.setattr(demo, "toy_recipe", recipe)


def run(*words: str) -> int:
    return cli.main(["demo", *words])


def test_it_trains_once_and_then_uses_what_it_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    first = capsys.readouterr()
    assert "toy model first" in first.err
    assert (tmp_path / "models" / "demo" / "config.json").exists()
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["demo"]
    assert run() == 0
    second = capsys.readouterr()
    assert second.err == ""
    assert second.out == first.out
    lines = first.out.splitlines()[: demo.SENTENCES]
    assert [line[1] == ">" for line in lines] == [False, True, True, True, False]
    assert (lines[0].endswith(demo.TOY_STORY[0]), lines[-1].endswith(demo.TOY_STORY[1])) == (True, True)
    assert all("●" in line for line in lines)  # the arc
    assert api.find("default") == tmp_path / "models" / "demo"


def test_an_installed_default_is_used_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run()
    (tmp_path / "models" / "demo").rename(tmp_path / "models" / "default")
    config = tmp_path / "models" / "default" / "config.json"
    content = json.loads(config.read_text())
    content["recipe"]["name"] = "another"
    config.write_text(json.dumps(content))
    capsys.readouterr()
    assert run() == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert demo.STORY[0] in printed.out  # not the toy model's story: it would know none of the words


@pytest.mark.parametrize("damage", ["weights", "recipe", "force"])
def test_a_damaged_or_outdated_toy_model_is_trained_again(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    folder = tmp_path / "models" / "demo"
    config = folder / "config.json"
    if damage == "weights":
        next(folder.glob("weights-*")).write_bytes(b"")
    elif damage == "recipe":
        content = json.loads(config.read_text())
        content["recipe"]["train"]["epochs"] += 1
        config.write_text(json.dumps(content))
    capsys.readouterr()
    assert run(*(["--force"] if damage == "force" else [])) == 0
    assert "toy model first" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FABULA_MODELS", str(tmp_path / "file" / "models"))
    assert run() == 2
    told = capsys.readouterr().err
    assert told.startswith("fabula demo: cannot keep the toy model in ")
    assert told.count("\n") == 1


def test_the_toy_story_is_in_the_words_of_the_grammar_and_not_in_the_corpus() -> None:
    """The model must know the words; the pair it is asked to join must be new to it."""
    known = {
        word for story in toy_stories(2_000, demo.SEED) for sentence in story.sentences for word in sentence.split()
    }
    first, last = demo.TOY_STORY
    assert set(first.split()) | set(last.split()) <= known
    told = {(story.sentences[0], story.sentences[-1]) for story in toy_stories(4_000, demo.SEED)}
    assert demo.TOY_STORY not in told
