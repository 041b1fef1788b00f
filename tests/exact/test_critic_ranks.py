"""Candidates that a critic ranks."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fabula.models.critic import Critic, Verdict
from fabula.sampling import smc
from fabula.sampling.batch import infill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.settings import SMCSettings
from small import scaled
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
    model = scaled(Judged(3), 1.5)
    model.toy.strict = False
    return model.eval()


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
