"""The narrator's training at toy size, on a tiny random base: it learns, resumes to the bit, and can be measured."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fabula.cli import main
from fabula.errors import UserError
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.io import load, pretrained
from fabula.training import loop
from fabula.training.loop import train_adapter
from fabula.training.narrator import NarratorLearner
from fabula.training.recipe import NarratorRecipe, read_any_recipe
from fabula.training.stories import read_text
from raw_stories import write_raw_stories

CPU = torch.device("cpu")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_raw_stories(tmp_path)


@pytest.fixture
def recipe(tiny_base: Path) -> NarratorRecipe:
    return NarratorRecipe(name="tiny", base=str(tiny_base), rank=4, epochs=3, batch=4, learning_rate=1e-2)


def log_p_of_story(decoder: NarratorDecoder, story: list[str]) -> float:
    """log p(X) with every tag free."""
    state, total = decoder.start(1), 0.0
    for sentence in story:
        ids = [*decoder.tokenizer.encode(sentence), decoder.tokenizer.end]
        state = decoder.begin_sentence(state, None)
        state, log_p = decoder.read(state, torch.tensor([ids]), torch.tensor([len(ids)]))
        total += float(log_p)
    return total


def test_training_learns_and_the_adapter_scores_what_it_scored(
    data: Path, recipe: NarratorRecipe, tmp_path: Path
) -> None:
    untrained, _ = NarratorLearner(recipe, data, CPU).validate()
    figures = train_adapter(recipe, data, tmp_path / "run", bar=False)
    assert figures["valid_nll"] < 0.8 * untrained
    # Eight bits, and marks and moods cannot be written: near the training network's figure.
    decoder = pretrained.load_decoder(tmp_path / "run", "cpu", Path(recipe.base))
    nats = [-log_p_of_story(decoder, story) for story in read_text(data / "valid.csv")]
    assert sum(nats) / len(nats) == pytest.approx(figures["valid_nll"], rel=0.05)


def test_a_resumed_run_ends_with_the_same_weights(
    data: Path, recipe: NarratorRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted inside the second epoch; files are named by their content, so equal names are equal bits."""
    train_adapter(recipe, data, tmp_path / "whole", bar=False)
    inner = loop.Run.step

    def step(run: loop.Run, *arguments: Any) -> None:
        inner(run, *arguments)
        if run.progress.step == 14:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(loop.Run, "step", step)
    with pytest.raises(KeyboardInterrupt):
        train_adapter(recipe, data, tmp_path / "parts", bar=False)
    monkeypatch.setattr(loop.Run, "step", inner)
    train_adapter(recipe, data, tmp_path / "parts", resume=True, bar=False)
    states = [[file.name for file in (tmp_path / run / "resume").glob("state-*")] for run in ("whole", "parts")]
    assert states[0] == states[1]
    with pytest.raises(UserError, match="another recipe"):
        train_adapter(replace(recipe, seed=5), data, tmp_path / "parts", resume=True, bar=False)


def test_an_unknown_setting_of_a_flat_recipe_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('kind = "narrator"\nranks = 3\n', encoding="utf-8")
    with pytest.raises(UserError, match="unknown setting ranks"):
        read_any_recipe(tmp_path / "bad.toml")


@pytest.mark.system
def test_a_run_with_further_factors_begins_from_one_without_and_reads_their_tokens(
    data: Path, recipe: NarratorRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of emotion changes what is written after it, and where it is free the rows are as they were."""
    base = Path(recipe.base)
    train_adapter(replace(recipe, epochs=1), data, tmp_path / "first", bar=False)
    more = replace(recipe, epochs=2, tagger="vader,emotion", start=str(tmp_path / "first"))
    learner = NarratorLearner(more, data, CPU)
    assert learner.tokens.names == ["joy", "sadness", "anger", "fear", "surprise", "none"]
    vectors = learner.network.embedding[learner.encode.encode("joy")].mean(0)
    torch.testing.assert_close(learner.network.further_in[0].detach(), vectors)
    first = NarratorLearner(replace(recipe, start=str(tmp_path / "first")), data, CPU)
    assert learner.validate() == first.validate()  # free factors have no token
    rows = [row for batch in learner.batches(0) for row in batch]
    shares = [sum(i >= learner.tokens.vocabulary for i in row.ids) / 5 for row in rows]
    assert 0.2 < sum(shares) / len(shares) < 0.5
    assert any(share == 0 for share in shares)
    train_adapter(more, data, tmp_path / "run", bar=False)
    monkeypatch.setattr(pretrained, "need_base", lambda digest: base)
    found = load(tmp_path / "run")
    assert [factor.name for factor in found.states.factors] == ["sentiment", "emotion"]
    assert found.model.K == 18
    assert found.model.tagger is not None
    decoder = found.model.decoder
    assert isinstance(decoder, NarratorDecoder)
    ids = decoder.tokenizer.encode("Tom was sad.")
    log_p = []
    for values in ((-1, -1), (-1, 1), (0, 1), (-1, 0)):
        state = decoder.begin_sentence(decoder.start(1), torch.from_numpy(found.states.number([values])))
        tokens = torch.tensor([[*ids, decoder.tokenizer.end]])
        log_p.append(float(decoder.read(state, tokens, torch.tensor([tokens.shape[1]]))[1]))
    assert len({round(value, 4) for value in log_p}) == 4


def test_rates_rise_and_fall_to_a_twentieth(data: Path, recipe: NarratorRecipe) -> None:
    rates = [NarratorLearner(recipe, data, CPU).rate(step, 100) for step in (0, 1, 2, 99)]
    assert rates[0] < rates[1]
    assert rates[2] > 0.98
    assert rates[3] == pytest.approx(0.05)


def test_training_goes_on_from_a_narrator(data: Path, recipe: NarratorRecipe, tmp_path: Path) -> None:
    """Without a recipe by the model's own rank, scale and tagger; its people and its critic come along."""
    train_adapter(recipe, data, tmp_path / "first", bar=False)
    facts = json.loads((tmp_path / "first" / "stories.json").read_text())
    (tmp_path / "first" / "stories.json").write_text(json.dumps({**facts, "people": {"he": ["Tom"], "she": []}}))
    words = ["train", "--from", str(tmp_path / "first"), "--data", str(data), "--out", str(tmp_path / "second")]
    changes = ["--set", f"base={recipe.base}", "--set", "batch=4", "--set", "epochs=1"]
    assert main([*words, *changes, "--device", "cpu", "--quiet"]) == 0
    log = [json.loads((tmp_path / run / "log.jsonl").read_text().splitlines()[0]) for run in ("first", "second")]
    assert log[1]["valid_nll"] < log[0]["valid_nll"]
    assert json.loads((tmp_path / "second" / "stories.json").read_text())["people"]["he"] == ["Tom"]
