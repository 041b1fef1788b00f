"""Does what was written lead to the ending that was given?

A judge, a language model trained apart and never used for ranking, says how probable the true last sentence is after
the first sentences and what was written: log P(X_N | X_1, middle).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.corpus.dataset import Stories
from fabula.errors import UserError
from fabula.models.protocol import Model

JUDGED_AT_ONCE = 512
"""Stories the judge reads at a time."""


def choose_stories(stories: Stories, n: int, sentences: int, seed: int) -> list[int]:
    """n stories of this many sentences, in random order; all there are where there are fewer."""
    fit = np.flatnonzero(np.diff(stories.story_offsets) == sentences)
    if not len(fit):
        raise UserError(f"no story has {sentences} sentences")
    return [int(row) for row in np.random.default_rng(seed).permutation(fit)[:n]]


@torch.inference_mode()
def log_p_ending(
    judge: Model, X: Int[Tensor, "batch sent word"], lengths: Int[Tensor, "batch sent"]
) -> Float[Tensor, " batch"]:
    """The judge's log P(X_N | X_:N) of stories of N sentences each."""
    decoder, found = judge.decoder, []
    assert decoder is not None, "the judge is a plain language model"
    for X_part, lengths_part in zip(torch.split(X, JUDGED_AT_ONCE), torch.split(lengths, JUDGED_AT_ONCE), strict=True):
        state, log_p = decoder.start(len(X_part)), X_part.new_zeros(len(X_part)).float()
        for i in range(X.shape[1]):
            state = decoder.begin_sentence(state, None)
            state, log_p = decoder.read(state, X_part[:, i], lengths_part[:, i], None)
        found.append(log_p)
    return torch.cat(found)
