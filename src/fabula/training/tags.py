"""q(S_i | X) from few labels: sparse word weights fitted to them, and words they never met leaning on their neighbours.

A tag such as sentiment is nearly a sum over words of weights that are mostly zero. With a few thousand labelled
sentences the weights of the words in them can be had by penalised likelihood; what is missing are the other words.
Those lean on words that are used alike (the embedding, learned from all stories) and spelled alike:

    w_v  <-  w_v + n0 / (n_v + n0) sum_u softmax_u(likeness(v, u) / tau) w_u

where n_v labelled sentences hold v, and u runs over words that at least `SEEN` of them hold.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from fabula.corpus.vocabulary import EOS, PAD
from fabula.models.batch import IntArray, StoryDataset
from fabula.models.slds import SLDS

PENALTY = 1e-3
"""Of each weight's absolute value, beside the mean log-likelihood of a sentence's tag."""
EPOCHS, RATE, SENTENCES = 40, 1e-2, 128
"""Of the fit: passes, Adam's first rate (it falls to nothing), sentences per step."""
SEEN, TAU, LEAN, SPELLING = 3, 0.025, 10.0, 0.7
"""Of the leaning: which words are leant on, how closely, how soon a word stands alone (n0), and how much spelling
counts beside use. Chosen on the validation split."""


def settle_tags(model: SLDS, dataset: StoryDataset, labelled: IntArray, words: Sequence[str], seed: int) -> None:
    """Fit the word weights and the tag head to the labelled stories, then let rare and unseen words lean."""
    batch = dataset.batch(labelled)
    known = batch.S >= 0
    if not bool(known.any()):
        return
    X, S = batch.X()[known], batch.S[known]
    X = X.masked_fill(X == EOS, PAD)
    fit(model, X, S, torch.Generator().manual_seed(seed))
    counts = torch.zeros(model.recognition.valence.free.num_embeddings, device=X.device)
    for row in X.split(4096):
        present = torch.zeros(len(row), len(counts), device=X.device).scatter_(1, row, 1.0)
        counts += present.sum(0)
    counts[PAD] = 0
    lean(model, counts, words)


def fit(model: SLDS, X: Int[Tensor, "batch word"], S: Int[Tensor, " batch"], generator: torch.Generator) -> None:
    """Penalised maximum likelihood of the tags of labelled sentences, from weights of zero."""
    free, head = model.recognition.valence.free, model.recognition.tag_of_words
    nn.init.zeros_(free.weight)
    optimiser = torch.optim.Adam(
        [{"params": [free.weight], "full": RATE}, {"params": list(head.parameters()), "full": RATE / 3}]
    )
    for epoch in range(EPOCHS):
        for group in optimiser.param_groups:
            group["lr"] = group["full"] * (1 - epoch / EPOCHS)
        for rows in torch.randperm(len(X), generator=generator).to(X.device).split(SENTENCES):
            sums = (free(X[rows]) * (X[rows] != PAD).unsqueeze(-1)).sum(1)
            loss = F.cross_entropy(head(sums), S[rows]) + PENALTY * free.weight.abs().sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


@torch.no_grad()
def lean(model: SLDS, counts: Float[Tensor, " vocab"], words: Sequence[str]) -> None:
    """Add to every word's weights those of the words most like it, the more the less often it was labelled."""
    free = model.recognition.valence.free.weight
    n = len(words)
    use = F.normalize(model.language.embedding.weight[:n], dim=1)
    spelling = spelled(words).to(use.device)
    likeness_of = F.normalize(torch.cat([use, SPELLING * spelling], 1), dim=1)
    anchors = torch.where(counts[:n] >= SEEN)[0]
    if not len(anchors):
        return
    leant = torch.zeros_like(free[:n])
    column = torch.full((n,), -1, device=use.device)
    column[anchors] = torch.arange(len(anchors), device=use.device)
    for rows in torch.arange(n, device=use.device).split(2048):
        likeness = likeness_of[rows] @ likeness_of[anchors].T
        own = column[rows]
        likeness[own >= 0, own[own >= 0]] = float("-inf")  # a word does not lean on itself
        leant[rows] = (likeness / TAU).softmax(1) @ free[anchors]
    alone = LEAN / (counts[:n] + LEAN)
    free[:n] += alone.unsqueeze(-1) * leant


def spelled(words: Sequence[str], buckets: int = 2048) -> Float[Tensor, "vocab buckets"]:
    """Counts of each word's 3- to 5-grams of letters, hashed, of length one."""
    grams = torch.zeros(len(words), buckets)
    for row, word in enumerate(words):
        bounded = f"^{word.lower()}$"
        for size in (3, 4, 5):
            for start in range(len(bounded) - size + 1):
                grams[row, zlib.crc32(bounded[start : start + size].encode()) % buckets] += 1
    return F.normalize(grams, dim=1)
