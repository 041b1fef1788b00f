"""What readers said: how a reading's loss counts, who is held out, and that a critic learns the readers' order."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fabula.errors import UserError
from fabula.models.decoders.bases import read_base
from fabula.models.io.pretrained import load_critic, load_decoder
from fabula.training.critic import CriticNetwork, endless, read_readings, without_length
from fabula.training.loop import train_adapter
from fabula.training.losses.critic import Reading, plain_row, reading_loss
from fabula.training.recipe import CriticRecipe
from raw_stories import write_csv

LIKED = ["Tom was sad.", "Tom lost a hat.", "He saw the hat.", "He took the hat.", "Tom was glad."]
BROKEN = ["Tom was sad.", "Tom lost a hat.", "the the was", "He took the hat.", "Tom was glad."]


def write(folder: Path, entries: list[dict[str, object]]) -> None:
    (folder / "readings-toy.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def entry(of: int, sentences: list[str], coherence: int, line: int) -> dict[str, object]:
    return {"of": of, "sentences": sentences, "coherence": coherence, "line": line}


def test_a_readings_loss(tiny_base: Path, tmp_path: Path) -> None:
    recipe, base = CriticRecipe(name="tiny", narrator="none", rank=2), read_base(tiny_base)
    torch.manual_seed(3)
    network = CriticNetwork(recipe, base.tensors, base.sizes)
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.2)
    same = [*LIKED[:2], LIKED[2].replace("t.", "p."), *LIKED[3:]]  # as many tokens as LIKED: length explains nothing
    assert len(base.tokenizer.encode(same[2])) == len(base.tokenizer.encode(LIKED[2]))
    values = {"of": 3, "sentences": LIKED[:2], "values": [0.0, math.log(3)]}
    write(tmp_path, [entry(1, LIKED, 3, 0), entry(1, same, 1, 3), entry(2, BROKEN[:3], 2, 0), values])
    readings = read_readings(tmp_path, base.tokenizer)
    expected = [[1] * 5, [1, 1, 1 / 3, 1 / 3, 1 / 3], [1, 1, 2 / 3], [0.5, 0.75]]
    assert [r.of for r in readings] == [1, 1, 2, 3]
    for r, targets in zip(readings, expected, strict=True):
        assert r.targets == pytest.approx(targets)
    loss, whole = reading_loss(network, readings)

    total = torch.tensor(0.0)
    ends = []
    for r, goals in zip(readings, expected, strict=True):
        v, _ = network([plain_row(r.story)])
        ends.append(v[-1])
        each = F.binary_cross_entropy_with_logits(v, torch.tensor(goals, dtype=torch.float32), reduction="none")
        total = total + each[-1] + 0.5 * each.mean()
    total = total / 4 + F.softplus(ends[1] - ends[0])  # the others are of other stories: not compared
    assert torch.isclose(loss, total, atol=1e-5)
    assert torch.allclose(whole, torch.stack(ends), atol=1e-5)


def test_versions_of_a_story_come_together() -> None:
    readings = [Reading([[1]], (t,), of) for t in (0.0, 1.0) for of in range(7)]
    for batch in itertools.islice(endless(readings, 4, seed=0), 20):
        assert sorted(r.of for r in batch if r.targets[0]) == sorted(r.of for r in batch if not r.targets[0])


def test_what_length_explains_among_versions_of_a_story_is_taken_out() -> None:
    """Values that are a story's level less 0.05 a word, and a difference that length does not explain."""
    words, of = [4.0, 6.0, 8.0, 5.0, 5.0, 9.0, 9.0], [0, 0, 0, 1, 1, 1, 1]
    fair = [0.5, 0.5, 0.5, 0.6, 0.4, 0.6, 0.4]
    level = {0: 6.0, 1: 7.0}
    seen = [f - 0.05 * (w - level[n]) for f, w, n in zip(fair, words, of, strict=True)]
    assert without_length(seen, words, of) == pytest.approx(fair)


@pytest.mark.system
def test_a_critic_learns_the_readers_order_against_its_pairs(
    tiny_base: Path, tiny_narrator: Path, tmp_path: Path
) -> None:
    """The pairs say nothing of these two samples; begun from a critic, readings decide between them."""
    write_csv(tmp_path / "train.csv", [LIKED] * 8)
    told = [{"of": i, "first": 1, "kind": "toy", "sentences": [LIKED[0], *["glad glad sad"] * 4]} for i in range(8)]
    (tmp_path / "negatives-toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    how: dict[str, Any] = {"base": str(tiny_base), "rank": 2, "batch": 4, "learning_rate": 1e-2, "without": "corrupted"}
    how["narrator"] = str(tiny_narrator)
    train_adapter(CriticRecipe(name="a", epochs=2, **how), tmp_path, tmp_path / "a", bar=False)
    with pytest.raises(UserError, match="readings"):
        train_adapter(CriticRecipe(name="b", readings=8, **how), tmp_path, tmp_path / "b", bar=False)
    other = [*LIKED[:2], "He saw the hap.", *LIKED[3:]]  # as long: what length explains would be taken out
    write(tmp_path, [e for of in range(20) for e in (entry(of, other, 3, 0), entry(of, LIKED, 0, 3))])
    start = CriticRecipe(name="b", start=str(tmp_path / "a"), readings=8, epochs=20, **how)
    figures = train_adapter(start, tmp_path, tmp_path / "b", bar=False)
    assert figures["held_out_readings"]["better_wins"] == 1.0
    assert figures["held_out_readings"]["readings"] == 4  # both versions of two stories in twenty
    critic = load_critic(tmp_path / "b", tiny_narrator, load_decoder(tiny_narrator, base=tiny_base), tiny_base)
    assert critic.read(other).whole > critic.read(LIKED).whole
    with pytest.raises(UserError, match="rank"):
        train_adapter(CriticRecipe(name="c", start=str(tmp_path / "a"), **{**how, "rank": 3}), tmp_path, tmp_path / "c")
