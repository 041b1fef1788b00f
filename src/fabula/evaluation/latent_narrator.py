"""What Z does for a narrator with a soft prompt: the bound on log p(X), and middles written with and without the end.

`evaluation/latent.py` has look-ahead use, which is the same for every model with Z.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from fabula.evaluation.record import log_mean_exp
from fabula.models.chain import chain
from fabula.models.decoders.rows import BOS, END, FREE, SPECIALS
from fabula.models.latent_narrator import LatentNarrator, Told


class Bound(NamedTuple):
    """Importance weights of draws from q(Z | X), as in `evaluation/bound.py`."""

    log_p_X: Float[Tensor, "batch sample"]
    kl_Z: Float[Tensor, "batch sample"]
    """log q(Z | X) - log p(Z), S summed out."""

    @property
    def log_p(self) -> Float[Tensor, " batch"]:
        """The importance-weighted lower bound on log p(X)."""
        return log_mean_exp(self.log_p_X - self.kl_Z, 1)


@torch.no_grad()
def bound(model: LatentNarrator, told: Told, samples: int, generator: torch.Generator, precision: float = 1.0) -> Bound:
    """The weights p(X | Z) [sum_S p(S) p(Z | S)] / q(Z | X); with moods free, p(X | Z) does not depend on S.

    `precision` multiplies that of every phi_i in q, which any q may.
    """
    phi = model.evidence(told).tempered(precision).phi
    law = chain(model.dynamics, model.states(told.S), phi, told.present)
    noise = normal(model, told, samples, generator)
    Z = law.sample(noise)
    log_p_Z = torch.stack([model.log_p_Z(Z[:, m], told.present) for m in range(samples)], 1)
    log_p_X = torch.stack([model.log_p_sentences(told, Z[:, m]).sum(-1) for m in range(samples)], 1)
    return Bound(log_p_X.double(), (law.log_density(noise) - log_p_Z).double())


def normal(model: LatentNarrator, told: Told, samples: int, generator: torch.Generator) -> Tensor:
    shape = (len(told.S), samples, told.S.shape[1], model.D)
    return torch.randn(shape, generator=generator, device=told.S.device)


@torch.no_grad()
def draw_hearing(
    model: LatentNarrator, told: Told, given: Bool[Tensor, " sent"], generator: torch.Generator
) -> Float[Tensor, "batch sent latent"]:
    """One draw of (S, Z) given only the sentences `given`, exactly: every path of the other sentences' states is
    weighed. Behind the last given sentence and the last but one, nothing is there."""
    N = told.S.shape[1]
    last = max(int(given.nonzero().max()), N - 2)
    present = told.present & (torch.arange(N, device=given.device) <= last)
    phi = model.evidence(told).phi.where(given.expand_as(told.present))
    states = model.states(told.S)
    missing = [i for i in range(last + 1) if not bool(given[i])]
    paths, weights = [], []
    for choice in itertools.product(range(model.K), repeat=len(missing)):
        path = states.clone()
        for i, k in zip(missing, choice, strict=True):
            path[:, i] = k
        paths.append(path)
        weights.append(model.scaffold.log_prob(path, present) + chain(model.dynamics, path, phi, present).log_evidence)
    chosen = torch.multinomial(torch.stack(weights, 1).softmax(1), 1, generator=generator).squeeze(1)
    path = torch.stack(paths, 1)[torch.arange(len(chosen), device=chosen.device), chosen]
    Z: Tensor = chain(model.dynamics, path, phi, present).sample(normal(model, told, 1, generator))
    return Z[:, 0]


@torch.no_grad()
def write_middle(
    model: LatentNarrator, told: Told, Z: Float[Tensor, "batch sent latent"], generator: torch.Generator,
    tokens: int = 32,
) -> list[list[list[int]]]:  # fmt: skip
    """All sentences between the first and the last, one after the other, at temperature 1; no ending is read.

    The whole row is read again for every token: rows are short, and training's network needs no cache.
    """
    rows, N = told.S.shape
    length = told.lengths[:, 0] + 2  # <bos>, a mood, the first sentence and its end
    room = int(length.max()) + (N - 2) * (tokens + 2)
    ids = F.pad(told.ids, (0, max(0, room - told.ids.shape[1])))[:, :room].clone()
    place = torch.arange(room, device=ids.device)
    ids[place >= length[:, None]] = BOS
    sentence = torch.where((place > 0) & (place < length[:, None]), 0, -1)
    row = torch.arange(rows, device=ids.device)
    barred = [t for t in range(SPECIALS) if t != END]

    def append(token: Int[Tensor, " batch"], i: int, on: Bool[Tensor, " batch"]) -> None:
        ids[row[on], length[on]] = token[on]
        sentence[row[on], length[on]] = i
        length.add_(on)

    for i in range(1, N - 1):
        on = torch.ones(rows, dtype=torch.bool, device=ids.device)
        append(torch.full_like(length, FREE), i, on)
        for written in range(tokens + 1):
            stop = -(-int(length.max()) // 8) * 8
            features = model.read(ids[:, :stop], sentence[:, :stop], Z)[row, length - 1]
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=model.bf16):
                scores = model.network.logits(features).float()
            scores[:, [*barred, END] if written == 0 else barred] = float("-inf")
            token = torch.multinomial(scores.softmax(-1), 1, generator=generator).squeeze(1)
            token = torch.full_like(token, END) if written == tokens else token
            append(token, i, on)
            on = on & (token != END)
            if not bool(on.any()):
                break
    return [_middle(i, s, N) for i, s in zip(ids.tolist(), sentence.tolist(), strict=True)]


def _middle(ids: list[int], sentence: list[int], N: int) -> list[list[int]]:
    """The words of the sentences between the first and the last."""
    return [[t for t, s in zip(ids, sentence, strict=True) if s == i and t >= SPECIALS] for i in range(1, N - 1)]
