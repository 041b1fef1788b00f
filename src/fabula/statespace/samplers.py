"""Samplers of (S, Z) where S is unknown. Each is an `init` and a `step`: state in, state out, randomness passed in.

    enumeration         all K^N paths where they are few: independent draws
    gibbs               S given Z by forward filtering and backward sampling, Z given S jointly
    particle_smoother   particles of S with Z integrated out, and backward simulation (`particles.py`)
    variational         q(Z | s, phi) fitted by gradient steps, S given Z exactly; draws carry importance weights

Recurrent switches and likelihoods beside phi make Z given S non-Gaussian. Its Gaussian part then includes a Laplace
approximation of the other factors, and elliptical slice sampling (Murray et al. 2010) corrects it exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fabula.errors import UserError
from fabula.shapes import Bool, Float, Int, Latents, Mask, PerSentence, PerStory, Tags
from fabula.statespace.chain import Chain, chain, draw_smoothing
from fabula.statespace.diagnostics import chain_size, effective_size, split_r_hat
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.gaussian import Information, Potential
from fabula.statespace.markov import MarkovChain, clamp
from fabula.statespace.model import Target

MAX_PATHS = 729
"""Paths of a sequence that are enumerated: 3^6."""
MATRICES_AT_ONCE = 1 << 25
"""Numbers held in the matrices of factorised chains (128 MiB); more rows are cut into pieces."""
NEWTON_STEPS, MAX_SHRINKS = 3, 200


class State(NamedTuple):
    """A draw for every row, its importance weight (0 where it needs none), and what the sampler carries on."""

    S: Tensor
    Z: Tensor
    log_weight: Tensor
    memory: Any = None


class Sampler(NamedTuple):
    """A way of drawing from a `Target`."""

    init: Callable[[torch.Generator], State]
    step: Callable[[State, torch.Generator], State]


def run(sampler: Sampler, steps: int, generator: torch.Generator, warmup: int = 0) -> State:
    """`steps` states after `warmup` others, [step, row, ...]; the last one's memory."""
    state, kept = sampler.init(generator), list[tuple[Tensor, ...]]()
    for _ in range(warmup + steps):
        state = sampler.step(state, generator)
        kept = [*kept, state[:3]][-steps:]
    S, Z, log_weight = (torch.stack(parts) for parts in zip(*kept, strict=True))
    return State(S, Z, log_weight, state.memory)


def diagnose(draws: State, chains: int = 1) -> dict[str, Tensor]:
    """Of a run with rows = targets x chains: split R-hat and effective size of every coordinate of Z, and the effective
    number of draws by their importance weights."""
    Z = draws.Z.unflatten(1, (-1, chains)).movedim(2, 0)
    weights = draws.log_weight.unflatten(1, (-1, chains)).movedim(1, 0).flatten(1)
    return {"r_hat": split_r_hat(Z), "size": chain_size(Z), "weighted_size": effective_size(weights)}


def random_like(draw: Callable[..., Tensor], like: Tensor, generator: torch.Generator, *shape: int) -> Tensor:
    """Random numbers of the shape and type of a tensor, drawn where the generator is and moved to the tensor."""
    return draw(*(shape or like.shape), generator=generator, dtype=like.dtype, device=generator.device).to(like.device)


def laplace(log_factor: Callable[[Latents], PerSentence], Z: Latents) -> Information:
    """The second-order expansion of a log-factor of every Z_i around Z, made concave."""
    with torch.enable_grad():
        Z = Z.detach().requires_grad_()
        value = log_factor(Z)
        (slope,) = torch.autograd.grad(value.sum(), Z, create_graph=True)
        each = [torch.autograd.grad(slope[..., d].sum(), Z, retain_graph=True)[0] for d in range(Z.shape[-1])]
    value, slope, Z = value.detach(), slope.detach(), Z.detach()
    curvature, axes = torch.linalg.eigh(-(torch.stack(each, -1) + torch.stack(each, -2)) / 2)
    J = (axes * curvature.clamp(min=0).unsqueeze(-2)) @ axes.mT
    h = slope + (J @ Z.unsqueeze(-1)).squeeze(-1)
    return Information(J, h, value - (Z * (slope + h)).sum(-1) / 2)


def condition(target: Target, S: Tags) -> tuple[Chain, Information | None]:
    """p(Z | S): exact with None, or a Gaussian with the Laplace approximation that it includes."""
    q, tilt = chain(target.dynamics, S, target.phi, target.present), None
    if not target.is_gaussian():
        for _ in range(NEWTON_STEPS):
            tilt = laplace(lambda Z: target.log_factor(S, Z), q.mean()).where(target.present)
            q = chain(target.dynamics, S, target.phi.times(tilt), target.present)
    return q, tilt


def _residual(target: Target, S: Tags, Z: Latents, tilt: Information) -> PerStory:
    """log of the target's density over the Gaussian's, up to a constant in Z."""
    return (target.log_factor(S, Z) - tilt.log(Z) * target.present).sum(-1)


def draw_Z(target: Target, S: Tags, Z: Latents | None, generator: torch.Generator, given: Any = None) -> Latents:
    """Z ~ p(Z | S), `given` being its `condition`; not Gaussian: one step of elliptical slice sampling from Z."""
    q, tilt = given or condition(target, S)
    drawn = q.sample(random_like(torch.randn, target.phi.h, generator).unsqueeze(1)).squeeze(1)
    if tilt is None or Z is None:
        return drawn
    mean, one = q.mean(), target.phi.constant[:, 0]
    level = _residual(target, S, Z, tilt) + random_like(torch.rand, one, generator).log()
    angle = 2 * math.pi * random_like(torch.rand, one, generator)
    low, high, moved = angle - 2 * math.pi, angle, Z
    waiting = torch.ones_like(angle, dtype=torch.bool)
    for _ in range(MAX_SHRINKS):
        turn = angle[:, None, None]
        proposal = mean + (Z - mean) * turn.cos() + (drawn - mean) * turn.sin()
        accepted = waiting & (_residual(target, S, proposal, tilt) > level)
        moved, waiting = torch.where(accepted[:, None, None], proposal, moved), waiting & ~accepted
        if not bool(waiting.any()):
            break
        low, high = torch.where(angle < 0, angle, low), torch.where(angle < 0, high, angle)
        angle = low + (high - low) * random_like(torch.rand, one, generator)
    return moved


def draw_S(target: Target, Z: Latents, generator: torch.Generator) -> Tags:
    """S ~ p(S | Z), exact; -1 behind a sequence's end."""
    evidence = clamp(target.dynamics.log_prob_steps(Z), target.allowed)
    uniform = random_like(torch.rand, target.phi.constant, generator)
    S = target.switches.sample(evidence, target.present, uniform, target.switches.transitions(Z))
    return S.masked_fill(~target.present, -1)


def gibbs(target: Target) -> Sampler:
    """Blocked Gibbs: Z | S jointly, then S | Z jointly. It begins with a draw from p(S)."""

    def init(generator: torch.Generator) -> State:
        flat = clamp(target.phi.h.new_zeros(target.allowed.shape), target.allowed)
        uniform = random_like(torch.rand, target.phi.constant, generator)
        S = target.switches.sample(flat, target.present, uniform).masked_fill(~target.present, -1)
        return State(S, draw_Z(target, S, None, generator), torch.zeros_like(target.phi.constant[:, 0]))

    def step(state: State, generator: torch.Generator) -> State:
        Z = draw_Z(target, state.S, state.Z, generator)
        return State(draw_S(target, Z, generator), Z, state.log_weight)

    return Sampler(init, step)


def count_paths(allowed: Bool[Tensor, "story sent state"], present: Mask) -> Float[Tensor, " story"]:
    """How many paths the allowed states leave each sequence; as a float, for they may be very many."""
    return torch.where(present, allowed.sum(2), 1).double().prod(1)


def enumerate_paths(allowed: Tensor, present: Tensor, count: int) -> Int[Tensor, "story path sent"]:
    """All paths of sequences that have `count` each: path p has the digits of p, in each step's own base."""
    bases = torch.where(present, allowed.sum(2), 1)
    # The digit of a step moves once while those of all later steps go round.
    strides = torch.cat([bases[:, 1:], torch.ones_like(bases[:, :1])], 1).flip(1).cumprod(1).flip(1)
    digits = torch.arange(count, device=allowed.device)[None, :, None] // strides[:, None] % bases[:, None]
    states = (~allowed).to(torch.int8).argsort(dim=2, stable=True)  # the allowed states first, in their order
    return states.gather(2, digits.transpose(1, 2)).transpose(1, 2).masked_fill(~present[:, None], -1)


def path_weights(
    scaffold: MarkovChain, dynamics: LinearGaussian, S: Int[Tensor, "story path sent"],
    phi: Potential | Information, present: Tensor,
) -> Float[Tensor, "story path"]:  # fmt: skip
    """log p(S) E(S) of every path, cut into pieces where the chains' matrices would be too many."""
    stories, count, N = S.shape
    tags, log_weights = S.flatten(0, 1), []
    for rows in torch.split(torch.arange(len(tags), device=S.device), rows_at_once(dynamics.D, N)):
        story = rows // count
        chains_of_Z = chain(dynamics, tags[rows], phi.rows(story), present[story])
        log_weights.append(scaffold.log_prob(tags[rows], present[story]) + chains_of_Z.log_evidence)
    return torch.cat(log_weights).view(stories, count)


def draw_paths(paths: Tensor, log_weights: Tensor, uniform: Tensor) -> Int[Tensor, "story sample sent"]:
    """A path for every sample, [story, sample], in proportion to what it weighs, [story, path]."""
    cumulative = log_weights.softmax(-1).cumsum(-1)
    path = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=paths.shape[1] - 1)
    return paths.gather(1, path.unsqueeze(-1).expand(-1, -1, paths.shape[2]))


def rows_at_once(D: int, N: int) -> int:
    """Rows of a batch of chains; a chain keeps three matrices a step, and makes about three more on the way."""
    return max(1, MATRICES_AT_ONCE // (6 * N * D * D))


def enumeration(target: Target) -> Sampler:
    """Independent draws by the exact weights of all paths, for targets with few paths where Z given S is Gaussian."""

    def init(generator: torch.Generator) -> State:
        counts = count_paths(target.allowed, target.present)
        if not target.is_gaussian() or bool((counts > MAX_PATHS).any()):
            raise UserError(f"enumeration takes at most {MAX_PATHS} paths, and no recurrent switches: use gibbs")
        # A row with fewer paths than others goes round them again; what comes again weighs nothing.
        S = enumerate_paths(target.allowed, target.present, int(counts.max()))
        again = torch.arange(S.shape[1], device=S.device) >= counts.unsqueeze(1)
        log_weights = path_weights(target.switches, target.dynamics, S, target.phi, target.present)
        log_weights = log_weights.masked_fill(again, float("-inf"))
        return step(State(S[:, 0], target.phi.h, torch.zeros_like(log_weights[:, 0]), (S, log_weights)), generator)

    def step(state: State, generator: torch.Generator) -> State:
        uniform = random_like(torch.rand, state.log_weight, generator).unsqueeze(1)
        every, log_weights = state.memory
        S = draw_paths(every, log_weights, uniform).squeeze(1)
        return state._replace(S=S, Z=draw_Z(target, S, None, generator))

    return Sampler(init, step)


def variational(target: Target, rate: float = 0.05) -> Sampler:
    """The structured posterior of training, q(Z) ∝ prod_i p(Z_i | Z_{i-1}, s_i) phi_i(Z_i) psi_i(Z_i), for these rows.

    A step is one of Adam on the bound E_q[log p(Z, X) - log q(Z)], S summed out, over the mixing weights s and the
    diagonal potentials psi; then S ~ p(S | Z). The log weight is the bound by one draw.
    """

    def bound(logits: Tensor, mean: Tensor, log_precision: Tensor, *, noise: Tensor) -> tuple[Latents, PerStory]:
        psi = Potential(mean, log_precision.exp()).information().where(target.present)
        s = clamp(logits, target.allowed).softmax(-1)
        q = draw_smoothing(target.dynamics, s, target.phi.times(psi), target.present, noise)
        seen = clamp(target.dynamics.log_prob_steps(q.Z), target.allowed)
        log_p = target.switches.log_marginal(seen, target.present, target.switches.transitions(q.Z))
        evidence = (target.phi.log(q.Z) * target.present + target.log_likelihoods(q.Z)).sum(-1)
        return q.Z, log_p + evidence - q.log_q

    def init(generator: torch.Generator) -> State:
        logits = target.phi.h.new_zeros(target.allowed.shape)
        parameters = [logits, torch.zeros_like(target.phi.h), torch.full_like(target.phi.h, -6.0)]
        moments = [torch.zeros_like(p) for p in parameters]
        return step(State(S=logits, Z=logits, log_weight=logits, memory=(parameters, moments, moments, 0)), generator)

    def step(state: State, generator: torch.Generator) -> State:
        parameters, first, second, count = state.memory
        noise = random_like(torch.randn, target.phi.h, generator)
        with torch.enable_grad():
            leaves = [p.detach().requires_grad_() for p in parameters]
            Z, log_weight = bound(*leaves, noise=noise)
            slopes = torch.autograd.grad(log_weight.sum(), leaves)
        first = [0.9 * m + 0.1 * g for m, g in zip(first, slopes, strict=True)]
        second = [0.99 * v + 0.01 * g**2 for v, g in zip(second, slopes, strict=True)]
        scale = rate * (1 - 0.99 ** (count + 1)) ** 0.5 / (1 - 0.9 ** (count + 1))
        updated = [p + scale * m / (v.sqrt() + 1e-8) for p, m, v in zip(parameters, first, second, strict=True)]
        Z = Z.detach()
        return State(draw_S(target, Z, generator), Z, log_weight.detach(), (updated, first, second, count + 1))

    return Sampler(init, step)
