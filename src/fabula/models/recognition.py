"""The recognition network: q(S_i | X) and the evidence potential phi_i of q(Z_i | Z_{i-1}, S_i, X) (Section 3).

q(Z_i | Z_{i-1}, S_i, X) ∝ p(Z_i | Z_{i-1}, S_i) phi_i(Z_i): the dynamics times a Gaussian potential of the sentence.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from fabula.corpus.vocabulary import PAD
from fabula.models.batch import Batch
from fabula.models.settings import RecognitionSettings
from fabula.shapes import PerState
from fabula.statespace.gaussian import Potential

VALENCES = 4
"""Numbers each word weighs; their sums over a sentence are what q(S_i | X) reads."""
TAG_WIDTH = 64
"""Hidden units between those sums, or the sentence's features, and the tag."""


class Evidence(NamedTuple):
    """What the sentences say about the latents."""

    phi: Potential
    log_q_S: PerState

    def rows(self, at: Tensor) -> Evidence:
        """The evidence of the stories at these rows."""
        return Evidence(self.phi.rows(at), self.log_q_S[at])

    def tempered(self, precision: float) -> Evidence:
        """The same with every phi_i's precision multiplied: below 1 the sentences are less sure of Z."""
        return self._replace(phi=self.phi._replace(precision=precision * self.phi.precision))

    def where(self, known: Tensor) -> Evidence:
        """The same with no evidence from sentences that are not known."""
        K = self.log_q_S.shape[-1]
        flat = torch.full_like(self.log_q_S, 1.0 / K).log()
        return Evidence(self.phi.where(known), torch.where(known.unsqueeze(-1), self.log_q_S, flat))


def full(x: Tensor) -> Tensor:
    """Out of half precision, where densities and probabilities begin."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class SentenceEncoder(nn.Module):
    """Each sentence read on its own, in both directions; the largest value of each unit over its words."""

    def __init__(self, embedding: int, settings: RecognitionSettings) -> None:
        super().__init__()
        self.rightward = nn.GRU(embedding, settings.hidden, batch_first=True)
        self.leftward = nn.GRU(embedding, settings.hidden, batch_first=True)
        self.width = 2 * settings.hidden

    def forward(self, x: Float[Tensor, "batch token width"], batch: Batch) -> Float[Tensor, "batch sent features"]:
        n, N = batch.lengths.shape
        lengths = batch.lengths.reshape(n * N, 1)
        word = torch.arange(batch.words, device=x.device)
        inside = (word < lengths).unsqueeze(-1)
        place = (batch.starts.unsqueeze(-1) + word).clamp(max=x.shape[1] - 1).flatten(1)
        words = x.gather(1, place.unsqueeze(-1).expand(-1, -1, x.shape[-1])).view(n * N, batch.words, -1)
        # Leftward runs over the reversed words, so that in both directions the padding is read last and says nothing.
        turn = (lengths - 1 - word).clamp(min=0).unsqueeze(-1)
        rightward, _ = self.rightward(words)
        leftward, _ = self.leftward(words.gather(1, turn.expand_as(words)))
        pooled = [states.masked_fill(~inside, -1.0).amax(1) for states in (rightward, leftward)]
        features: Tensor = torch.cat(pooled, -1) * (lengths > 0)
        return features.view(n, N, -1)


class StoryEncoder(nn.Module):
    """One GRU along the whole story, its state carried from sentence to sentence, read at each `<eos>` (the paper)."""

    def __init__(self, embedding: int, settings: RecognitionSettings) -> None:
        super().__init__()
        self.gru = nn.GRU(embedding, settings.hidden, batch_first=True)
        self.width = settings.hidden

    def forward(self, x: Float[Tensor, "batch token width"], batch: Batch) -> Float[Tensor, "batch sent features"]:
        states, _ = self.gru(x)
        ends = (batch.starts + batch.lengths - 1).clamp(min=0).unsqueeze(-1).expand(-1, -1, self.width)
        read: Tensor = states.gather(1, ends) * batch.present.unsqueeze(-1)
        return read


class Valence(nn.Module):
    """What each word weighs towards a tag: a free weight of its own and one read off its embedding."""

    def __init__(self, vocabulary: int, embedding: int) -> None:
        super().__init__()
        self.free = nn.Embedding(vocabulary, VALENCES)
        nn.init.zeros_(self.free.weight)
        self.shared = nn.Linear(embedding, VALENCES)

    def forward(
        self, embedded: Float[Tensor, "batch token width"], batch: Batch
    ) -> Float[Tensor, "batch sent valence"]:
        """Sums over the words of each sentence: sentiment adds up, and a pooled maximum cannot add."""
        weights: Tensor = self.free(batch.tokens)
        weights = weights + self.shared(embedded.to(weights.dtype))
        weights = weights * (batch.tokens != PAD).unsqueeze(-1)
        index = batch.sentence.unsqueeze(-1).expand_as(weights)
        return weights.new_zeros(*batch.lengths.shape, VALENCES).scatter_add(1, index, weights)


class Recognition(nn.Module):
    """Sentences to evidence: features of each sentence, then phi_i and q(S_i | X)."""

    def __init__(self, settings: RecognitionSettings, embedding: nn.Embedding, D: int, K: int) -> None:
        super().__init__()
        self.embedding = embedding
        vocabulary, width = embedding.weight.shape
        self.encoder: SentenceEncoder | StoryEncoder = (
            SentenceEncoder(width, settings) if settings.encoder == "sentence" else StoryEncoder(width, settings)
        )
        self.dropout = nn.Dropout(settings.dropout)
        self.phi_mean = nn.Linear(self.encoder.width, D)
        self.phi_log_precision = nn.Linear(self.encoder.width, D)
        self.valence = Valence(vocabulary, width)
        self.tag_of_words = nn.Sequential(nn.Linear(VALENCES, TAG_WIDTH), nn.Tanh(), nn.Linear(TAG_WIDTH, K))
        self.tag_of_sentence = nn.Sequential(
            nn.Linear(self.encoder.width, TAG_WIDTH), nn.Tanh(), nn.Linear(TAG_WIDTH, K)
        )

    def forward(self, batch: Batch) -> Evidence:
        """phi_i and log q(S_i | X) of every sentence."""
        embedded = self.dropout(self.embedding(batch.tokens))
        features = self.dropout(self.encoder(embedded, batch))
        # Softly bounded, so that no sentence can be infinitely sure: exp(-9) to exp(9).
        log_precision = 9 * torch.tanh(full(self.phi_log_precision(features)) / 9)
        phi = Potential(full(self.phi_mean(features)), log_precision.exp())
        # The scores of the words' sums and of the whole sentence, added.
        with torch.autocast(embedded.device.type, enabled=False):
            scores = self.tag_of_words(self.valence(embedded, batch))
        scores = scores + self.tag_of_sentence(features)
        return Evidence(phi.where(batch.present), F.log_softmax(full(scores), -1))
