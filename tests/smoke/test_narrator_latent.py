"""benchmarks/narrator_latent.py on a tiny random base: every way trains and is measured, the control hears nothing."""

from __future__ import annotations

import csv
import json
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import narrator_latent
from fabula.corpus.toy import toy_splits
from fabula.models.decoders.adapter import Adapter, AdapterConfig, save_adapter
from fabula.models.decoders.base import sha256
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.rows import SPECIALS
from fabula.models.decoders.transformer import Transformer
from fabula.training.latent_narrator import LatentRecipe, build, read_latent_recipe, train
from gguf_writer import write_tiny_base

WAYS = list(tomllib.loads(narrator_latent.RECIPE.read_text(encoding="utf-8"))["ways"])


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for split, stories in toy_splits(96, 1).items():
        with open(tmp_path / f"{split}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["storyid", "storytitle", *(f"sentence{i}" for i in range(1, 6))])
            writer.writerows([n, "toy", *s.sentences] for n, s in enumerate(stories) if len(s.sentences) == 5)
    base = write_tiny_base(tmp_path / "tiny.gguf")
    network = Transformer(read_gguf(base), 2, 1.0, SPECIALS)
    config = AdapterConfig(base_sha256=sha256(base), rank=2, scale=1.0, labels=("a", "b", "c"), tagger="vader")
    save_adapter(Adapter(config, dict(network.named_parameters())), tmp_path / "start")
    # The narrator's own features: MiniLM is slow to import, and elsewhere not installed.
    monkeypatch.setattr(narrator_latent, "find_spec", lambda name: None)
    return [
        "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--start", str(tmp_path / "start"), "--base",
        str(base), "--device", "cpu", "--steps", "3", "--batch", "5", "--stories", "5", "--written", "3", "--samples",
        "2", "--fitted", "3", "--draws", "1", "--tokens", "3",
    ]  # fmt: skip


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["narrator_latent.py", *words])
    narrator_latent.main()


def test_every_way_is_trained_and_measured_and_the_control_hears_nothing(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "prepare", *options)
    for way in WAYS:
        run(monkeypatch, "way", *options, "--way", way)
    found = {way: json.loads((tmp_path / "out" / f"{way}.json").read_text()) for way in WAYS}
    for record in found.values():
        assert record["stories"] == 15
        assert {"ppl", "kl", "lookahead_use", "ahead_both", "ahead_first", "ahead_people"} <= record.keys()
    control = found["none"]
    assert control["kl"] == pytest.approx(0, abs=1e-3)
    assert control["lookahead_use"] == pytest.approx(0, abs=1e-4)
    assert all(abs(found[way]["lookahead_use"]) > 0 for way in WAYS if way != "none")
    assert len({record["ahead_people"] for record in found.values()}) == 1  # one judge, whatever was trained
    capsys.readouterr()
    run(monkeypatch, "table", *options)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:7]] == [f"| {way}" for way in WAYS]
    assert "not run" not in "".join(lines)


def test_what_a_way_holds_fixed_stays_and_slow_Z_is_nearly_constant(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, "prepare", *options)
    stories = narrator_latent.load_stories(tmp_path / "out")
    recipe = read_latent_recipe(narrator_latent.RECIPE, "slow")
    network = Transformer(read_gguf(tmp_path / "tiny.gguf"), 2, 1.0, SPECIALS)
    model = build(recipe, network, stories)
    told = next(narrator_latent.parts_of(stories, 5, 5, "cpu"))[1]
    Z = model.posterior(told)[0].sample(torch.randn(len(told.S), 1, 5, recipe.latent))[:, 0].detach()
    assert float((Z[:, 1:] - Z[:, :-1]).std()) < 0.2 * float(Z[:, 0].std())
    before = model.dynamics.A.clone()
    train(LatentRecipe(name="s", slow=True, steps=2, batch=5), model, stories, "cpu")
    assert torch.equal(model.dynamics.A, before)
    assert model.to_words.weight.abs().max() > 0
