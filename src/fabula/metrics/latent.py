"""Does Z matter? What the words lose when Z is drawn from its prior given the tags."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.models.batch import Batch
from fabula.models.slds import SLDS
from fabula.statespace.chain import chain
from fabula.statespace.gaussian import Potential


def prior_log_p_X(model: SLDS, batch: Batch, generator: torch.Generator, draws: int = 5) -> Float[Tensor, " batch"]:
    """E log p(X | Z) with Z ~ p(Z | S): X under a Z that depends on the arc alone."""
    S = torch.where(batch.S >= 0, batch.S, model.evidence(batch).log_q_S.argmax(-1)) if model.K > 1 else batch.S * 0
    Z = draw_given(model, S, batch.present, draws, generator)
    return torch.stack([model.log_p_X(batch, Z[:, m]).sum(-1) for m in range(draws)], 1).mean(1)


def draw_given(
    model: SLDS, S: Int[Tensor, "batch sent"], present: Tensor, draws: int, generator: torch.Generator
) -> Float[Tensor, "batch sample sent latent"]:
    """Z ~ p(Z | S), `draws` for each row."""
    A = model.dynamics.A
    noise = torch.randn((S.shape[0], draws, S.shape[1], model.D), generator=generator, device=A.device, dtype=A.dtype)
    no_evidence = torch.zeros_like(noise[:, 0])
    return chain(model.dynamics, S, Potential(no_evidence, no_evidence), present).sample(noise)
