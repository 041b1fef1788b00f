"""How probable whole stories are, and each of their words, in pieces that fit the memory.

Without latents log p(X) is exact. With them

    log p(X) >= log 1/M sum_m p(X | Z_m) p(Z_m) / q(Z_m | X),   Z_m ~ q(Z | X),   S summed out of p(Z).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.evaluation.likelihood import draw_by
from fabula.models.batch import Batch, gather_latent
from fabula.models.gaussian import Potential
from fabula.models.lm import LM
from fabula.models.recognition import Evidence
from fabula.models.scaffold import UNKNOWN
from fabula.models.slds import SLDS

WORDS_AT_ONCE = 1 << 14
"""Words of all rows of a piece: at 1,024 units, states and gates of a few hundred MiB."""
MATRICES_AT_ONCE = 1 << 24
"""Numbers in the matrices of a piece's chains."""


class Weighed(NamedTuple):
    """Stories with their importance weights."""

    log_w: Float[Tensor, "story sample"]
    """log of p(X | Z) p(Z) / q(Z | X) for every draw; without latents one column, log p(X)."""
    log_p_words: Float[Tensor, "story token"]
    """log p of each word given those before it and Z, the mean over the draws; 0 at `<pad>`."""

    @property
    def log_p(self) -> Float[Tensor, " story"]:
        """log p(X), or its lower bound."""
        return self.log_w.double().logsumexp(1) - math.log(self.log_w.shape[1])


def weigh(model: SLDS | LM, batch: Batch, samples: int, posterior: str, generator: torch.Generator) -> Weighed:
    """The stories of a batch, each with the same noise, so that two that differ little are compared without it."""
    if not isinstance(model, SLDS):
        parts = [
            model.language.log_prob(model.language(piece.previous, None), piece.tokens)
            for piece in (batch.rows(rows) for rows in _pieces(batch, 1, 1))
        ]
        log_p_words = torch.cat(parts)
        return Weighed(log_p_words.sum(1, keepdim=True), log_p_words)
    n, N = batch.lengths.shape
    noise = torch.randn(samples, N, model.D, generator=generator, device=batch.tokens.device)
    uniform = torch.rand(samples, N, generator=generator, device=batch.tokens.device)
    seen = model.evidence(batch)
    log_w = noise.new_zeros(n * samples)
    log_p_words = noise.new_zeros(batch.tokens.shape)
    for rows in _pieces(batch, samples, 6 * N * model.D**2):
        story, draw = rows // samples, rows % samples
        wide = batch.rows(story)
        own = Evidence(Potential(seen.phi.mean[story], seen.phi.precision[story]), seen.log_q_S[story])
        drawn = draw_by(model, own, wide.present, posterior, noise[draw], uniform[draw])
        features = model.language(wide.previous, gather_latent(drawn.Z, wide.sentence))
        words = model.language.log_prob(features, wide.tokens)
        free = torch.full_like(wide.S, UNKNOWN) if model.K > 1 else model.tags(wide)
        log_w[rows] = words.sum(1) + model.log_p_Z(drawn.Z, wide, free) - drawn.log_q
        log_p_words.index_add_(0, story, words / samples)
    return Weighed(log_w.view(n, samples), log_p_words)


def _pieces(batch: Batch, samples: int, matrix: int) -> tuple[Tensor, ...]:
    """The rows of stories x samples, cut where words or matrices would be too many."""
    rows = torch.arange(len(batch.tokens) * samples, device=batch.tokens.device)
    return torch.split(rows, max(1, min(WORDS_AT_ONCE // batch.tokens.shape[1], MATRICES_AT_ONCE // matrix)))
