"""What candidates are ranked by, on figures set by hand."""

import torch

from fabula.sampling.batch import infill_batch
from fabula.sampling.samples import SampledStories, best_stories, score_following


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
