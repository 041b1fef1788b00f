"""Faults of repetition: a run of words twice in a story, a sentence said twice, a word twice in a sentence."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.sampling.batch import InfillBatch
from fabula.sampling.spelling import Spelling


def bar_repeats(
    scores: Float[Tensor, "batch vocab"],
    spelling: Spelling,
    story: Int[Tensor, "batch token"],
    sentence: Int[Tensor, "batch written"],
    run: int,
) -> Float[Tensor, "batch vocab"]:
    """The scores, with every token ruled out that would complete a run of `run` words that the story already has.

    In place: scores have a number for every token of the vocabulary, and a copy costs more than the rule.
    """
    met, tokens = spelling.followers(story, sentence, run)
    end = scores[:, spelling.end].clone()
    scores.scatter_(1, torch.where(met, tokens, spelling.end), float("-inf"))
    scores[:, spelling.end] = end
    return scores


def echoed(
    words: Int[Tensor, "batch sent word"], common: Int[Tensor, " common"], blanks: InfillBatch
) -> Float[Tensor, " batch"]:
    """How many words of content, all but the common ones, stand again in their own written sentence."""
    content = words.masked_fill(torch.isin(words, common), 0).sort(-1).values
    again = (content[..., 1:] == content[..., :-1]) & (content[..., 1:] != 0)
    return (again.sum(-1) * blanks.missing.to(words.device)).sum(1).float()


def repeated(X: Int[Tensor, "batch sent word"], blanks: InfillBatch) -> Float[Tensor, " batch"]:
    """How many written sentences say word for word what another sentence of their story says."""
    same = (X.unsqueeze(1) == X.unsqueeze(2)).all(-1)
    here = blanks.present.to(X.device)
    same = same & here.unsqueeze(1) & here.unsqueeze(2) & ~torch.eye(X.shape[1], dtype=torch.bool, device=X.device)
    return (same.any(-1) & blanks.missing.to(X.device)).sum(1).float()
