"""Expert iteration at toy size: training prefers what it is told to prefer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bulk import log_p_lines
from fabula.errors import UserError
from fabula.models.decoders.base import CACHE_VARIABLE
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.decoders.rows import END
from fabula.models.io.pretrained import load_decoder
from fabula.training.loop import train_adapter
from fabula.training.narrator import read_preferences
from fabula.training.recipe import NarratorRecipe, PreferenceRecipe
from fabula.training.stories import Stories, read_text, save_tags
from gguf_writer import write_tiny_base
from raw_stories import write_raw_stories

MISSING = [1, 2, 3]


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


def test_log_p_of_lines_is_what_the_decoder_reads(decoder: NarratorDecoder, folder: Path) -> None:
    stories = Stories(folder / "train.csv", decoder.tokenizer, 40).X[:3]
    found = log_p_lines(decoder, stories, rows=2)
    state = decoder.start(1)
    for i, sentence in enumerate(stories[1]):
        tokens = torch.tensor([[*sentence, END]])
        state, log_p = decoder.read(decoder.begin_sentence(state, None), tokens, torch.tensor([tokens.shape[1]]))
        assert float(found[1, i]) == pytest.approx(float(log_p), rel=1e-4)
    told = log_p_lines(decoder, stories, [False, True, True, True, False])
    assert float((told - found).abs().max()) > 1e-3  # r knows the ending


@pytest.fixture(scope="module")
def pairs(folder: Path) -> list[dict[str, Any]]:
    """Preferences beside the stories: people's lines rather than the same in another order."""
    stories = read_text(folder / "train.csv")[:8]
    lines = [{"missing": MISSING, "better": s, "worse": [s[0], s[3], s[1], s[2], s[4]]} for s in stories]
    (folder / "preferences.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def preference_recipe(folder: Path, **settings: Any) -> PreferenceRecipe:
    return PreferenceRecipe(
        name="tiny", base=str(folder / "tiny.gguf"), start=str(folder / "run"), rank=4, epochs=5, batch=4, beta=0.5,
        human_rows=4, learning_rate=5e-3, imitation=0.0, **settings,
    )  # fmt: skip


def test_the_better_sample_gains_on_the_worse(folder: Path, tmp_path: Path, pairs: list[dict[str, Any]]) -> None:
    figures = train_adapter(preference_recipe(folder), folder, tmp_path / "run", bar=False)
    assert figures["preferred"] > 0.9
    assert figures["pairs"] == 8
    before, after = (load_decoder(f, base=folder / "tiny.gguf") for f in (folder / "run", tmp_path / "run"))
    blank, gains = [j in MISSING for j in range(5)], []
    for kind in ("better", "worse"):
        ids = [before.tokenizer.encode_all(pair[kind]) for pair in pairs]
        log_p = [log_p_lines(decoder, ids, blank)[:, 1:4].sum(1) for decoder in (before, after)]
        gains.append(float((log_p[1] - log_p[0]).mean()))
    assert gains[0] > gains[1]


@pytest.mark.system
def test_an_anchor_keeps_what_is_told_without_a_header(
    folder: Path, tmp_path: Path, pairs: list[dict[str, Any]]
) -> None:
    moved = []
    before = load_decoder(folder / "run", base=folder / "tiny.gguf")
    ids = Stories(folder / "train.csv", before.tokenizer, 40).X
    for anchor in (0.0, 300.0):
        recipe = preference_recipe(folder, people=0.0, plain=0.99, anchor=anchor)
        train_adapter(recipe, folder, tmp_path / f"{anchor}", bar=False)
        after = load_decoder(tmp_path / f"{anchor}", base=folder / "tiny.gguf")
        moved.append(float((log_p_lines(after, ids) - log_p_lines(before, ids)).abs().mean()))
    assert moved[1] < 0.5 * moved[0]


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
