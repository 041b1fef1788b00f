"""Expert iteration at toy size: training prefers what it is told to prefer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fabula.errors import UserError
from fabula.metrics.narrator import story_nats
from fabula.models.decoders.base import CACHE_VARIABLE
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.io.pretrained import load_decoder
from fabula.training.loop import train_adapter
from fabula.training.narrator import read_preferences
from fabula.training.recipe import NarratorRecipe, PreferenceRecipe
from fabula.training.stories import Stories, read_text, save_tags
from gguf_writer import write_tiny_base
from raw_stories import write_raw_stories

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stories, a tiny base and a narrator trained on them for a moment."""
    out = write_raw_stories(tmp_path_factory.mktemp("preference"))
    base = str(write_tiny_base(out / "tiny.gguf"))
    train_adapter(NarratorRecipe(name="tiny", base=base, rank=4, epochs=1, batch=4), out, out / "run", bar=False)
    return out


@pytest.fixture
def decoder(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NarratorDecoder:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return load_decoder(folder / "run", base=folder / "tiny.gguf")


@pytest.fixture(scope="module")
def recipe(folder: Path) -> PreferenceRecipe:
    """Preferences beside the stories: people's lines rather than the same in another order."""
    stories = read_text(folder / "train.csv")[:8]
    lines = [{"missing": [1, 2, 3], "better": s, "worse": [s[0], s[3], s[1], s[2], s[4]]} for s in stories]
    (folder / "preferences.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return PreferenceRecipe(
        name="tiny", base=str(folder / "tiny.gguf"), start=str(folder / "run"), rank=4, epochs=5, batch=4, beta=0.5,
        human_rows=4, learning_rate=5e-3, imitation=0.0,
    )  # fmt: skip


def test_the_better_sample_gains_on_the_worse(folder: Path, tmp_path: Path, recipe: PreferenceRecipe) -> None:
    figures = train_adapter(recipe, folder, tmp_path / "run", bar=False)
    assert figures["preferred"] > 0.9
    assert figures["pairs"] == 8


def test_an_anchor_keeps_the_probability_of_stories(folder: Path, tmp_path: Path, recipe: PreferenceRecipe) -> None:
    stories = read_text(folder / "train.csv")
    nats = []
    for anchor in (None, 0.0, 300.0):
        run = folder / "run" if anchor is None else tmp_path / f"{anchor}"
        if anchor is not None:
            train_adapter(replace(recipe, people=0.0, plain=0.99, anchor=anchor), folder, run, bar=False)
        nats.append(story_nats(load_decoder(run, base=folder / "tiny.gguf"), stories, None, 16))
    assert abs(nats[2] - nats[0]).mean() < 0.5 * abs(nats[1] - nats[0]).mean()


def test_a_recipe_of_preferences_names_its_beginning(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="begins from a narrator"):
        PreferenceRecipe(name="x")
    decoder = load_decoder(folder / "run", base=folder / "tiny.gguf")
    with pytest.raises(UserError, match="No such file"):
        read_preferences(tmp_path / "none.jsonl", decoder.tokenizer)


def test_tags_kept_beside_the_stories_are_the_taggers(folder: Path, tmp_path: Path, decoder: NarratorDecoder) -> None:
    file = tmp_path / "valid.csv"
    file.write_bytes((folder / "valid.csv").read_bytes())
    plain = Stories(file, decoder.tokenizer, 40)
    kept = save_tags(file)
    again = Stories(file, decoder.tokenizer, 40)
    assert again.S == plain.S
    torch.testing.assert_close(torch.tensor(again.facts["p_next"]), torch.tensor(plain.facts["p_next"]))
    file.write_bytes(file.read_bytes() + b"9,t,A b.,C d.,E f.,G h.,I j.\n")
    with pytest.raises(UserError, match="belongs to other stories"):
        Stories(file, decoder.tokenizer, 40)
    assert kept.name == "valid.tags.json"
