"""q(S_i | X) from few labels: sparse word weights fitted to them, and smoothed towards similar words.

A tag such as sentiment is nearly a sum over words of weights that are mostly zero. Penalised likelihood gives the
weights of the words in a few thousand labelled sentences. The other words take over weights of words that are used
alike (the embedding, learnt from all stories) and spelled alike:

    w_v  <-  w_v + n0 / (n_v + n0) sum_u softmax_u(similarity(v, u) / tau) w_u

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
SEEN, TAU, N0, SPELLING = 3, 0.025, 10.0, 0.7
"""Of the smoothing; `SPELLING` is its weight beside use. Chosen on the validation split."""


def fit_tags(model: SLDS, dataset: StoryDataset, labelled: IntArray, words: Sequence[str], seed: int) -> None:
    """Fit the word weights and the tag head to the labelled stories, then smooth those of rare and unseen words."""
    batch = dataset.batch(labelled)
    tagged = batch.S >= 0
    if not bool(tagged.any()):
        return
    X, S = batch.X()[tagged], batch.S[tagged]
    X = X.masked_fill(X == EOS, PAD)
    fit(model, X, S, torch.Generator().manual_seed(seed))
    counts = torch.zeros(model.recognition.valence.free.num_embeddings, device=X.device)
    for rows in X.split(4096):
        counts += torch.zeros(len(rows), len(counts), device=X.device).scatter_(1, rows, 1.0).sum(0)
    counts[PAD] = 0
    smooth(model, counts, words)


def fit(model: SLDS, X: Int[Tensor, "batch word"], S: Int[Tensor, " batch"], generator: torch.Generator) -> None:
    """Penalised maximum likelihood of the tags of labelled sentences, from weights of zero."""
    free, head = model.recognition.valence.free, model.recognition.tag_of_words
    nn.init.zeros_(free.weight)
    groups = [{"params": [free.weight], "full": RATE}, {"params": list(head.parameters()), "full": RATE / 3}]
    optimiser = torch.optim.Adam(groups)
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
def smooth(model: SLDS, counts: Float[Tensor, " vocab"], words: Sequence[str]) -> None:
    """Add to every word's weights those of similar words, the more the less often it was labelled."""
    free, n = model.recognition.valence.free.weight, len(words)
    use = F.normalize(model.language.embedding.weight[:n], dim=1)
    features = F.normalize(torch.cat([use, SPELLING * spelled(words).to(use.device)], 1), dim=1)
    anchors = torch.where(counts[:n] >= SEEN)[0]
    if not len(anchors):
        return
    mean = torch.zeros_like(free[:n])
    for rows in torch.arange(n, device=use.device).split(2048):
        similarity = features[rows] @ features[anchors].T
        similarity[rows[:, None] == anchors] = float("-inf")  # a word is not similar to itself
        mean[rows] = (similarity / TAU).softmax(1) @ free[anchors]
    free[:n] += (N0 / (counts[:n] + N0)).unsqueeze(-1) * mean


def spelled(words: Sequence[str], buckets: int = 2048) -> Float[Tensor, "vocab buckets"]:
    """Counts of each word's 3- to 5-grams of letters, hashed, of length one."""
    grams = torch.zeros(len(words), buckets)
    for row, word in enumerate(words):
        bounded = f"^{word.lower()}$"
        for size in (3, 4, 5):
            for start in range(len(bounded) - size + 1):
                grams[row, zlib.crc32(bounded[start : start + size].encode()) % buckets] += 1
    return F.normalize(grams, dim=1)
