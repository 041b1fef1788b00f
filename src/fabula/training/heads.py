"""What is asked of Z in training alone: the content words of a story's other sentences.

A language model that has read X_:i needs little of Z_i; what infilling needs of Z_i is what links sentences. A head
that predicts from Z_i the content words of *other* sentences rewards exactly that.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fabula.models.batch import Batch

FUNCTION_WORDS = 120
"""The commonest types, which say nothing of a story's content; vocabularies are sorted by frequency."""
SPECIALS = 4


class WordHead(nn.Module):
    """log p(word occurs | Z_i): one softmax over content words, from a two-layer network on Z_i."""

    def __init__(self, D: int, vocabulary: int, width: int = 256) -> None:
        super().__init__()
        self.first = min(SPECIALS + FUNCTION_WORDS, vocabulary // 2)
        self.net = nn.Sequential(nn.Linear(D, width), nn.Tanh(), nn.Linear(width, vocabulary - self.first))

    def forward(self, Z: Float[Tensor, "batch sent latent"], batch: Batch) -> Float[Tensor, " batch"]:
        """Mean log-probability, given Z_i, of the content words of all sentences but i; summed over i."""
        log_p: Tensor = self.net(Z).log_softmax(-1)
        content = batch.tokens >= self.first
        words = (batch.tokens - self.first).clamp(min=0)
        each = log_p.gather(2, words.unsqueeze(1).expand(-1, Z.shape[1], -1))  # batch sent token
        others = batch.sentence.unsqueeze(1) != torch.arange(Z.shape[1], device=Z.device)[None, :, None]
        chosen = content.unsqueeze(1) & others & batch.present.unsqueeze(-1)
        count = chosen.sum(-1).clamp(min=1)
        return ((each * chosen).sum(-1) / count).sum(-1)
