"""No run of words twice in a story: what may not come next because it would complete a run that is already there."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.corpus.vocabulary import EOS, PAD
from fabula.infill.batch import InfillBatch

CONTENT = 154
"""Ids from here on are words of content: vocabularies are sorted by frequency, and the 150 commonest words may well
stand twice in a sentence."""


def bar_repeats(
    scores: Tensor, story: Int[Tensor, "batch token"], last: Int[Tensor, "batch run"], mark: float = float("-inf")
) -> Tensor:
    """The scores, with every word ruled out that `last` (the run-1 words just written) is followed by in `story`.

    `<eos>` is never ruled out, and a run does not begin before its sentence (`last` is then -1, which is no word).
    """
    run = last.shape[1]
    windows = story.unfold(1, run, 1)[:, :-1]
    met = (windows == last.unsqueeze(1)).all(-1)
    follows = story[:, run:]
    barred = torch.zeros_like(scores, dtype=torch.bool)
    barred.scatter_(1, torch.where(met, follows, EOS), True)
    barred[:, EOS] = False
    return scores.masked_fill(barred, mark)


def echoed(X: Int[Tensor, "batch sent word"], blanks: InfillBatch) -> Float[Tensor, " batch"]:
    """How many words of content stand again in their own written sentence (`He was sad and sad`)."""
    X = X.masked_fill(X < CONTENT, PAD).sort(-1).values
    again = (X[..., 1:] == X[..., :-1]) & (X[..., 1:] != PAD)
    return (again.sum(-1) * blanks.missing.to(X.device)).sum(1).float()


def repeated(X: Int[Tensor, "batch sent word"], blanks: InfillBatch) -> Float[Tensor, " batch"]:
    """How many written sentences say word for word what another sentence of their story says."""
    same = (X.unsqueeze(1) == X.unsqueeze(2)).all(-1)
    here = blanks.present.to(X.device)
    same = same & here.unsqueeze(1) & here.unsqueeze(2) & ~torch.eye(X.shape[1], dtype=torch.bool, device=X.device)
    return (same.any(-1) & blanks.missing.to(X.device)).sum(1).float()
