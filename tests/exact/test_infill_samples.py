"""What candidates are ranked by, on figures set by hand."""

import torch

from fabula.infill.batch import infill_batch
from fabula.infill.samples import score_following


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
