"""What candidates are ranked by, on figures set by hand, and by a critic."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fabula.models.critic import Critic, Verdict
from fabula.sampling import smc
from fabula.sampling.batch import infill_batch
from fabula.sampling.noise import seeded
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import SampledStories, best_stories, score_following
from fabula.sampling.settings import SMCSettings
from small import scaled
from toy_decoder import END, PairTokenizer, ToyModel


def test_ranking_by_what_follows_and_by_the_writing() -> None:
    """Story 1: sentences 1 and 4 given, 2 and 3 written. Story 2: only the first is given."""
    blanks = infill_batch([[[4, 5], None, None, [6]], [[4, 5], None]], device="cpu")
    log_p = torch.tensor([[-9.0, -4.0, -8.0, -3.0], [-9.0, -6.0, 0.0, 0.0]])
    lengths = torch.tensor([[3, 2, 4, 2], [3, 3, 0, 0]])
    pure = score_following(log_p, lengths, blanks)
    # The first sentence comes before every blank, so nothing written can change it.
    torch.testing.assert_close(pure, torch.tensor([-3.0, -2.0]))
    fluent = score_following(log_p, lengths, blanks, fluency=3.0)
    torch.testing.assert_close(fluent, torch.tensor([-3.0 + 3 * (-12 / 6), -2.0]))


def test_candidates_differ_from_their_first_written_sentence_on() -> None:
    """Story 1 of two, sentences 2 and 3 missing; among the candidates no opening stands twice while others are left."""
    lines = [(5, 1), (5, 2), (6, 1), (5, 1), (7, 3), (6, 9)]
    scores = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]
    X = torch.tensor([[[3], [a], [b]] for a, b in lines])
    other = X.new_full(X.shape, 4)
    ones = torch.ones(12, 3)
    drawn = SampledStories(
        torch.cat([other, X]), ones.long(), ones.long(), -ones, torch.tensor([99.0] * 6 + scores), torch.zeros(12)
    )
    missing = torch.tensor([[True, False, True], [False, True, True]])

    def chosen(n: int) -> list[tuple[int, int]]:
        stories = best_stories([drawn], 1, missing, n)
        assert [story.score for story in stories] == sorted((story.score for story in stories), reverse=True)
        return [(int(story.X[1]), int(story.X[2])) for story in stories]

    assert chosen(1) == [(5, 1)]
    assert chosen(2) == [(5, 1), (6, 1)]
    assert chosen(3) == [(5, 1), (6, 1), (7, 3)]
    assert chosen(4) == [(5, 1), (5, 2), (6, 1), (7, 3)]
    assert chosen(9) == [(5, 1), (5, 2), (6, 1), (7, 3), (6, 9)]
    # A story of another round counts too.
    assert len(best_stories([drawn, drawn._replace(X=drawn.X + 10)], 1, missing, 6)) == 6


def test_candidates_have_at_most_half_their_written_lines_in_common() -> None:
    """Lines 2 to 4 are missing: one that shares two of three with a better candidate waits until none else is left."""
    lines = [(5, 1, 1), (6, 1, 1), (7, 1, 2), (8, 9, 3), (6, 4, 4)]
    X = torch.tensor([[[3], *([word] for word in line)] for line in lines])
    ones = torch.ones(5, 4)
    drawn = SampledStories(X, ones.long(), ones.long(), -ones, torch.tensor([9.0, 8.0, 7.0, 6.0, 5.0]), torch.zeros(5))
    missing = torch.tensor([[False, True, True, True]])

    def chosen(n: int) -> list[tuple[int, ...]]:
        return [tuple(story.X[1:, 0].tolist()) for story in best_stories([drawn], 0, missing, n)]

    assert chosen(3) == [lines[0], lines[2], lines[3]]
    assert chosen(4) == [lines[0], lines[2], lines[3], lines[4]]  # its opening was only in one that was passed over
    assert chosen(5) == lines


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


def test_candidates_come_in_the_order_of_the_critic() -> None:
    batch = infill_batch([[PairTokenizer().encode("ab."), None, None]], end=END)
    torch.manual_seed(0)
    rules, model = WordRules.of(PairTokenizer()), scaled(Judged(3), 1.5).eval()
    model.toy.strict = False
    settings = SMCSettings.plain(samples=20, top_k=0, max_words=5, rank="critic")
    rounds = list(smc.run(model, batch, settings, [seeded(1)], rules=rules))
    for stories, _ in rounds:
        assert stories.verdict is not None
        written = (stories.lengths - 1).clamp(min=0).sum(1).float()
        torch.testing.assert_close(stories.score, written)
        torch.testing.assert_close(stories.verdict[:, 0], written)
        torch.testing.assert_close(stories.verdict[:, 1], -(stories.lengths[:, 1] - 1).float())
