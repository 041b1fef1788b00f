"""The story that the others agree with most: minimum Bayes risk over a story's samples.

Ranking by the given sentences asks which writing the ending suits. This asks instead which writing is most like what
else could stand there: the expected overlap, under the sampler's weights, of a sample's words and pairs of words with
another sample's. It is what measures of overlap with one true text reward (ROUGE, METEOR), and says nothing of how well
a story reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.vocabulary import EOS
from fabula.sampling.samples import SampledStories

TRUST = 0.3
"""The power that weights are raised to: with few samples the weights themselves put all on one or two of them."""


def expected_overlap(
    words: Int[Tensor, "story sample word"], weights: Float[Tensor, "story sample"]
) -> Float[Tensor, "story sample"]:
    """E of F1 over words plus F1 over pairs of neighbours, of each sample with a sample drawn by these weights.

    Special tokens (ids up to `<eos>`) are no words; a word or pair counts once however often it stands.
    """
    pairs = words[..., :-1] * (int(words.max()) + 1) + words[..., 1:]
    whole = (words[..., :-1] > EOS) & (words[..., 1:] > EOS)
    likeness = f1_of_sets(words, words > EOS) + f1_of_sets(pairs, whole)
    return (likeness @ weights.unsqueeze(-1)).squeeze(-1)


def f1_of_sets(
    items: Int[Tensor, "story sample item"], there: Bool[Tensor, "story sample item"]
) -> Float[Tensor, "story sample sample"]:
    """2 |A and B| / (|A| + |B|) of every two samples of a story; 0 of two empty ones."""
    stories, samples, _ = items.shape
    story, sample, _ = there.nonzero(as_tuple=True)
    # Every story numbers its own items from 0 on.
    distinct, number = torch.unique(torch.stack([story, items[there]], 1), dim=0, return_inverse=True)
    first = torch.searchsorted(distinct[:, 0].contiguous(), torch.arange(stories, device=items.device))
    number = number - first[story]
    held = torch.zeros(stories, samples, int(number.max()) + 1 if len(number) else 1, device=items.device)
    held[story, sample, number] = 1.0
    size = held.sum(-1)
    return 2 * (held @ held.transpose(1, 2)) / (size[:, :, None] + size[:, None, :]).clamp(min=1.0)


def by_consensus(
    rounds: Sequence[SampledStories], stories: int, missing: Bool[Tensor, "story sent"], trust: float = TRUST
) -> list[SampledStories]:
    """The same rounds, scored by the expected overlap of what was written with all samples of the story."""
    chains = [len(r.score) // stories for r in rounds]
    width = max(r.X.shape[2] for r in rounds)
    words = torch.cat(
        [torch.nn.functional.pad(r.X, (0, width - r.X.shape[2])).unflatten(0, (stories, -1)) for r in rounds], 1
    )
    words = words.masked_fill(~missing.to(words.device)[:, None, :, None], 0).flatten(2)
    log_w = torch.cat([r.log_weight.view(stories, -1) for r in rounds], 1)
    score = expected_overlap(words, (trust * log_w).softmax(-1))
    return [
        r._replace(score=part.flatten())
        for r, part in zip(rounds, torch.split(score, chains, 1), strict=True)
    ]  # fmt: skip
