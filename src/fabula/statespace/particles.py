"""The Rao-Blackwellised particle smoother: particles of S, each with the Gaussian of its Z_i.

Forward, every particle is continued by all K states, and P of the P K continuations are kept in proportion to

    p(S_i = k | S_{i-1}) ∫ p(Z_i | phi_1 .. phi_{i-1}, S_1 .. S_{i-1}, S_i = k) phi_i(Z_i) dZ_i

so that all kept ones weigh the same. Backward, S_N, S_{N-1}, ... are drawn from the particles by what each makes of the
states drawn so far; what lies ahead is a potential of Z_i (Lindsten et al. 2013). Then Z given S is exact. Recurrent
switches need Z: a particle then draws its Z_i, from the optimal proposal, and nothing is integrated out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fabula.errors import UserError
from fabula.shapes import Float, Int, Latents, PerStory, Tags
from fabula.statespace.chain import Blocks, chain
from fabula.statespace.diagnostics import systematic
from fabula.statespace.gaussian import Information
from fabula.statespace.markov import pick
from fabula.statespace.model import Target
from fabula.statespace.samplers import Sampler, State, random_like


class Filter(NamedTuple):
    """Particles of every step: S_i, p(Z_i | phi_1 .. phi_i, S_1 .. S_i), and draws of it with recurrent switches."""

    S: list[Int[Tensor, "batch sample"]]
    alpha: list[Information]
    Z: list[Float[Tensor, "batch sample latent"]]
    log_evidence: PerStory
    """An estimate of log p(phi), unbiased in p(phi)."""


def _where(here: Tensor, one: Information, other: Information) -> Information:
    parts = zip(one, other, strict=True)
    return Information(*(torch.where(here.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in parts))


def _transition(target: Target, z: Tensor) -> Float[Tensor, "batch sample state state"]:
    """log p(S_i | S_{i-1}, Z_{i-1} = z) for every particle."""
    each = target.switches.transitions(torch.cat([z, z[:, :1]], 1))
    K = target.switches.K
    return target.switches.transition().expand(*z.shape[:2], K, K) if each is None else each


def particle_filter(target: Target, particles: int, generator: torch.Generator) -> Filter:
    """Forward over all steps; rows of different lengths keep the particles of their last step."""
    if target.log_likelihood is not None:
        raise UserError("the particle smoother takes potentials only; gibbs also takes a log-likelihood beside them")
    (batch, N), K, recurrent = target.present.shape, target.switches.K, not target.is_gaussian()
    blocks, first = Blocks.of(target.dynamics), target.dynamics.initial or target.dynamics
    row = torch.arange(batch, device=target.present.device)[:, None]
    zero = target.phi.h[:, :1] * 0
    candidates = Blocks.of(first).given(zero[:, :, None, : first.A.shape[2]])
    log_p, log_evidence = target.switches.initial().expand(batch, 1, K), zero[:, 0, 0]
    S, alphas, Z = list[Tensor](), list[Information](), list[Tensor]()
    for i in range(N):
        if i:
            wide = Information(*(part.unsqueeze(2) for part in alphas[-1]))
            candidates = blocks.given(Z[-1].unsqueeze(2)) if recurrent else blocks.forward(wide)
            log_p = _transition(target, Z[-1]).gather(2, S[-1][..., None, None].expand(-1, -1, 1, K)).squeeze(2)
        candidates = candidates.times(Information(*(part[:, i, None, None] for part in target.phi)))
        log_w = (log_p + candidates.log_integral()).masked_fill(~target.allowed[:, i, None], float("-inf")).flatten(1)
        # Stratified: one number for all would give every particle of a state the same next state.
        child = systematic(log_w, random_like(torch.rand, log_w, generator, batch, particles))
        s, alpha = child % K, Information(*(part[row, child // K, child % K] for part in candidates))
        here = target.present[:, i]
        log_evidence = log_evidence + torch.where(here, log_w.logsumexp(1) - math.log(log_w.shape[1] / K), 0.0)
        alpha = alpha._replace(constant=alpha.constant - alpha.log_integral())
        z = zero.expand(-1, particles, -1)
        if recurrent:
            z = alpha.rsample(random_like(torch.randn, alpha.h, generator))
        if i:
            s, z = torch.where(here[:, None], s, S[-1]), torch.where(here[:, None, None], z, Z[-1])
            alpha = _where(here, alpha, alphas[-1])
        S.append(s)
        alphas.append(alpha)
        Z.append(z)
    return Filter(S, alphas, Z, log_evidence)


def backward_simulation(target: Target, forward: Filter, generator: torch.Generator) -> tuple[Tags, Latents]:
    """One path of S for every row, by the particles of every step, with the Z of recurrent switches."""
    blocks, recurrent = Blocks.of(target.dynamics), not target.is_gaussian()
    row, N = torch.arange(len(target.present), device=target.present.device), target.present.shape[1]
    zero, P = target.phi.h[:, 0] * 0, forward.S[0].shape[1]
    beta = Information(zero.unsqueeze(-1) * zero.unsqueeze(-2), zero, zero[:, 0])
    log_w = zero.new_zeros(len(zero), P)
    S, Z = list[Tensor](), list[Tensor]()
    for i in range(N - 1, -1, -1):
        if i + 1 < N:
            here = target.present[:, i + 1]
            step = blocks.at(S[-1])
            into = S[-1][:, None, None, None].expand(-1, P, target.switches.K, 1)
            log_p = _transition(target, forward.Z[i]).gather(3, into).squeeze(3)
            log_p = log_p.gather(2, forward.S[i].unsqueeze(2)).squeeze(2)
            if recurrent:
                wide = Blocks(*(block.unsqueeze(1) for block in step))
                log_w = log_p + wide.given(forward.Z[i]).log(Z[-1].unsqueeze(1))
            else:
                phi = Information(*(part[:, i + 1] for part in target.phi))
                beta = _where(here, step.reversed().forward(phi.times(beta)), beta)
                ahead = Information(*(part.unsqueeze(1) for part in beta))
                log_w = log_p + forward.alpha[i].times(ahead).log_integral()
            log_w = torch.where(here[:, None], log_w, 0.0)
        j = pick(log_w, random_like(torch.rand, zero[:, 0], generator))
        S.append(forward.S[i][row, j])
        Z.append(forward.Z[i][row, j])
    return torch.stack(S[::-1], 1).masked_fill(~target.present, -1), torch.stack(Z[::-1], 1)


def particle_smoother(target: Target, particles: int = 100) -> Sampler:
    """Independent draws, from p(S, Z) as the particles become many: each step is a run. `memory` is log p(phi)."""

    def draw(generator: torch.Generator) -> State:
        forward = particle_filter(target, particles, generator)
        S, Z = backward_simulation(target, forward, generator)
        if target.is_gaussian():
            noise = random_like(torch.randn, target.phi.h, generator)
            Z = chain(target.dynamics, S, target.phi, target.present).sample(noise.unsqueeze(1)).squeeze(1)
        return State(S, Z, torch.zeros_like(forward.log_evidence), forward.log_evidence)

    return Sampler(draw, lambda state, generator: draw(generator))
