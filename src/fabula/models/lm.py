"""The language-model baseline: p(X_i | X_:i), the decoder without a latent."""

from __future__ import annotations

from torch import Tensor

from fabula.models.batch import Batch
from fabula.models.decoders.gru import GRUDecoder
from fabula.models.protocol import Model, register_model
from fabula.models.settings import ModelSettings
from fabula.shapes import PerToken


class LM(Model):
    """log p(X) = sum_i log p(X_i | X_:i), exact."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.language = GRUDecoder(settings.language, vocabulary, 0)

    @property
    def decoder(self) -> GRUDecoder:
        return self.language

    def log_p_words(self, batch: Batch, Z: Tensor | None = None) -> PerToken:
        return self.language.log_prob(self.language(batch.previous, None), batch.tokens)


register_model("lm")(lambda settings, vocabulary, p_initial, p_next: LM(settings, vocabulary))
