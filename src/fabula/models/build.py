"""A model from its settings and what the corpus says: vocabulary size, label set, transition counts."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from fabula.models import lm, s2s, slds  # noqa: F401  (they register themselves)
from fabula.models.protocol import MODELS, Model
from fabula.models.settings import ModelSettings


def build(
    settings: ModelSettings, vocabulary: int, p_initial: Float[Tensor, " state"], p_next: Float[Tensor, "state state"]
) -> Model:
    """The model that `settings.kind` names."""
    return MODELS.find(settings.kind, "model.kind")(settings, vocabulary, p_initial, p_next)
