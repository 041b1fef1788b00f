"""The sequence-to-sequence baseline: the story given its tags, p(X | S) (the paper's S2S).

One tag per sentence goes in; the sentences come out joined, with one `<eos>` at the very end. Its output is cut back
into sentences after each word that ends one (`.`, `!`, `?` and a closing quote that follows).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from fabula.corpus.vocabulary import BOS, EOS, PAD
from fabula.models.batch import Batch
from fabula.models.decoders.gru import ALIGN, NEVER
from fabula.models.protocol import Count, Model, register_model
from fabula.models.settings import ModelSettings
from fabula.shapes import Mask, PerToken, Tags, Tokens


class S2S(Model):
    """Tags read by a GRU, words written by a GRU that attends to them: score(h, e) = h^T W e, bilinear.

    Attention reads the states after the GRU (no input feeding), so that a story is one pass.
    """

    reads_tags = True

    def __init__(self, settings: ModelSettings, vocabulary: int, K: int) -> None:
        super().__init__()
        language = settings.language
        E, H, L = language.embedding, language.hidden, language.layers
        dropout = language.dropout if L > 1 else 0.0
        self.tag_embedding = nn.Embedding(K + 1, E)
        self.encoder = nn.GRU(E, H, L, batch_first=True, dropout=dropout)
        self.embedding = nn.Embedding(vocabulary, E)
        self.writer = nn.GRU(E, H, L, batch_first=True, dropout=dropout)
        self.bilinear = nn.Linear(H, H, bias=False)
        self.combine = nn.Linear(2 * H, H)
        self.output = nn.Linear(H, vocabulary)
        self.dropout = nn.Dropout(language.dropout)

    @property
    def K(self) -> int:
        return self.tag_embedding.num_embeddings - 1

    @property
    def story_decoder(self) -> S2S:
        return self

    def token_count(self, tokens: Count, sentences: Count) -> Count:
        """The inner `<eos>` are no tokens of this model."""
        return tokens - sentences + 1  # type: ignore[operator, no-any-return]

    def first_word_scores(self) -> Float[Tensor, " vocab"]:
        device = self.output.bias.device
        first, present = torch.full((1, 1), BOS, device=device), torch.ones(1, 2, dtype=torch.bool, device=device)
        memory, state = self.encode(torch.full((1, 2), -1, device=device), present)
        return self.write(first, memory, present, state)[0][0, 0, : self.output.out_features]

    def encode(
        self, S: Tags, present: Mask
    ) -> tuple[Float[Tensor, "batch sent hidden"], Float[Tensor, "layers batch hidden"]]:
        """The tags' states, and the state to start writing from: that of the last tag."""
        # An unknown tag has an embedding of its own, after the K known ones.
        states, _ = self.encoder(self.tag_embedding(torch.where(S < 0, self.K, S)))
        last = (present.sum(1) - 1).clamp(min=0)
        start = states[torch.arange(len(last), device=last.device), last]
        return states, start.unsqueeze(0).expand(self.writer.num_layers, -1, -1).contiguous()

    def write(
        self,
        previous: Tokens,
        memory: Float[Tensor, "batch sent hidden"],
        present: Mask,
        state: Float[Tensor, "layers batch hidden"],
    ) -> tuple[Float[Tensor, "batch token vocab"], Tensor]:
        """Scores of the next word at every place, and the state after the last. On a card rows of no word follow."""
        states, state = self.writer(self.dropout(self.embedding(previous)), state)
        scores = self.bilinear(states) @ memory.transpose(1, 2)
        weights = scores.masked_fill(~present.unsqueeze(1), float("-inf")).softmax(-1)
        context = weights @ memory
        features = torch.tanh(self.combine(torch.cat([states, context], -1)))
        weight: Tensor = self.output.weight
        bias: Tensor = self.output.bias
        if features.device.type == "cuda":  # aligned rows, as in the GRU decoder
            extra = -len(bias) % ALIGN
            weight, bias = F.pad(weight, (0, 0, 0, extra)), F.pad(bias, (0, extra), value=NEVER)
        return F.linear(self.dropout(features), weight, bias), state

    def log_p_words(self, batch: Batch, Z: Tensor | None = None) -> PerToken:
        """log p(X | S) by tokens; the inner `<eos>` are neither read nor paid for, and their figure is 0."""
        tokens, order = join(batch)
        previous = torch.cat([torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]], 1)
        memory, state = self.encode(batch.S, batch.present)
        logits, _ = self.write(previous, memory, batch.present, state)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), ignore_index=PAD, reduction="none")
        return -torch.zeros_like(loss).view_as(tokens).scatter(1, order, loss.view_as(tokens))


def join(batch: Batch) -> tuple[Tokens, Tokens]:
    """The stories with one `<eos>` at the end, and the place in `batch.tokens` that each token comes from."""
    position = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    last = batch.lengths.sum(1, keepdim=True) - 1
    keep = (batch.tokens != PAD) & ((batch.tokens != EOS) | (position == last))
    order = torch.argsort((~keep).to(torch.int8), dim=1, stable=True)
    return batch.tokens.masked_fill(~keep, PAD).gather(1, order), order


register_model("s2s")(lambda settings, vocabulary, p_initial, p_next: S2S(settings, vocabulary, len(p_initial)))
