"""The language-model baseline: p(X_i | X_:i), the decoder without a latent."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from fabula.models.batch import Batch
from fabula.models.language import ConditionalLanguageModel
from fabula.models.settings import ModelSettings


class LM(nn.Module):
    """log p(X) = sum_i log p(X_i | X_:i), exact."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.language = ConditionalLanguageModel(settings.language, vocabulary, 0)

    def log_p_X(self, batch: Batch) -> Float[Tensor, "batch sent"]:
        features = self.language(batch.previous, None)
        return batch.per_sentence(self.language.log_prob(features, batch.tokens))
