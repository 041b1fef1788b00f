"""A model from its settings and what the corpus says: vocabulary size, label set, transition counts."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.models.lm import LM
from fabula.models.s2s import S2S
from fabula.models.scaffold import Scaffold
from fabula.models.settings import ModelSettings
from fabula.models.slds import SLDS

Model = SLDS | LM | S2S


def build(
    settings: ModelSettings,
    vocabulary: int,
    p_initial: Float[Tensor, " state"],
    p_next: Float[Tensor, "state state"],
) -> Model:
    """The system `settings.kind` names; `lds` is `slds` over a scaffold of one state."""
    if settings.kind == "lm":
        return LM(settings, vocabulary)
    if settings.kind == "s2s":
        return S2S(settings, vocabulary, p_initial.shape[0])
    if settings.kind == "lds":
        p_initial, p_next = torch.ones(1), torch.ones(1, 1)
    return SLDS(settings, vocabulary, Scaffold(p_initial, p_next, learn=settings.scaffold.learn))
