"""The critic on a tiny random base: how stories are read, what a pair's loss counts, that it learns and is obeyed."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from fabula.errors import UserError
from fabula.models.critic import AT_ONCE, WINDOW, Critic, starts
from fabula.models.decoders.adapter import Adapter
from fabula.models.decoders.bases import read_base
from fabula.models.decoders.fuse import fuse, fuse_critic
from fabula.models.decoders.network import Network
from fabula.models.decoders.rows import FREE, row
from fabula.models.io.pretrained import ABOUT_CRITIC, load_adapter, load_critic, load_decoder, save_adapter
from fabula.training.critic import CriticLearner, CriticNetwork, cloze_pairs, pairs_of
from fabula.training.loop import train_adapter
from fabula.training.losses.critic import Pair, pair_loss
from fabula.training.recipe import CriticRecipe
from raw_stories import write_csv

GOOD = ["Tom was sad.", "Tom lost a hat.", "He saw the hat.", "He took the hat.", "Tom was glad."]
BAD = ["Tom was sad.", "Tom lost a hat.", "the the the the", "the was the was", "the the was the"]


@pytest.fixture
def recipe(tiny_base: Path, tiny_narrator: Path) -> CriticRecipe:
    return CriticRecipe(
        name="tiny", base=str(tiny_base), narrator=str(tiny_narrator), rank=4, batch=4, epochs=12, learning_rate=2e-2
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_csv(tmp_path / "train.csv", [GOOD] * 8)
    told = [{"of": i, "first": 2, "kind": "toy", "sentences": BAD} for i in range(8)]
    (tmp_path / "negatives-toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    return tmp_path


@pytest.fixture
def critic(recipe: CriticRecipe, data: Path, tmp_path: Path) -> Critic:
    """Random weights, so that every line matters."""
    learner = CriticLearner(recipe, data, torch.device("cpu"))
    for p in learner.network.parameters():
        torch.nn.init.normal_(p, std=0.2)
    weights = dict(learner.network.state_dict())
    about: dict[str, Any] = {"labels": ("free",), "tagger": "none", "critic": True}
    learner.save_adapter(tmp_path / "critic", weights, narrator_sha256=learner.narrator_sha256, **about)
    about = {"recipe": asdict(recipe), "figures": {}, "people": [3.0, 2.0, 1.5, 1.0, 0.5]}
    (tmp_path / "critic" / ABOUT_CRITIC).write_text(json.dumps(about))
    return opened(tmp_path / "critic", recipe)


def opened(folder: Path, recipe: CriticRecipe) -> Critic:
    narrator, base = Path(recipe.narrator), Path(recipe.base)
    return load_critic(folder, narrator, load_decoder(narrator, base=base), base)


@pytest.mark.parametrize("at_once", [4096, 60, 1])
def test_stories_read_together_have_the_values_they_have_alone(
    critic: Critic, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """What samples of a story share is read once; lengths, other stories and where a batch is cut do not matter."""
    monkeypatch.setitem(AT_ONCE, "cpu", at_once)
    others = [["He took the hat.", *tail] for tail in (GOOD[1:], BAD[1:], GOOD[3:4], BAD[3:])]
    told = [GOOD, *others[:2], BAD, GOOD[:3], *others[2:], ["Tom was sad.", "He was the hat."], ["the hat was.", *GOOD]]
    ids = [critic.tokenizer.encode_all(story) for story in told]
    together = critic.values(ids)
    for n, story in enumerate(ids):
        alone = critic.values([story])[0]
        torch.testing.assert_close(together[n, : len(story)], alone, rtol=1e-4, atol=1e-4)
        assert bool(together[n, len(story) :].isnan().all())
    assert len(set(together[:, 1].tolist())) > 1


@pytest.mark.parametrize("eight_bit", [False, True])
def test_the_product_reads_what_training_read(
    critic: Critic, recipe: CriticRecipe, tiny_base: Path, tmp_path: Path, eight_bit: bool
) -> None:
    """What a critic adds to the narrator's network, against the network that is trained on the merged narrator."""
    adapter, base = load_adapter(tmp_path / "critic"), read_base(tiny_base)
    narrator = load_adapter(Path(recipe.narrator)).merge(base.tensors)
    network = CriticNetwork(recipe, narrator, base.sizes).eval()
    for name, p in network.named_parameters():
        p.data.copy_(adapter.tensors[name.removeprefix("transformer.")])
    weights = dict(fuse(narrator, base.sizes, eight_bit=eight_bit))
    added = fuse_critic(adapter, base.tensors, base.sizes, eight_bit=eight_bit, dtype=torch.float32)
    product = Critic(Network(base.sizes, weights).with_critic(added), critic.tokenizer)
    ids = critic.tokenizer.encode_all(GOOD)
    values, _ = network([row(ids, [FREE] * 5, None, ())])
    tolerance = 0.2 if eight_bit else 1e-3
    torch.testing.assert_close(product.values([ids])[0], values.detach(), rtol=tolerance, atol=tolerance)
    narrators = Network(base.sizes, weights).with_critic(
        {**added, **{n: 0 * t for n, t in added.items() if n[-2:] == ".b"}}
    )
    assert not torch.allclose(Critic(narrators, critic.tokenizer).values([ids])[0], values.detach(), atol=0.3)


def test_a_long_story_is_the_mean_of_its_readings(critic: Critic) -> None:
    story = critic.tokenizer.encode_all([*GOOD, *BAD[2:], *GOOD[1:]])
    verdict = critic.judge([story])[0]
    readings = [critic.values([story[first : first + WINDOW]])[0] for first in starts(len(story))]
    assert verdict.whole == pytest.approx(float(torch.stack([v[-1] for v in readings]).mean()), abs=1e-3)
    assert verdict.lines[0] == 0.0
    assert verdict.lines[1] == pytest.approx(float(readings[0][1] - readings[0][0]) + 1.0, abs=1e-3)
    last = readings[-1]
    assert verdict.lines[-1] == pytest.approx(float(last[-1] - last[-2]) + 0.5, abs=1e-3)
    short = critic.judge([story[:4]])[0]
    assert short.whole == pytest.approx(float(critic.values([story[:4]])[0][3]), abs=1e-3)


def test_the_loss_of_a_pair(recipe: CriticRecipe, tiny_base: Path) -> None:
    """As the module's docstring says, by hand; lines before the first wrong one do not count."""
    torch.manual_seed(2)
    base = read_base(tiny_base)
    network = CriticNetwork(recipe, base.tensors, base.sizes)
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.2)

    good, bad = [[100, 101], [102], [103, 104, 105]], [[100, 101], [110], [111, 112]]
    loss, whole = pair_loss(network, [Pair(good, bad, 1, "toy")])
    v, _ = network([row(good, [FREE] * 3, None, ())])
    w, _ = network([row(bad, [FREE] * 3, None, ())])
    people, others = F.softplus(-v), F.softplus(w)
    lines = (people.mean() + others[1:].mean()) / 2
    expected = F.softplus(w[-1] - v[-1]) + (people[-1] + others[-1]) / 2 + 0.5 * lines
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    assert whole[:, 0].tolist() == pytest.approx([float(v[-1].detach()), float(w[-1].detach())], rel=1e-4)


@pytest.mark.system
def test_training_learns_to_tell_them_apart(recipe: CriticRecipe, data: Path, tmp_path: Path) -> None:
    train_adapter(recipe, data, tmp_path / "run", bar=False)
    critic = opened(tmp_path / "run", recipe)
    good, bad = critic.read(GOOD), critic.read(BAD)
    assert good.whole > 0 > bad.whole
    assert min(range(5), key=bad.lines.__getitem__) == 2  # the line that breaks it
    assert critic.ending == recipe.ending


def test_kinds_can_be_left_out(recipe: CriticRecipe, data: Path, tiny_base: Path) -> None:
    encode = read_base(tiny_base).tokenizer
    assert {pair.kind for pair in pairs_of(recipe, data, encode)} == {"toy", "corrupted"}
    assert {pair.kind for pair in pairs_of(replace(recipe, without="toy"), data, encode)} == {"corrupted"}
    with pytest.raises(UserError, match="nothing for a critic to learn from"):
        pairs_of(replace(recipe, without="toy corrupted"), data, encode)


def test_wrong_endings_of_the_cloze_test(tmp_path: Path) -> None:
    head = "InputStoryid," + ",".join(f"InputSentence{i}" for i in range(1, 5))
    head += ",RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding"
    (tmp_path / "c.csv").write_text(f"{head}\nx,A.,B.,C.,D.,wrong,right,2\n")
    (pair,) = cloze_pairs(tmp_path / "c.csv")
    assert (pair.good[4], pair.bad[4], pair.first) == ("right", "wrong", 4)


@pytest.mark.parametrize("content", ["", "{}", '{"recipe": {"ending": "x"}}'])
def test_a_damaged_folder_is_said_in_one_line(
    critic: Critic, recipe: CriticRecipe, tmp_path: Path, content: str
) -> None:
    (tmp_path / "critic" / ABOUT_CRITIC).write_text(content)
    with pytest.raises(UserError, match="not a critic's folder"):
        opened(tmp_path / "critic", recipe)


def test_a_critic_of_the_base_alone_is_one_of_any_narrator(
    critic: Critic, recipe: CriticRecipe, tiny_base: Path, tmp_path: Path
) -> None:
    """As those of version 0.2: what the narrator adds is taken away again."""
    adapter, base = load_adapter(tmp_path / "critic"), read_base(tiny_base)
    alone = Adapter(replace(adapter.config, narrator_sha256=""), adapter.tensors)
    network = CriticNetwork(recipe, base.tensors, base.sizes).eval()
    for name, p in network.named_parameters():
        p.data.copy_(adapter.tensors[name.removeprefix("transformer.")])
    narrator = load_adapter(Path(recipe.narrator))
    weights = dict(fuse(narrator.merge(base.tensors), base.sizes, eight_bit=False))
    added = fuse_critic(alone.less(narrator), base.tensors, base.sizes, eight_bit=False, dtype=torch.float32)
    ids = critic.tokenizer.encode_all(GOOD)
    product = Critic(Network(base.sizes, weights).with_critic(added), critic.tokenizer)
    values, _ = network([row(ids, [FREE] * 5, None, ())])
    torch.testing.assert_close(product.values([ids])[0], values.detach(), rtol=1e-3, atol=1e-3)
    save_adapter(alone, tmp_path / "critic")
    read = opened(tmp_path / "critic", recipe).read(GOOD).whole
    assert abs(read - float(values[-1].detach())) < abs(
        read - critic.read(GOOD).whole
    )  # 8 bits of a random network are rough


def test_a_critic_of_another_narrator_is_refused(critic: Critic, recipe: CriticRecipe, tmp_path: Path) -> None:
    narrator = load_adapter(Path(recipe.narrator))
    changed = {name: tensor * 1.5 for name, tensor in narrator.tensors.items()}
    save_adapter(replace(narrator, tensors=changed), Path(recipe.narrator))
    with pytest.raises(UserError, match="is the critic of another narrator"):
        opened(tmp_path / "critic", recipe)
