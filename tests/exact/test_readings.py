"""What readers said: how a reading's loss counts, who is held out, and that a critic learns the readers' order."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fabula.errors import UserError
from fabula.models.decoders.gguf import read_gguf
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.io.pretrained import load_critic
from fabula.training.critic import CriticNetwork, endless, read_readings
from fabula.training.loop import train_adapter
from fabula.training.losses.critic import Reading, plain_row, reading_loss
from fabula.training.recipe import CriticRecipe

LIKED = ["Tom was sad.", "Tom lost a hat.", "He saw the hat.", "He took the hat.", "Tom was glad."]
BROKEN = ["Tom was sad.", "Tom lost a hat.", "the the was", "He took the hat.", "Tom was glad."]


def write(folder: Path, entries: list[dict[str, object]]) -> None:
    (folder / "readings-toy.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def entry(of: int, sentences: list[str], coherence: int, line: int) -> dict[str, object]:
    return {"of": of, "sentences": sentences, "coherence": coherence, "line": line}


def test_a_readings_loss(tiny_base: Path, tmp_path: Path) -> None:
    recipe = CriticRecipe(name="tiny", base=str(tiny_base), rank=2)
    torch.manual_seed(3)
    network = CriticNetwork(recipe, read_gguf(tiny_base))
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.2)
    encode = SubwordTokenizer.from_metadata(read_gguf(tiny_base).metadata)
    write(tmp_path, [entry(1, LIKED, 3, 0), entry(1, BROKEN, 1, 3), entry(2, BROKEN[:3], 2, 0)])
    readings = read_readings(tmp_path, encode)
    assert [(r.coherence, r.line, r.of) for r in readings] == [(1, 4, 1), (1 / 3, 2, 1), (2 / 3, 2, 2)]
    loss, whole = reading_loss(network, readings)

    total = torch.tensor(0.0)
    ends = []
    for r, goals in zip(readings, ([1] * 5, [1, 1, 1 / 3, 1 / 3, 1 / 3], [1, 1, 2 / 3]), strict=True):
        v, _ = network([plain_row(r.story)])
        ends.append(v[-1])
        each = F.binary_cross_entropy_with_logits(v, torch.tensor(goals, dtype=torch.float32), reduction="none")
        total = total + each[-1] + 0.5 * each.mean()
    total = total / 3 + F.softplus(ends[1] - ends[0])  # the third is of another story: not compared
    assert torch.isclose(loss, total, atol=1e-5)
    assert torch.allclose(whole, torch.stack(ends), atol=1e-5)


def test_versions_of_a_story_come_together() -> None:
    readings = [Reading([[1]], t, 0, of) for t in (0.0, 1.0) for of in range(7)]
    for batch in itertools.islice(endless(readings, 4, seed=0), 20):
        assert sorted(r.of for r in batch if r.coherence) == sorted(r.of for r in batch if not r.coherence)


@pytest.mark.system
def test_a_critic_learns_the_readers_order_against_its_pairs(tiny_base: Path, tmp_path: Path) -> None:
    """The pairs say nothing of these two samples; begun from a critic, readings decide between them."""
    csv = ["storyid,storytitle,sentence1,sentence2,sentence3,sentence4,sentence5"]
    csv += [f"{i},t,{','.join(LIKED)}" for i in range(8)]
    (tmp_path / "train.csv").write_text("\n".join(csv) + "\n")
    told = [{"of": i, "first": 1, "kind": "toy", "sentences": [LIKED[0], *["glad glad sad"] * 4]} for i in range(8)]
    (tmp_path / "negatives-toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    how: dict[str, Any] = {"base": str(tiny_base), "rank": 2, "batch": 4, "learning_rate": 1e-2, "without": "corrupted"}
    train_adapter(CriticRecipe(name="a", epochs=2, **how), tmp_path, tmp_path / "a", bar=False)
    with pytest.raises(UserError, match="readings"):
        train_adapter(CriticRecipe(name="b", readings=8, **how), tmp_path, tmp_path / "b", bar=False)
    write(tmp_path, [e for of in range(20) for e in (entry(of, BROKEN, 3, 0), entry(of, LIKED, 0, 3))])
    start = CriticRecipe(name="b", start=str(tmp_path / "a"), readings=8, epochs=20, **how)
    figures = train_adapter(start, tmp_path, tmp_path / "b", bar=False)
    assert figures["held_out_readings"]["better_wins"] == 1.0
    assert figures["held_out_readings"]["readings"] == 4  # both versions of two stories in twenty
    critic = load_critic(tmp_path / "b", base=tiny_base)
    assert critic.read(BROKEN).whole > critic.read(LIKED).whole
    with pytest.raises(UserError, match="rank"):
        train_adapter(CriticRecipe(name="c", start=str(tmp_path / "a"), **{**how, "rank": 3}), tmp_path, tmp_path / "c")
