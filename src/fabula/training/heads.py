"""What is asked of Z in training alone: each story's content words, and its next sentence among others.

A language model that has read X_:i needs little of Z_i; what infilling needs of Z_i is what links sentences. A head
that predicts from Z_i the content words of *other* sentences rewards exactly that.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fabula.models.batch import Batch
from fabula.models.gaussian import Potential
from fabula.models.slds import SLDS

FUNCTION_WORDS = 120
"""The commonest types, which say nothing of a story's content; vocabularies are sorted by frequency."""
SPECIALS = 4


class WordHead(nn.Module):
    """log p(word occurs | Z_i): one softmax over content words, from a two-layer network on Z_i."""

    def __init__(self, D: int, vocabulary: int, width: int = 256) -> None:
        super().__init__()
        self.first = min(SPECIALS + FUNCTION_WORDS, vocabulary // 2)
        self.net = nn.Sequential(nn.Linear(D, width), nn.Tanh(), nn.Linear(width, vocabulary - self.first))

    def forward(self, Z: Float[Tensor, "batch sent latent"], batch: Batch, *, own: bool) -> Float[Tensor, " batch"]:
        """Mean log-probability of the content words, summed over sentences: of sentence i, or of all the others."""
        log_p = self.net(Z).log_softmax(-1)
        content = batch.tokens >= self.first
        words = (batch.tokens - self.first).clamp(min=0)
        each = _log_p_of(log_p, words)  # batch sent token
        mine = batch.sentence.unsqueeze(1) == torch.arange(Z.shape[1], device=Z.device)[None, :, None]
        chosen = content.unsqueeze(1) & (mine if own else ~mine) & batch.present.unsqueeze(-1)
        count = chosen.sum(-1).clamp(min=1)
        return ((each * chosen).sum(-1) / count).sum(-1)


def _log_p_of(
    log_p: Float[Tensor, "batch sent types"], words: Int[Tensor, "batch token"]
) -> Float[Tensor, "batch sent token"]:
    return log_p.gather(2, words.unsqueeze(1).expand(-1, log_p.shape[1], -1))


def contrast(
    model: SLDS, phi: Potential, s: Float[Tensor, "batch sent state"], batch: Batch
) -> Float[Tensor, " batch"]:
    """log-probability of picking each next sentence among all those of the batch, summed over a story's steps.

    Story a's past is z_i, drawn where q observes X_:i only; sentence b fits it by the evidence it would bring,
    the integral of p(Z_{i+1} | z_i, S_{i+1}) phi_b(Z_{i+1}): a Gaussian in phi_b's mean. B counts by its diagonal.
    """
    present = batch.present
    noise = torch.randn(*present.shape, model.D, device=phi.mean.device, dtype=phi.mean.dtype)
    z = torch.zeros_like(noise[:, 0])
    variance = model.dynamics.Sigma().diagonal(dim1=-2, dim2=-1)
    total = noise.new_zeros(len(noise))
    for i in range(present.shape[1]):
        p = model.dynamics(z, s[:, i])
        if i:
            mean = model.dynamics.mean(z, s[:, i])
            spread = (s[:, i] @ variance).unsqueeze(1) + 1 / phi.precision[None, :, i].clamp(min=1e-6)
            score = -0.5 * ((phi.mean[None, :, i] - mean.unsqueeze(1)) ** 2 / spread + spread.log()).sum(-1)
            score = score.masked_fill(~present[None, :, i], -1e4)
            total = total + torch.where(present[:, i], score.log_softmax(1).diagonal(), 0.0)
        z = p.times(phi.at(i)).rsample(noise[:, i])
    return total
