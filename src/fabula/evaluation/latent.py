"""Does Z matter? Two measures in nats: Z's use, and look-ahead use."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.evaluation.record import log_mean_exp
from fabula.models.batch import Batch
from fabula.models.chain import chain
from fabula.models.gaussian import Potential
from fabula.models.slds import SLDS


def prior_log_p_X(model: SLDS, batch: Batch, generator: torch.Generator, draws: int = 5) -> Float[Tensor, " batch"]:
    """E log p(X | Z) with Z ~ p(Z | S): the story told by a Z that has only heard the arc."""
    S = torch.where(batch.S >= 0, batch.S, model.evidence(batch).log_q_S.argmax(-1)) if model.K > 1 else batch.S * 0
    silent = torch.zeros(*batch.lengths.shape, model.D, device=batch.S.device)
    phi = Potential(silent, silent)
    Z = draw_given(model, S, phi, batch.present, draws, generator)
    return torch.stack([model.log_p_X(batch, Z[:, m]).sum(-1) for m in range(draws)], 1).mean(1)


def lookahead_use(model: SLDS, batch: Batch, draws: int, generator: torch.Generator) -> Float[Tensor, " sentences"]:
    """log p(X_i | X_:i, Z ~ all other sentences) - log p(X_i | X_:i, Z ~ X_:i), for every inner sentence.

    The other sentences' tags are q(S_j | X_j)'s; S_i itself is never looked up: its K values are weighed exactly,
    by the chain and by the evidence each leaves (the chain's integral).
    """
    evidence = model.evidence(batch)
    S = evidence.log_q_S.argmax(-1)
    N = batch.lengths.shape[1]
    gains = []
    for i in range(1, N - 1):
        inner = batch.lengths[:, i + 1] > 0
        if not bool(inner.any()):
            continue
        later = torch.arange(N, device=S.device) > i
        hidden = torch.arange(N, device=S.device) == i
        with_all = evidence.phi.where((~hidden).expand_as(S))
        with_past = evidence.phi.where((~hidden & ~later).expand_as(S))
        # Where only the past is heard the chain ends at i: later sentences, and their tags, are not there.
        past = batch.present & ~later
        values = []
        for phi, present in ((with_all, batch.present), (with_past, past)):
            tags = draw_tag(model, S, i, phi, present, draws, generator)
            Z = draw_rows(model, tags, phi, present, generator)
            told = torch.stack([model.log_p_X(batch, Z[:, m])[:, i] for m in range(draws)], 1)
            values.append(log_mean_exp(told, 1))
        gains.append((values[0] - values[1])[inner])
    return torch.cat(gains) if gains else evidence.log_q_S.new_zeros(0)


def draw_tag(
    model: SLDS,
    S: Int[Tensor, "batch sent"],
    i: int,
    phi: Potential,
    present: Tensor,
    draws: int,
    generator: torch.Generator,
) -> Int[Tensor, "batch sample sent"]:
    """Copies of S in which S_i ~ p(S_i | the other tags, phi), exactly, by weighing its K values."""
    scores = []
    for k in range(model.K):
        path = S.clone()
        path[:, i] = k
        law = chain(model.dynamics, path, phi, present)
        scores.append(model.scaffold.log_prob(path, present) + law.log_evidence)
    chosen = torch.multinomial(torch.stack(scores, 1).softmax(-1), draws, replacement=True, generator=generator)
    tags = S.unsqueeze(1).repeat(1, draws, 1)
    tags[:, :, i] = chosen
    return tags


def draw_rows(
    model: SLDS, tags: Int[Tensor, "batch sample sent"], phi: Potential, present: Tensor, generator: torch.Generator
) -> Float[Tensor, "batch sample sent latent"]:
    """Z ~ p(Z | S, phi), one for each row of tags."""
    batch, draws, N = tags.shape
    flat = Potential(*(t.repeat_interleave(draws, 0) for t in phi))
    Z = draw_given(model, tags.flatten(0, 1), flat, present.repeat_interleave(draws, 0), 1, generator)
    return Z.view(batch, draws, N, -1)


def draw_given(
    model: SLDS, S: Int[Tensor, "batch sent"], phi: Potential, present: Tensor, draws: int, generator: torch.Generator
) -> Float[Tensor, "batch sample sent latent"]:
    """Z ~ p(Z | S, phi), `draws` for each row."""
    shape = (S.shape[0], draws, S.shape[1], model.D)
    A = model.dynamics.A
    noise = torch.randn(shape, generator=generator, device=A.device, dtype=A.dtype)
    return chain(model.dynamics, S, phi, present).sample(noise)
