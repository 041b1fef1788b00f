"""The judge of endings: log P of the last sentence is the language model's own, and stories are of one length."""

import pytest
import torch

from fabula.corpus.dataset import Stories
from fabula.corpus.vocabulary import PAD, SPECIALS, UNK
from fabula.errors import UserError
from fabula.metrics.lookahead import choose_stories, log_p_ending
from fabula.sampling.batch import flatten, infill_batch
from small import small_model

TYPES = len(SPECIALS) + 9
STORIES = Stories.from_sentences(
    [
        [[7, 4], [8, 9, 4], [10, 4], [11, 11, 7, 4], [7, 8, 4]],
        [[8, 4], [7, 7, 5], [9, 4], [7, UNK, 4], [9, 9, 9, 4]],
        [[9, 4], [9, 4]],
        [[9, 10, 4], [7, 4], [8, 4], [8, 4], [11, 5]],
    ]
)


def test_the_judge_says_what_the_language_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the lengths, wherever the batch is cut, and whatever pads the story."""
    judge = small_model("lm", words=TYPES, seed=1, language={"layers": 2}).requires_grad_(False)
    full = infill_batch([[s.tolist() for s in STORIES.sentences(n)] for n in (0, 1, 3)])
    truth = judge.log_p_X(flatten(full.X, full.lengths))[:, -1]
    assert torch.allclose(log_p_ending(judge, full.X, full.lengths), truth, atol=1e-5)
    monkeypatch.setattr("fabula.metrics.lookahead.JUDGED_AT_ONCE", 2)
    assert torch.allclose(log_p_ending(judge, full.X, full.lengths), truth, atol=1e-5)
    wide = torch.nn.functional.pad(full.X, (0, 3), value=PAD)
    assert torch.allclose(log_p_ending(judge, wide, full.lengths), truth, atol=1e-5)


def test_chosen_stories_have_the_wanted_length() -> None:
    assert sorted(choose_stories(STORIES, 5, 5, seed=0)) == [0, 1, 3]
    assert len(choose_stories(STORIES, 2, 5, seed=0)) == 2
    with pytest.raises(UserError, match="no story has 4 sentences"):
        choose_stories(STORIES, 5, 4, seed=0)
