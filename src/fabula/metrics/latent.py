"""Does Z matter? Two measures in nats: the use of Z, and look-ahead use."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.metrics.record import log_mean_exp
from fabula.models.batch import Batch
from fabula.models.slds import SLDS
from fabula.statespace.chain import chain
from fabula.statespace.gaussian import Potential


def prior_log_p_X(model: SLDS, batch: Batch, generator: torch.Generator, draws: int = 5) -> Float[Tensor, " batch"]:
    """E log p(X | Z) with Z ~ p(Z | S): X under a Z that depends on the arc alone."""
    S = torch.where(batch.S >= 0, batch.S, model.evidence(batch).log_q_S.argmax(-1)) if model.K > 1 else batch.S * 0
    Z = draw_given(model, S, batch.present, draws, generator)
    return torch.stack([model.log_p_X(batch, Z[:, m]).sum(-1) for m in range(draws)], 1).mean(1)


def lookahead_use(model: SLDS, batch: Batch, draws: int, generator: torch.Generator) -> Float[Tensor, " sentences"]:
    """log p(X_i | X_:i, Z ~ all other sentences) - log p(X_i | X_:i, Z ~ X_:i), for every inner sentence.

    The other sentences' tags are those of q(S_j | X_j); S_i itself is summed out: each of its K values has `draws`
    draws of Z, weighed by the evidence of the chain. Both sides use the same noise, so that their difference says what
    the later sentences say, not what two draws differ by.
    """
    evidence = model.evidence(batch)
    S = evidence.log_q_S.argmax(-1)
    N, A = batch.lengths.shape[1], model.dynamics.A
    place = torch.arange(N, device=S.device)
    gains = []
    for i in range(1, N - 1):
        inner = batch.lengths[:, i + 1] > 0
        if not bool(inner.any()):
            continue
        noise = torch.randn((len(S), draws, N, model.D), generator=generator, device=A.device, dtype=A.dtype)
        others = evidence.phi.where((place != i).expand_as(S))
        with_all = _log_p_sentence(model, batch, S, i, others, batch.present, noise)
        # Where only the past is observed the chain ends at i: later sentences, and their tags, are not there.
        past, until_i = evidence.phi.where((place < i).expand_as(S)), batch.present & (place <= i)
        with_past = _log_p_sentence(model, batch, S, i, past, until_i, noise)
        gains.append((with_all - with_past)[inner])
    return torch.cat(gains) if gains else evidence.log_q_S.new_zeros(0)


def _log_p_sentence(
    model: SLDS,
    batch: Batch,
    S: Int[Tensor, "batch sent"],
    i: int,
    phi: Potential,
    present: Bool[Tensor, "batch sent"],
    noise: Float[Tensor, "batch sample sent latent"],
) -> Float[Tensor, " batch"]:
    """log of the mean over Z ~ p(Z | other tags, phi) of p(X_i | X_:i, Z_i), S_i summed out exactly."""
    weights, log_p = [], []
    for k in range(model.K):
        path = S.clone()
        path[:, i] = k
        posterior = chain(model.dynamics, path, phi, present)
        weights.append(model.scaffold.log_prob(path, present) + posterior.log_evidence)
        Z = posterior.sample(noise)
        each = [model.log_p_sentence(batch, Z[:, m], i) for m in range(noise.shape[1])]
        log_p.append(log_mean_exp(torch.stack(each, 1), 1))
    return torch.logsumexp(torch.stack(weights, 1).log_softmax(1) + torch.stack(log_p, 1), 1)


def draw_given(
    model: SLDS, S: Int[Tensor, "batch sent"], present: Tensor, draws: int, generator: torch.Generator
) -> Float[Tensor, "batch sample sent latent"]:
    """Z ~ p(Z | S), `draws` for each row."""
    A = model.dynamics.A
    noise = torch.randn((S.shape[0], draws, S.shape[1], model.D), generator=generator, device=A.device, dtype=A.dtype)
    no_evidence = torch.zeros_like(noise[:, 0])
    return chain(model.dynamics, S, Potential(no_evidence, no_evidence), present).sample(noise)
