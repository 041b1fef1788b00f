"""Long stories: dynamics that stay bounded beyond the lengths of the training stories.

Trained on stories of five sentences, nothing keeps the spectral radius of A below 1 (the shipped small model: up to
1.24), and |Z_i| grows until the decoder repeats one word. So stories of more than `HORIZON` sentences are written with

    A_s <- A_s min(1, RADIUS / rho(A_s)),     rho the spectral radius

which leaves every stable A as it is. Shorter stories, scores and evaluations use the model's own A.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.models.protocol import Model

HORIZON = 10
"""Sentences up to which A is the model's own: twice what the shipped models were trained on."""
RADIUS = 0.95


def steady(model: Model) -> Model:
    """The same model with stable dynamics; weights are shared. A model without latents is returned as it is."""
    latent = model.latent
    if latent is None:
        return model
    stable = copy.copy(latent)
    stable._modules = {**stable._modules, "dynamics": latent.dynamics.with_A(contracted(latent.dynamics.A))}
    return stable


def contracted(A: Float[Tensor, "state latent latent"]) -> Float[Tensor, "state latent latent"]:
    """Every matrix scaled so that its spectral radius is at most `RADIUS`."""
    rho = torch.linalg.eigvals(A.detach().cpu().double()).abs().amax(-1)
    scale: Tensor = (RADIUS / rho).clamp(max=1.0)
    return A.detach() * scale.to(A)[:, None, None]
