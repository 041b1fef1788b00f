"""Does the written middle lead to the given ending? A language model that took no part in writing judges it.

The score is the judge's log P(X_N | X_1, middle) of the true last sentence.
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
    rows = np.flatnonzero(np.diff(stories.story_offsets) == sentences)
    if not len(rows):
        raise UserError(f"no story has {sentences} sentences")
    return [int(row) for row in np.random.default_rng(seed).permutation(rows)[:n]]


@torch.inference_mode()
def log_p_ending(
    judge: Model, X: Int[Tensor, "batch sent word"], lengths: Int[Tensor, "batch sent"]
) -> Float[Tensor, " batch"]:
    """The judge's log P(X_N | X_:N) of stories of N sentences each."""
    decoder, parts = judge.decoder, []
    assert decoder is not None, "the judge is a plain language model"
    for words, counts in zip(torch.split(X, JUDGED_AT_ONCE), torch.split(lengths, JUDGED_AT_ONCE), strict=True):
        state, log_p = decoder.start(len(words)), torch.zeros(len(words), device=X.device)
        for i in range(X.shape[1]):
            state, log_p = decoder.read(decoder.begin_sentence(state, None), words[:, i], counts[:, i], None)
        parts.append(log_p)
    return torch.cat(parts)
