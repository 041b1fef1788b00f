"""DPO (Rafailov et al. 2023) on samples of a narrator, held to what it was (expert iteration).

For a prompt with the samples b (better) and w (worse) of its missing sentences, with r the narrator in training and r_0
as it began,

    loss = -log sigmoid(beta [log r(b)/r_0(b) - log r(w)/r_0(w)])  -  imitation * log r(b) per token
           - people * (log-likelihood per token of people's stories, in rows as in training)
           + anchor * KL(r_0 || r) per token of the same rows (r_0 here: the narrator `anchor_to`)

The last two terms keep the narrator from forgetting how people write. The likelihood goes on learning stories that it
has learnt before, until it knows them by heart; the divergence does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from fabula.models.decoders.rows import Row
from fabula.models.decoders.transformer import Transformer
from fabula.training.losses.lm import log_p_of, logits_of
from fabula.training.recipe import PreferenceRecipe


class Preference(NamedTuple):
    """Two samples as rows that count their missing sentences, and log r_0 of each."""

    better: Row
    worse: Row
    log_r0_better: float = 0.0
    log_r0_worse: float = 0.0


def log_r(network: Transformer, pairs: Sequence[Preference]) -> tuple[Float[Tensor, "2 pair"], Float[Tensor, "2 pair"]]:
    """log r of the counted tokens of the better and the worse samples, and how many tokens there are."""
    rows = [*(pair.better for pair in pairs), *(pair.worse for pair in pairs)]
    log_p, counts = log_p_of(network, rows)
    number = torch.repeat_interleave(torch.arange(len(rows)), counts).to(log_p.device)
    total = log_p.new_zeros(len(rows)).index_add(0, number, log_p)
    return total.view(2, -1), counts.to(log_p).view(2, -1)


def pair_loss(
    network: Transformer, pairs: Sequence[Preference], recipe: PreferenceRecipe
) -> tuple[Tensor, Float[Tensor, " pair"]]:
    """The terms of the pairs, and by how much each better sample has gained on its worse one."""
    log_p, counts = log_r(network, pairs)
    before = [[pair.log_r0_better for pair in pairs], [pair.log_r0_worse for pair in pairs]]
    gain = log_p - torch.tensor(before, device=log_p.device)
    margin = gain[0] - gain[1]
    better = log_p[0].sum() / counts[0].sum()
    return -F.logsigmoid(recipe.beta * margin).mean() - recipe.imitation * better, margin.detach()


def people_loss(network: Transformer, rows: list[Row], recipe: PreferenceRecipe, anchor: Transformer | None) -> Tensor:
    """The terms of people's stories; `anchor` is the network of r_0."""
    logits, target, _ = logits_of(network, rows)
    loss = recipe.people * F.cross_entropy(logits, target)
    if anchor is None:
        return loss
    with torch.no_grad():
        log_r0 = logits_of(anchor, rows)[0].log_softmax(-1)
    divergence = F.kl_div(logits.log_softmax(-1), log_r0, reduction="batchmean", log_target=True)
    return loss + recipe.anchor * divergence
