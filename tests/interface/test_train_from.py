"""Training that begins from another model, and a stopped run that is not begun again by mistake."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from doors import Refused
from fabula.cli import main
from fabula.corpus.dataset import Corpus
from fabula.corpus.prepare import prepare_stories
from fabula.corpus.toy import toy_splits
from fabula.models.io import load
from fabula.training import loop
from small import to_toml


@pytest.fixture(scope="module")
def other_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fewer stories, so other words in another order."""
    folder = tmp_path_factory.mktemp("other") / "corpus"
    prepare_stories(toy_splits(60, 7), folder, provenance={"toy": 60, "seed": 7}, progress=False)
    return folder


def test_words_are_matched_by_spelling_and_training_goes_on(
    toy_corpus: Path, other_corpus: Path, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    tiny_recipe["train"]["average"] = 0.0
    (tmp_path / "tiny.toml").write_text(to_toml(tiny_recipe))
    rest = ["--device", "cpu", "--quiet"]
    words = ["train", str(tmp_path / "tiny.toml"), "--data", str(toy_corpus)]
    assert main([*words, "--out", str(tmp_path / "a"), *rest]) == 0
    still = {**tiny_recipe, "train": {**tiny_recipe["train"], "epochs": 1, "learning_rate": 1e-9}}
    still["train"]["learning_rate_dynamics"] = 1e-9
    (tmp_path / "still.toml").write_text(to_toml(still))
    words = ["train", str(tmp_path / "still.toml"), "--from", str(tmp_path / "a"), "--data", str(other_corpus)]
    assert main([*words, "--out", str(tmp_path / "b"), *rest]) == 0
    before, after = load(tmp_path / "a"), load(tmp_path / "b")
    # The last step of training calibrates the q(Z | X) of the bound, and leaves the factor with the run.
    assert 0 < before.figures["q_precision"] <= 1
    assert before.vocabulary.words != after.vocabulary.words
    name = "language.embedding.weight"
    for word in ("dog", "."):
        old, new = (c.model.state_dict()[name][c.vocabulary.index[word]] for c in (before, after))
        assert torch.allclose(old, new, atol=1e-4), word
    assert torch.allclose(before.model.state_dict()["dynamics.A"], after.model.state_dict()["dynamics.A"], atol=1e-4)
    # Without a recipe, by the model's own.
    words = ["train", "--from", str(tmp_path / "a"), "--data", str(other_corpus), "--out", str(tmp_path / "c"), *rest]
    assert main(words) == 0
    assert load(tmp_path / "c").recipe == before.recipe
    lengths = np.diff(Corpus.open(other_corpus).split("train").story_offsets)
    assert load(tmp_path / "c").figures["sentences"] == pytest.approx(lengths.mean(), abs=0.05)


def test_what_does_not_fit_is_said(
    toy_corpus: Path, random_models: Path, tiny_recipe: dict[str, Any], tmp_path: Path, refused: Refused
) -> None:
    (tmp_path / "tiny.toml").write_text(to_toml(tiny_recipe))
    words = ["train", tmp_path / "tiny.toml", "--data", toy_corpus, "--out", tmp_path / "run", "--quiet"]
    assert "of other sizes than the one to begin from" in refused(*words, "--from", random_models / "default")
    assert "a narrator is trained by a narrator's recipe" in refused(*words, "--from", "default")
    assert not (tmp_path / "run").exists()


def test_a_run_stopped_in_its_first_epoch_is_not_begun_again(
    toy_corpus: Path, tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    refused: Refused,
) -> None:  # fmt: skip
    (tmp_path / "tiny.toml").write_text(to_toml(tiny_recipe))
    words = ["train", str(tmp_path / "tiny.toml"), "--data", str(toy_corpus), "--out", str(tmp_path / "run"), "--quiet"]
    step = loop.Run.step

    def stopped(run: loop.Run, *rest: Any) -> None:
        step(run, *rest)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Run, "step", stopped)
        assert main(words) == 130
    assert not (tmp_path / "run" / "config.json").exists(), "the first epoch was not ended"
    kept = (tmp_path / "run" / "resume" / "state.json").read_bytes()
    assert "holds a run that was stopped; go on with --resume" in refused(*words)
    assert (tmp_path / "run" / "resume" / "state.json").read_bytes() == kept
    assert main([*words, "--resume"]) == 0
