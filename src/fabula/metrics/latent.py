"""Does Z matter? Two measures in nats: Z's use, and look-ahead use."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.metrics.record import log_mean_exp
from fabula.models.batch import Batch
from fabula.models.chain import chain
from fabula.models.gaussian import Potential
from fabula.models.slds import SLDS


def prior_log_p_X(model: SLDS, batch: Batch, generator: torch.Generator, draws: int = 5) -> Float[Tensor, " batch"]:
    """E log p(X | Z) with Z ~ p(Z | S): the story told by a Z that knows only the arc."""
    S = torch.where(batch.S >= 0, batch.S, model.evidence(batch).log_q_S.argmax(-1)) if model.K > 1 else batch.S * 0
    silent = torch.zeros(*batch.lengths.shape, model.D, device=batch.S.device)
    phi = Potential(silent, silent)
    Z = draw_given(model, S, phi, batch.present, draws, generator)
    return torch.stack([model.log_p_X(batch, Z[:, m], S).sum(-1) for m in range(draws)], 1).mean(1)


def lookahead_use(model: SLDS, batch: Batch, draws: int, generator: torch.Generator) -> Float[Tensor, " sentences"]:
    """log p(X_i | X_:i, Z ~ all other sentences) - log p(X_i | X_:i, Z ~ X_:i), for every inner sentence.

    The other sentences' tags are q(S_j | X_j)'s; S_i itself is never looked up but summed out: each of its K values has
    `draws` draws of Z, weighed by the evidence it leaves (the chain's integral). Both sides use the same noise, so that
    their difference says what the later sentences say, not what two draws differ by.
    """
    evidence = model.evidence(batch)
    S = evidence.log_q_S.argmax(-1)
    N, A = batch.lengths.shape[1], model.dynamics.A
    shape = (len(S), draws, N, model.D)
    gains = []
    for i in range(1, N - 1):
        inner = batch.lengths[:, i + 1] > 0
        if not bool(inner.any()):
            continue
        noise = torch.randn(shape, generator=generator, device=A.device, dtype=A.dtype)
        place = torch.arange(N, device=S.device)
        with_all = log_p_told(model, batch, S, i, evidence.phi.where((place != i).expand_as(S)), batch.present, noise)
        # Where only the past is observed the chain ends at i: later sentences, and their tags, are not there.
        past = batch.present & (place <= i)
        with_past = log_p_told(model, batch, S, i, evidence.phi.where((place < i).expand_as(S)), past, noise)
        gains.append((with_all - with_past)[inner])
    return torch.cat(gains) if gains else evidence.log_q_S.new_zeros(0)


def log_p_told(
    model: SLDS,
    batch: Batch,
    S: Int[Tensor, "batch sent"],
    i: int,
    phi: Potential,
    present: Bool[Tensor, "batch sent"],
    noise: Float[Tensor, "batch sample sent latent"],
) -> Float[Tensor, " batch"]:
    """log of the mean over Z ~ p(Z | other tags, phi) of p(X_i | X_:i, Z_i), S_i summed out exactly."""
    weights, told = [], []
    for k in range(model.K):
        path = S.clone()
        path[:, i] = k
        law = chain(model.dynamics, path, phi, present)
        weights.append(model.scaffold.log_prob(path, present) + law.log_evidence)
        Z = law.sample(noise)
        each = [model.log_p_sentence(batch, Z[:, m], i, k) for m in range(noise.shape[1])]
        told.append(log_mean_exp(torch.stack(each, 1), 1))
    return torch.logsumexp(torch.stack(weights, 1).log_softmax(1) + torch.stack(told, 1), 1)


def draw_given(
    model: SLDS, S: Int[Tensor, "batch sent"], phi: Potential, present: Tensor, draws: int, generator: torch.Generator
) -> Float[Tensor, "batch sample sent latent"]:
    """Z ~ p(Z | S, phi), `draws` for each row."""
    shape = (S.shape[0], draws, S.shape[1], model.D)
    A = model.dynamics.A
    noise = torch.randn(shape, generator=generator, device=A.device, dtype=A.dtype)
    return chain(model.dynamics, S, phi, present).sample(noise)
