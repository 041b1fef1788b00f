"""Factor 3, the conditional language model: p(X_i | Z_i, X_:i), a GRU along the whole story (Section 2.4)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from fabula.corpus.vocabulary import PAD, UNK
from fabula.models.settings import LanguageSettings

LanguageState = tuple[Tensor, ...]
"""The hidden state of every layer: all that is remembered of X_:i and the words of X_i so far."""

LOGITS_AT_ONCE = 1 << 27
"""Scores held at a time when nothing has to be differentiated (half a GiB in single precision)."""

ALIGN = 64
"""Rows of the output layer come in multiples of this: matrix units are several times faster on aligned sizes."""
NEVER = -1e4
"""The bias of the rows that fill up: no word has them, exp(NEVER) is 0 in every precision, and so is its gradient."""


class ConditionalLanguageModel(nn.Module):
    """log p(x_t | Z_i, all words before): a GRU fed [word; z] at every step, its state carried across sentences.

    h_0 = tanh(W z_1). With D = 0 there is no latent and this is the plain language model.
    """

    def __init__(self, settings: LanguageSettings, vocabulary: int, D: int) -> None:
        super().__init__()
        E, H = settings.embedding, settings.hidden
        self.settings, self.D, self.vocabulary = settings, D, vocabulary
        rows = -(-vocabulary // ALIGN) * ALIGN
        self.embedding = nn.Embedding(rows, E)
        nn.init.normal_(self.embedding.weight, std=E**-0.5 if settings.tied else 0.1)
        widths = [E + D] + [H] * (settings.layers - 1)
        self.layers = nn.ModuleList(nn.GRU(width, H, batch_first=True) for width in widths)
        self.start_from_latent = nn.Linear(D, H * settings.layers) if D else None
        width = H + (D if settings.latent_to_output else 0)
        self.project = nn.Linear(width, E) if settings.tied else nn.Identity()
        self.output = nn.Linear(E if settings.tied else width, rows)
        if settings.tied:
            self.output.weight = self.embedding.weight
        nn.init.zeros_(self.output.bias)
        with torch.no_grad():
            self.output.bias[vocabulary:] = NEVER

    def forward(
        self, previous: Int[Tensor, "batch token"], z: Float[Tensor, "batch token latent"] | None
    ) -> Float[Tensor, "batch token features"]:
        """Features from which `log_prob` and `logits` read the next word, for every place of the stories."""
        if self.training and self.settings.word_dropout:
            lost = torch.rand(previous.shape, device=previous.device) < self.settings.word_dropout
            previous = previous.masked_fill(lost, UNK)
        x = self._locked_dropout(self.embedding(previous))
        state = self.start(x.shape[0], None if z is None else z[:, 0])
        for layer, h0 in zip(self.layers, state, strict=True):
            inputs = torch.cat([x, z.to(x.dtype)], -1) if z is not None and layer is self.layers[0] else x
            x, _ = layer(inputs, h0.unsqueeze(0).contiguous())
            x = self._locked_dropout(x)
        return self._features(x, z)

    def log_prob(
        self, features: Float[Tensor, "batch token features"], tokens: Int[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token"]:
        """log p of each token; 0 at `<pad>`."""
        rows = max(1, LOGITS_AT_ONCE // (features.shape[1] * self.output.out_features))
        if torch.is_grad_enabled():
            rows = features.shape[0]
        parts = [
            -F.cross_entropy(self.output(f).flatten(0, 1), t.flatten(), ignore_index=PAD, reduction="none").view_as(t)
            for f, t in zip(torch.split(features, rows), torch.split(tokens, rows), strict=True)
        ]
        return torch.cat(parts)

    def start(self, batch: int, z: Float[Tensor, "batch latent"] | None) -> LanguageState:
        """The state before a story's first word."""
        if self.start_from_latent is None or z is None:
            zero = self.output.bias.new_zeros(batch, self.settings.hidden)
            return (zero,) * self.settings.layers
        return tuple(torch.tanh(self.start_from_latent(z)).chunk(self.settings.layers, dim=-1))

    def read(
        self,
        previous: Int[Tensor, "batch token"],
        z: Float[Tensor, "batch latent"] | None,
        state: LanguageState,
        lengths: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Float[Tensor, "batch token features"], LanguageState]:
        """Run along known words of one sentence; features for every place and the state after the last.

        With `lengths` the rows may be padded at their ends: a row's state is the one after its own last word.
        """
        x = self.embedding(previous)
        if z is not None:
            z = z.unsqueeze(1).expand(-1, x.shape[1], -1).to(x.dtype)
        after = []
        for layer, h in zip(self.layers, state, strict=True):
            inputs = torch.cat([x, z], -1) if z is not None and layer is self.layers[0] else x
            x, last = _gru(inputs, h, layer)
            after.append(last.squeeze(0) if lengths is None else x[torch.arange(len(x), device=x.device), lengths - 1])
        return self._features(x, z), tuple(after)

    def step(
        self, previous: Int[Tensor, " batch"], z: Float[Tensor, "batch latent"] | None, state: LanguageState
    ) -> tuple[Float[Tensor, "batch vocab"], LanguageState]:
        """One word on: the scores of the next word, and the state with `previous` read."""
        x = self.embedding(previous)
        after = []
        for layer, h in zip(self.layers, state, strict=True):
            inputs = torch.cat([x, z.to(x.dtype)], -1) if z is not None and layer is self.layers[0] else x
            x = _gru_cell(inputs, h, layer)
            after.append(x)
        scores = _few_rows(self._features(x, z), self.output.weight, self.output.bias)[:, : self.vocabulary]
        # In the few-rows layout a row's scores lie apart, and whatever reads them row by row would crawl.
        return scores.contiguous() if scores.stride(1) != 1 else scores, tuple(after)

    def _features(self, x: Tensor, z: Tensor | None) -> Tensor:
        if z is not None and self.settings.latent_to_output:
            x = torch.cat([x, z.to(x.dtype)], -1)
        if self.settings.tied:
            x = self._locked_dropout(self.project(x))
        return x

    def _locked_dropout(self, x: Float[Tensor, "batch *token width"]) -> Tensor:
        """One mask per story and unit, the same at every word: what is dropped stays dropped."""
        p = self.settings.dropout
        if not self.training or not p:
            return x
        mask = torch.rand(x.shape[0], 1, x.shape[2], device=x.device) >= p
        return x * mask.to(x.dtype) / (1 - p)


FEW = 32
"""Up to so many rows the host multiplies faster with the weight on the left: twice at ten rows, equal at fifty."""


def _gru(x: Tensor, h: Tensor, gru: nn.Module) -> tuple[Tensor, Tensor]:
    """A GRU layer along known words: its states, and the last as a sequence of one layer."""
    if x.device.type != "cpu" or len(x) > FEW or torch.is_grad_enabled():
        states, last = gru(x, h.unsqueeze(0).contiguous())
        return states, last
    W_x, W_h, b_x, b_h = gru.parameters()
    found = []
    for word in F.linear(x, W_x, b_x).unbind(1):
        h = _gru_gates(word, _few_rows(h, W_h, b_h), h)
        found.append(h)
    return torch.stack(found, 1), h.unsqueeze(0)


def _gru_cell(x: Tensor, h: Tensor, gru: nn.Module) -> Tensor:
    """One step of a GRU layer, in the layout that is fast for this number of rows."""
    W_x, W_h, b_x, b_h = gru.parameters()
    if x.device.type != "cpu" or len(x) > FEW:
        return torch.gru_cell(x, h, W_x, W_h, b_x, b_h)
    return _gru_gates(_few_rows(x, W_x, b_x), _few_rows(h, W_h, b_h), h)


def _gru_gates(from_x: Tensor, from_h: Tensor, h: Tensor) -> Tensor:
    """What a GRU makes of its two projections."""
    r_x, u_x, n_x = from_x.chunk(3, -1)
    r_h, u_h, n_h = from_h.chunk(3, -1)
    new = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    return new + torch.sigmoid(u_x + u_h) * (h - new)


def _few_rows(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """weight x + bias for every row."""
    if x.device.type != "cpu" or len(x) > FEW:
        return F.linear(x, weight, bias)
    return torch.addmm(bias.unsqueeze(1), weight, x.t()).t()
