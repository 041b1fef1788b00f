"""The narrator as a model of stories: p(S) p(X | S), with a pretrained decoder and no latent.

    p(S, X) = prod_i p(S_i | S_{i-1}) p(X_i | S_i, X_:i)

A tag that is free is a mood token of its own, learnt beside the others, so the decoder's p(X) approximates the sum over
S. The decoder also knows r(X_missing | X_given, S), which `smc` proposes from (models/decoders/narrator.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from fabula.corpus.taggers.protocol import Tagger
from fabula.models.batch import Batch
from fabula.models.critic import Critic
from fabula.models.decoders.narrator import NarratorDecoder
from fabula.models.decoders.tokenizer import SubwordTokenizer
from fabula.models.protocol import Model
from fabula.shapes import PerToken
from fabula.statespace.markov import MarkovChain


class NarratorModel(Model):
    """A scaffold and a decoder that reads ahead; only the adapter is trained, and not through this class."""

    def __init__(
        self, decoder: NarratorDecoder, scaffold: MarkovChain, critic: Critic | None = None,
        tagger: Tagger | None = None,
    ) -> None:  # fmt: skip
        """`tagger` gave the tags of the training stories."""
        super().__init__()
        self._decoder, self.scaffold, self._critic, self.tagger = decoder, scaffold, critic, tagger
        self.partial_states = decoder.tags.states

    @property
    def critic(self) -> Critic | None:
        return self._critic

    @property
    def p_S(self) -> MarkovChain:
        return self.scaffold

    @property
    def decoder(self) -> NarratorDecoder:
        return self._decoder

    @property
    def tokenizer(self) -> SubwordTokenizer:
        return self._decoder.tokenizer

    def log_p_words(self, batch: Batch, Z: Tensor | None = None) -> PerToken:
        """With the tags of the batch, or the token of a free tag where they are free."""
        X, state = batch.X(), self._decoder.start(len(batch.tokens))
        log_p = torch.zeros(batch.tokens.shape, device=batch.tokens.device)
        word = torch.arange(X.shape[2], device=X.device)
        for i in range(X.shape[1]):
            state = self._decoder.begin_sentence(state, batch.S[:, i])
            state, log_p_i = self._decoder.read_tokens(state, X[:, i], batch.lengths[:, i])
            row, place = (word < batch.lengths[:, i, None]).nonzero(as_tuple=True)
            log_p[row, batch.starts[row, i] + place] = log_p_i[row, place]
        return log_p
