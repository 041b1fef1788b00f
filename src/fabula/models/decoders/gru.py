"""Factor 3 as in the paper: p(X_i | Z_i, X_:i), a GRU over words along the whole story (Section 2.4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from fabula.corpus.vocabulary import BOS, EOS, PAD
from fabula.models.decoders.protocol import Given
from fabula.models.settings import LanguageSettings
from fabula.shapes import Flags, Integers, Latent, PerStory, PerToken, Rows, Scores, Tokens, Words

Hidden = tuple[Tensor, ...]
"""The hidden state of every layer: all that is remembered of X_:i and the words of X_i so far."""

LOGITS_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Scores held at a time when nothing has to be differentiated: on a CPU what its cache holds, elsewhere half a GiB."""

ALIGN = 64
"""Rows of the output layer come in multiples of this: matrix units are several times faster on aligned sizes."""
NEVER = -1e4
"""The bias of the rows that fill up: no word has them, exp(NEVER) is 0 in every precision, and so is its gradient."""


class GRUState(NamedTuple):
    """The hidden states with every word read but the last, and that last word."""

    hidden: Hidden
    previous: Integers

    def then(self, tokens: Integers) -> GRUState:
        return self._replace(previous=tokens)

    def select(self, rows: Rows) -> GRUState:
        return GRUState(tuple(h[rows] for h in self.hidden), self.previous[rows])

    def put(self, rows: Rows, other: GRUState) -> GRUState:
        pairs = zip(self.hidden, other.hidden, strict=True)
        hidden = tuple(h.index_copy(0, rows, new) for h, new in pairs)
        return GRUState(hidden, self.previous.index_copy(0, rows, other.previous))

    def join(self, other: GRUState) -> GRUState:
        hidden = tuple(torch.cat(pair) for pair in zip(self.hidden, other.hidden, strict=True))
        return GRUState(hidden, torch.cat([self.previous, other.previous]))


class GRUDecoder(nn.Module):
    """log p(x_t | Z_i, all words before): a GRU fed [word; z] at every step, its state carried across sentences.

    h_0 = tanh(W z_1). With D = 0 there is no latent and this is the plain language model. The state of sentence i has
    read Z_1 ... Z_{i-1} with the words before, so the factor is p(X_i | Z_<=i, X_:i). S_i acts through Z_i
    alone.
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
        self, previous: Tokens, z: Float[Tensor, "batch token latent"] | None
    ) -> Float[Tensor, "batch token features"]:
        """Features from which `log_prob` and `logits` read the next word, for every place of the stories."""
        x = self._locked_dropout(self.embedding(previous))
        state = self._start(x.shape[0], None if z is None else z[:, 0])
        for layer, h0 in zip(self.layers, state, strict=True):
            inputs = torch.cat([x, z.to(x.dtype)], -1) if z is not None and layer is self.layers[0] else x
            x, _ = layer(inputs, h0.unsqueeze(0).contiguous())
            x = self._locked_dropout(x)
        return self._features(x, z)

    def log_prob(self, features: Float[Tensor, "batch token features"], tokens: Tokens) -> PerToken:
        """log p of each token; 0 at `<pad>`."""
        parts, rows = [], len(features)
        if not torch.is_grad_enabled():
            at_once = LOGITS_AT_ONCE.get(features.device.type, 1 << 27)
            rows = max(1, at_once // (features.shape[1] * self.output.out_features))
        for f, t in zip(torch.split(features, rows), torch.split(tokens, rows), strict=True):
            scores = _product(f, self.output.weight, self.output.bias)
            log_p = -F.cross_entropy(scores.flatten(0, 1), t.flatten(), ignore_index=PAD, reduction="none")
            parts.append(log_p.view_as(t))
        return torch.cat(parts)

    def start(self, rows: int, z: Latent | None = None, given: Given | None = None) -> GRUState:
        """Before a story's first word; this decoder does not read ahead, and `given` is not for it."""
        return GRUState(self._start(rows, z), torch.full((rows,), BOS, device=self.output.bias.device))

    def reads_until(self, i: int) -> int:
        return i

    def without_history(self, state: GRUState) -> GRUState:
        hidden = tuple(torch.zeros_like(h) for h in state.hidden)
        return state._replace(hidden=hidden, previous=torch.full_like(state.previous, EOS))

    def begin_sentence(self, state: GRUState, s: Integers | None) -> GRUState:
        return state

    def read(self, state: GRUState, tokens: Words, lengths: Integers, z: Latent | None) -> tuple[GRUState, PerStory]:
        """Over a known sentence, in one pass along its words."""
        after, features, words, row = self._along(state, tokens, lengths, z)
        log_p = self.log_prob(features.unsqueeze(1), words.unsqueeze(1)).squeeze(1)
        return after, log_p.new_zeros(len(tokens)).index_add(0, row, log_p)

    def _along(
        self, state: GRUState, tokens: Words, lengths: Integers, z: Latent | None
    ) -> tuple[GRUState, Float[Tensor, "place features"], Int[Tensor, " place"], Int[Tensor, " place"]]:
        """Over known sentences: the state after them, and of every word that is there features, itself and its row."""
        tokens = tokens[:, : max(1, int(lengths.max()))]
        if tokens.device.type == "cpu" and len(tokens) > FEW and not torch.is_grad_enabled():
            return self._along_many(state, tokens, lengths, z)
        some, last, hidden = lengths > 0, (lengths - 1).clamp(min=0), []
        x = self.embedding(torch.cat([state.previous[:, None], tokens[:, :-1]], 1))
        z = None if z is None else z.unsqueeze(1).expand(-1, x.shape[1], -1)
        for layer, h in zip(self.layers, state.hidden, strict=True):
            x = _gru(torch.cat([x, z], -1) if z is not None and layer is self.layers[0] else x, h, layer)
            after = x[torch.arange(len(x), device=x.device), last]
            hidden.append(torch.where(some[:, None], after, h))
        features = self._features(x, z)
        # Only at the words that are there: the scores of the whole vocabulary are the expensive part.
        there = (tokens != PAD).nonzero(as_tuple=True)
        moved = state._replace(hidden=tuple(hidden), previous=torch.where(some, EOS, state.previous))
        return moved, features[there], tokens[there], there[0]

    def _along_many(
        self, state: GRUState, tokens: Words, lengths: Integers, z: Latent | None
    ) -> tuple[GRUState, Float[Tensor, "place features"], Int[Tensor, " place"], Int[Tensor, " place"]]:
        """`_along` for many rows on a CPU: only words that are there are computed, and equal words share a product."""
        order = lengths.argsort(descending=True)
        sizes = [n for n in (lengths > torch.arange(tokens.shape[1])[:, None]).sum(1).tolist() if n]
        if not sizes:
            return state, self.output.weight.new_zeros(0, self.output.in_features), order[:0], order[:0]
        targets = torch.cat([tokens[order[:n], t] for t, n in enumerate(sizes)])
        previous = torch.cat([state.previous[:, None], tokens[:, :-1]], 1)
        types, of_type = torch.cat([previous[order[:n], t] for t, n in enumerate(sizes)]).unique(return_inverse=True)
        z = None if z is None else z[order]
        x, after = self.embedding(types), []
        for layer, h in zip(self.layers, state.hidden, strict=True):
            W_x, W_h, b_x, b_h = layer.parameters()
            first = layer is self.layers[0]
            from_x = F.linear(x, W_x[:, : x.shape[1]], b_x) if first else _product(x, W_x, b_x)
            from_z = F.linear(z, W_x[:, x.shape[1] :]) if first and z is not None else None
            h, states = h[order], []
            for part, n in zip((of_type if first else from_x).split(sizes), sizes, strict=True):
                inputs = from_x[part] if first else part
                inputs = inputs if from_z is None else inputs.add_(from_z[:n])
                h[:n] = _gru_gates(inputs, _product(h[:n], W_h, b_h), h[:n])
                states.append(h[:n].clone())
            x = torch.cat(states)
            after.append(torch.empty_like(h).index_copy_(0, order, h))
        features = self._features(x, None if z is None else torch.cat([z[:n] for n in sizes]))
        row = torch.cat([order[:n] for n in sizes])
        then = state._replace(hidden=tuple(after), previous=torch.where(lengths > 0, EOS, state.previous))
        return then, features, targets, row

    def step(self, state: GRUState, z: Latent | None, done: Flags) -> tuple[Scores, GRUState]:
        """One word on: the scores of the next word, and the state with `previous` read."""
        x, after = self.embedding(state.previous), []
        for layer, h in zip(self.layers, state.hidden, strict=True):
            x = _gru_cell(torch.cat([x, z], -1) if z is not None and layer is self.layers[0] else x, h, layer)
            after.append(x)
        scores = _product(self._features(x, z), self.output.weight, self.output.bias)[:, : self.vocabulary]
        hidden = tuple(torch.where(done[:, None], h, new) for h, new in zip(state.hidden, after, strict=True))
        # In the few-rows layout a row's scores lie apart, and whatever reads them row by row would crawl.
        scores = scores.contiguous() if scores.stride(1) != 1 else scores
        return scores, state._replace(hidden=hidden)

    def _start(self, batch: int, z: Latent | None) -> Hidden:
        if self.start_from_latent is None or z is None:
            zero = self.output.bias.new_zeros(batch, self.settings.hidden)
            return (zero,) * self.settings.layers
        return tuple(torch.tanh(self.start_from_latent(z)).chunk(self.settings.layers, dim=-1))

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


def _gru(x: Tensor, h: Tensor, gru: nn.Module) -> Tensor:
    """A GRU layer's states along known words."""
    if x.device.type != "cpu" or torch.is_grad_enabled():
        states: Tensor = gru(x, h.unsqueeze(0).contiguous())[0]
        return states
    W_x, W_h, b_x, b_h = gru.parameters()
    along = []
    for word in F.linear(x, W_x, b_x).unbind(1):
        h = _gru_gates(word, _product(h, W_h, b_h), h)
        along.append(h)
    return torch.stack(along, 1)


def _gru_cell(x: Tensor, h: Tensor, gru: nn.Module) -> Tensor:
    """One step of a GRU layer, in the layout that is fast for this number of rows."""
    W_x, W_h, b_x, b_h = gru.parameters()
    if x.device.type != "cpu" or (torch.is_grad_enabled() and len(x) > FEW):
        return torch.gru_cell(x, h, W_x, W_h, b_x, b_h)
    return _gru_gates(_product(x, W_x, b_x), _product(h, W_h, b_h), h)


def _gru_gates(from_x: Tensor, from_h: Tensor, h: Tensor) -> Tensor:
    """What a GRU makes of its two projections."""
    r_x, u_x, n_x = from_x.chunk(3, -1)
    r_h, u_h, n_h = from_h.chunk(3, -1)
    new = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
    return new + torch.sigmoid(u_x + u_h) * (h - new)


def _product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """weight x + bias for every row, in the layout that is fast for this number of rows."""
    if x.device.type == "cpu" and len(x) <= FEW and x.dim() == 2:
        return torch.addmm(bias.unsqueeze(1), weight, x.t()).t()
    return F.linear(x, weight, bias)
