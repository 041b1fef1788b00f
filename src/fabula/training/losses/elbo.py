"""What training maximises (Section 3), each term under its name.

Paper:      M = E_q[ sum_i log p(X_i | Z_i, X_:i) - KL(q(Z_i) || p(Z_i | Z_{i-1}, S_i)) ]
            unlabelled:  L   = E_q(S)[ M - sum_i KL(q(S_i) || p(S_i | S_{i-1})) ],  S by Gumbel-Softmax
            labelled:    L_S = M + sum_i log p(S_i | S_{i-1}) + alpha sum_i log q(S_i)
            (the paper prints the last term without its log, and leaves out log p(S), which is constant in training)

Collapsed:  q(Z | X) without S, and S summed out by one forward recursion:
            E_q(Z|X)[ sum_i log p(X_i | Z_i, X_:i) + log sum_S prod_i p(S_i|S_{i-1}) p(Z_i|Z_{i-1},S_i) - log q(Z|X) ]
            Known tags clamp the sum, so one formula serves labelled, partly labelled and unlabelled stories.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from fabula.corpus.states import UNKNOWN
from fabula.models.batch import Batch
from fabula.models.protocol import Model, Terms
from fabula.models.recognition import Evidence
from fabula.models.slds import SLDS
from fabula.training.recipe import ObjectiveSettings


def terms(
    model: Model,
    batch: Batch,
    settings: ObjectiveSettings,
    *,
    generator: torch.Generator | None = None,
    half: bool = False,
    posterior: str | None = None,
) -> Terms:
    """The objective's terms for a batch.

    `posterior` is the q(Z | X) of a bound that is only measured (`Checkpoint.posterior`), else that of the settings.
    `half` runs the networks in bfloat16; densities of Z are always computed in the parameters' own precision.
    """
    networks = torch.autocast(batch.tokens.device.type, dtype=torch.bfloat16, enabled=half)
    if model.latent is None:
        with networks:
            log_p_X = model.log_p_X(batch).sum(-1)
        zero = torch.zeros_like(log_p_X)
        return Terms(log_p_X, zero, zero, zero, zero)
    model = model.latent
    with networks:
        evidence = model.evidence(batch)
    S, present = model.tags(batch), batch.present
    seen = S if settings.clamp_tags or settings.kind == "paper" else torch.full_like(S, -1)
    labelled = ((seen >= 0) | ~present).all(1)
    observed = present
    if model.training and settings.evidence_dropout:
        observed = present & (torch.rand(present.shape, device=present.device) >= settings.evidence_dropout)
    if settings.kind == "paper":
        s = gumbel_softmax(evidence.log_q_S, settings.temperature, settings.gumbel == "hard", generator)
        s = torch.where(labelled[:, None, None], model.one_hot(seen), s)
    else:
        # Mixing the dynamics by q(S_i | X): any weights make a proper q(Z | X), good ones make a good one. Where there
        # are labels, q(S | X) is taught by them alone: the bound must not bend it to its own ends.
        weights = evidence.log_q_S.exp()
        weights = weights.detach() if settings.labelled else weights
        s = torch.where((seen >= 0).unsqueeze(-1), model.one_hot(seen), weights)
        if posterior == "switching":
            s = gumbel_softmax(evidence.log_q_S, 1.0, True, generator).detach().round()
    noise = model.noise_for(batch, generator)
    evidence = evidence._replace(phi=evidence.phi.where(observed))
    draw = model.draw(evidence, s, present, noise, posterior or settings.posterior)
    with networks:
        log_p_X = model.log_p_X(batch, draw.Z).sum(-1)
    zero = torch.zeros_like(draw.kl)
    if settings.kind == "paper":
        kl_S = kl_of_tags(model, evidence, s, batch).masked_fill(labelled, 0.0)
        log_p_S = model.scaffold.log_prob(S, present).masked_fill(~labelled, 0.0)
        return Terms(log_p_X, draw.kl, kl_S, log_p_S, log_q_of(evidence, S))
    kl_Z = draw.log_q - model.log_p_Z(draw.Z, batch, seen)
    return Terms(log_p_X, kl_Z, zero, zero, log_q_of(evidence, S))


def loss(terms: Terms, settings: ObjectiveSettings, rise: float) -> Float[Tensor, ""]:
    """The negative objective per story; the KL has its target, and `rise` of its final weight."""
    kl_Z = terms.kl_Z.mean()
    if settings.target_kl:
        kl_Z = kl_Z.clamp(min=settings.target_kl)
    kl = settings.kl_weight * rise * (kl_Z + terms.kl_S.mean())
    return -(terms.log_p_X.mean() - kl + terms.log_p_S.mean() + settings.alpha * terms.log_q_S.mean())


def kl_of_tags(model: SLDS, evidence: Evidence, s: Float[Tensor, "batch sent state"], batch: Batch) -> Tensor:
    """sum_i KL(q(S_i | X) || p(S_i | S_{i-1} = s_{i-1})); a soft s mixes the rows of the transition matrix."""
    first = model.scaffold.initial().expand(s.shape[0], 1, -1)
    later = (s[:, :-1] @ model.scaffold.transition().exp()).clamp(min=1e-30).log()
    log_p = torch.cat([first, later], dim=1)
    kl = (evidence.log_q_S.exp() * (evidence.log_q_S - log_p)).sum(-1)
    return (kl * batch.present).sum(-1)


def log_q_of(evidence: Evidence, S: Int[Tensor, "batch sent"]) -> Float[Tensor, " batch"]:
    """sum_i log q(S_i | X) over the known tags."""
    chosen = evidence.log_q_S.gather(-1, S.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return (chosen * (S != UNKNOWN)).sum(-1)


def gumbel_softmax(
    log_q: Float[Tensor, "batch sent state"], temperature: float, hard: bool, generator: torch.Generator | None
) -> Float[Tensor, "batch sent state"]:
    """A relaxed draw from q(S_i); `hard` rounds it to a corner and keeps the relaxed gradient (straight through)."""
    uniform = torch.rand(log_q.shape, generator=generator, device=log_q.device).clamp(1e-10, 1 - 1e-7)
    soft = ((log_q - (-uniform.log()).log()) / temperature).softmax(-1)
    if not hard:
        return soft
    corner = F.one_hot(soft.argmax(-1), log_q.shape[-1]).to(soft.dtype)
    return corner + soft - soft.detach()
