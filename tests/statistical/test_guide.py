"""A guiding critic changes which particles are kept on the way, not the distribution that their weights stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from fabula.models.critic import Critic, Verdict
from fabula.sampling import smc
from fabula.sampling.batch import infill_batch
from fabula.sampling.noise import Noise, seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import SMCSettings
from toy_decoder import END, PairTokenizer, ToyModel


class LikesLength(Critic):
    """Of two stories the longer is better."""

    ending, density = 0.0, 0.0

    def values(self, stories: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        return torch.tensor([[float(len(sentence)) for sentence in story] for story in stories])

    def judge(self, stories: Sequence[Sequence[Sequence[int]]]) -> list[Verdict]:
        return [Verdict(float(sum(map(len, story))), tuple(float(-len(s)) for s in story)) for story in stories]


class Judged(ToyModel):
    @property
    def critic(self) -> Any:
        return LikesLength.__new__(LikesLength)  # it needs no network


def a_model() -> Judged:
    torch.manual_seed(0)
    model = Judged(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    model.toy.strict = False
    return model.eval()


def groups(model: Judged, given: list[Any], guide: float, count: int, particles: int) -> list[tuple[Tensor, Tensor]]:
    """Of every particle group: its particles' log weights, and the length of the first written sentence."""
    batch, rules = infill_batch([given], end=END).repeat(count), WordRules.of(PairTokenizer())
    settings = SMCSettings.plain(
        samples=particles, top_k=0, max_words=5, correct=True, resample_below=1.0, guide=guide, rank="critic"
    )
    noise = Noise([seeded(seed) for seed in range(count)], batch.sentences, particles, "cpu")
    with torch.inference_mode():
        drawn, _ = smc.draw_groups(model, rules, batch, smc.without_latents(batch), settings, [noise])
    log_w, length = (t.view(count, particles).double() for t in (drawn.log_weight, drawn.lengths[:, 1]))
    return list(zip(log_w, length, strict=True))


def estimate(found: list[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """The weighted mean over all groups, and its standard error by leaving out one group at a time."""
    top = max(float(w.max()) for w, _ in found)
    sums = torch.stack([torch.stack([(w - top).exp().sum(), ((w - top).exp() * x).sum()]) for w, x in found])
    total = sums.sum(0)
    left = (total - sums)[:, 1] / (total - sums)[:, 0]
    return float(total[1] / total[0]), float(((left - left.mean()).square().sum() * (len(left) - 1) / len(left)).sqrt())


@pytest.mark.parametrize("ending", [True, False])
def test_the_weighted_distribution_is_the_same_with_a_guide(ending: bool) -> None:
    """Mean length of the first of two written sentences, 30 groups of 200: the two differ by less than 5 standard
    errors (a false alarm below 1e-6), while the unweighted means differ by far more."""
    encode = PairTokenizer().encode
    given = [encode("ab."), None, None, *([encode("bc bb.")] if ending else [])]
    model = a_model()
    free, guided = (groups(model, given, guide, 30, 200) for guide in (0.0, 1.0))
    (a, se_a), (b, se_b) = estimate(free), estimate(guided)
    error = (se_a**2 + se_b**2) ** 0.5
    assert abs(a - b) < 5 * error + 1e-9, (a, b, error)
    raw = [float(torch.cat([x for _, x in found]).mean()) for found in (free, guided)]
    assert abs(raw[1] - raw[0]) > 5 * error


def test_candidates_come_in_the_order_of_the_critic() -> None:
    batch = infill_batch([[PairTokenizer().encode("ab."), None, None]], end=END)
    rules, model = WordRules.of(PairTokenizer()), a_model()
    settings = SMCSettings.plain(samples=20, top_k=0, max_words=5, rank="critic")
    rounds = list(smc.run(model, batch, settings, [seeded(1)], rules=rules))
    for stories, _ in rounds:
        assert stories.verdict is not None
        written = (stories.lengths - 1).clamp(min=0).sum(1).float()
        torch.testing.assert_close(stories.score, written)
        torch.testing.assert_close(stories.verdict[:, 0], written)
        torch.testing.assert_close(stories.verdict[:, 1], -(stories.lengths[:, 1] - 1).float())
