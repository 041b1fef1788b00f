"""Preferences with length held: what a pair costs, what is refused, that a narrator learns and is held."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fabula.errors import UserError
from fabula.models.decoders.bases import read_base
from fabula.models.io.pretrained import load_adapter
from fabula.training.loop import train_adapter
from fabula.training.losses.lm import log_p_of, scores_of
from fabula.training.losses.preference import divergence, preference_loss, row_means
from fabula.training.preference import PreferenceLearner, read_pairs
from fabula.training.recipe import NarratorRecipe, PreferenceRecipe
from raw_stories import write_csv

STORY = ["Tom was sad.", "Tom lost a hat.", "He saw the hat.", "He took the hat.", "Tom was glad."]
BETTER, WORSE = (
    ["He saw the dog.", "The dog was glad.", "Tom saw a hat."],
    ["the the was was", "a hat a hat", "was he was he"],
)


def write(folder: Path, *pairs: tuple[list[str], list[str]]) -> Path:
    for split in ("train", "valid"):
        write_csv(folder / f"{split}.csv", [STORY] * 8)
    lines = [{"sentences": STORY, "missing": [1, 2, 3], "better": x, "worse": y} for x, y in pairs]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "pairs.jsonl"


@pytest.fixture
def how(tiny_base: Path, tmp_path: Path) -> dict[str, Any]:
    """Of a recipe that begins from a narrator of one short epoch."""
    write(tmp_path, *[(BETTER, WORSE)] * 8)
    how: dict[str, Any] = {"base": str(tiny_base), "rank": 2, "batch": 4, "learning_rate": 1e-2}
    train_adapter(NarratorRecipe(name="a", epochs=2, **how), tmp_path, tmp_path / "a", bar=False)
    return {**how, "name": "b", "start": str(tmp_path / "a"), "held": 4}


def test_a_pair_counts_the_mean_token_of_each_version(how: dict[str, Any], tmp_path: Path) -> None:
    """By hand, version by version: the counted tokens are those of the missing lines and their ends."""
    learner = PreferenceLearner(PreferenceRecipe(**how, beta=3.0, imitation=0.2), tmp_path, torch.device("cpu"))
    pair = read_pairs(tmp_path / "pairs.jsonl", read_base(Path(how["base"])).tokenizer)[0]
    encode = learner.encode.encode
    assert sum(pair.better.counted) == sum(len(encode(line)) + 1 for line in BETTER)
    rows = [pair.better, pair.worse]
    with torch.no_grad():
        before = [float(log_p_of(learner.network, [row]).mean()) for row in rows]
        held = scores_of(learner.network, [pair.better])[0].log_softmax(-1)
        for p in learner.network.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(1)), alpha=0.05)
        now = [float(log_p_of(learner.network, [row]).mean()) for row in rows]
        after = scores_of(learner.network, [pair.better])[0].log_softmax(-1)
    margin = 3.0 * ((now[0] - before[0]) - (now[1] - before[1]))
    means = row_means(log_p_of(learner.network, rows), rows).detach()
    loss, margins = preference_loss(torch.tensor(before), means, 3.0, 0.2)
    assert abs(margin) > 0.01
    assert float(margins[0]) == pytest.approx(margin, abs=1e-4)
    assert float(loss) == pytest.approx(math.log1p(math.exp(-margin)) - 0.2 * now[0], abs=1e-4)
    kl = sum(float((p.exp() * (p - q)).sum()) for p, q in zip(held, after, strict=True)) / len(held)
    assert kl > 1e-3
    assert float(divergence(held, after)) == pytest.approx(kl, rel=1e-4)


def test_the_loss_compares_with_the_beginning_and_leaves_the_weights(how: dict[str, Any], tmp_path: Path) -> None:
    learner = PreferenceLearner(PreferenceRecipe(**how, imitation=0.0), tmp_path, torch.device("cpu"))
    batch = learner.batches(0)[0]
    loss, terms = learner.loss(batch, 0, 1)
    assert float(terms[0]) == pytest.approx(math.log(2), abs=1e-5)  # nothing has moved
    assert float(terms[1]) == pytest.approx(0, abs=1e-5)
    with torch.no_grad():
        for p in learner.network.parameters():
            p.mul_(1.5)
    weights = {name: p.detach().clone() for name, p in learner.network.named_parameters()}
    loss, terms = learner.loss(batch, 1, 1)
    assert float(terms[1]) > 1e-4
    assert float(loss) == pytest.approx(float(terms[0] + learner.recipe.hold * terms[1]), rel=1e-5)
    for name, p in learner.network.named_parameters():
        assert torch.equal(p, weights[name])


def test_a_narrator_learns_what_is_preferred(how: dict[str, Any], tmp_path: Path) -> None:
    """r of the better version rises against the worse; a held narrator moves less on people's stories."""
    moved = {}
    for hold in (0.0, 20.0):
        out = tmp_path / f"hold-{hold:g}"
        train_adapter(PreferenceRecipe(**how, epochs=10, hold=hold), tmp_path, out, bar=False)
        last = json.loads((out / "log.jsonl").read_text().splitlines()[-1])["train"]
        assert last["preferred"] > 0.9
        moved[hold] = last["divergence"]
    assert moved[20.0] < 0.5 * moved[0.0]


def test_unequal_lengths_are_refused(tiny_base: Path, tmp_path: Path) -> None:
    encode = read_base(tiny_base).tokenizer
    longer = [*BETTER[:2], BETTER[2] + " a a"]
    with pytest.raises(UserError, match=r"pairs\.jsonl, line 2: the versions differ in length"):
        read_pairs(write(tmp_path, (BETTER, WORSE), (longer, WORSE)), encode)
    little = [*BETTER[:2], BETTER[2] + " a"]  # one word in twelve: allowed once, not on average
    with pytest.raises(UserError, match=r"longer or shorter on average \(\+0\.33 words a line\)"):
        read_pairs(write(tmp_path, (little, WORSE), (little, WORSE)), encode)
    assert len(read_pairs(write(tmp_path, (little, WORSE), (WORSE, little)), encode)) == 2
    (tmp_path / "pairs.jsonl").write_text('{"sentences": []}\n')
    with pytest.raises(UserError, match="does not hold pairs"):
        read_pairs(tmp_path / "pairs.jsonl", encode)


def test_only_the_last_layers_learn(how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other layers make of a row is kept: features are those of the whole network, and only `top` moves."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)  # in float32 on every processor
    recipe = PreferenceRecipe(**how, top=1)
    whole = PreferenceLearner(PreferenceRecipe(**how), tmp_path, torch.device("cpu"))
    learner = PreferenceLearner(recipe, tmp_path, torch.device("cpu"))
    pair = learner.pairs[0]
    for rows in ([pair.better], [pair.worse, pair.better], [pair.better]):  # computed, beside another, kept
        now, expected = log_p_of(learner.network, rows), log_p_of(whole.network, rows)
        torch.testing.assert_close(now, expected, atol=1e-5, rtol=0)
    train_adapter(recipe, tmp_path, tmp_path / "top", bar=False)
    before, after = load_adapter(tmp_path / "a").tensors, load_adapter(tmp_path / "top").tensors
    last = f"blocks.{learner.network.sizes.layers - 1}."
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name for name in moved if name.endswith(".b")} == {
        n for n in before if n.startswith(last) and n.endswith(".b")
    }
    assert all(name.startswith(last) or name == "special_out" for name in moved)
