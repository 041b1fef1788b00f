"""Samplers of (S, Z) against enumeration, N = 6, K = 3, D = 2; recurrent switches against quadrature.

Rows are independent copies of one target, so their states are i.i.d. and z-tests are honest. A test looks at no more
than 30 figures at 5.5 standard errors: a false alarm in less than 30 x 3.8e-8 = 2e-6 of all seeds.
"""

import itertools

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn import functional as F

from fabula import statespace
from fabula.statespace import RecurrentChain, Sampler, State, Target, enumeration
from fabula.statespace.samplers import enumerate_paths, path_weights
from numbers_model import random_system

K, D, N, ROWS, MOST = 3, 2, 6, 1000, 5.5


def one_target() -> Target:
    """With a missing step; S is far from certain."""
    model = random_system(K, D, 2, full=True, initial=True, seed=1).requires_grad_(False)
    X = model.sample(N, 1, torch.Generator().manual_seed(2))[2]
    X[0, 2] = float("nan")
    return model.target(X)


def exact(target: Target) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All paths with their probabilities, p(S_i = k), E[Z_i] and log p(phi), by the integral of every path over Z."""
    S = enumerate_paths(target.allowed, target.present, K**N)
    log_weights = path_weights(target.switches, target.dynamics, S, target.phi, target.present)[0]
    weights = log_weights.softmax(0)
    wide = target.repeat(K**N)
    means = statespace.chain(target.dynamics, S[0], wide.phi, wide.present).mean()
    shares = torch.einsum("p,pik->ik", weights, F.one_hot(S[0], K).double())
    return S[0], weights, shares, torch.einsum("p,pid->id", weights, means), log_weights.logsumexp(0)


def worst(drawn: State, shares: Tensor, mean: Tensor) -> float:
    """The largest deviation of a share or a mean, in standard errors."""
    counts = F.one_hot(drawn.S, shares.shape[1]).double().mean(0)
    z_S = (counts - shares) / (shares * (1 - shares) / len(drawn.S)).sqrt()
    z_Z = (drawn.Z.mean(0) - mean) / (drawn.Z.std(0) / len(drawn.Z) ** 0.5)
    return float(torch.cat([z_S[shares * len(drawn.S) > 30].flatten(), z_Z.flatten()]).abs().max())


@pytest.mark.parametrize("start", ["posterior", "prior"])
def test_gibbs_has_the_enumerated_posterior(start: str) -> None:
    """Begun in exact draws of S it stays there for three sweeps, and chains move; from p(S) it is there in 30."""
    target, generator = one_target(), torch.Generator().manual_seed(0)
    paths, weights, shares, mean, _ = exact(target)
    wide = target.repeat(ROWS)
    sampler = statespace.gibbs(wide)
    first = state = sampler.init(generator)
    if start == "posterior":
        S = paths[torch.multinomial(weights, ROWS, replacement=True, generator=generator)]
        first = state = state._replace(S=S)
    for _ in range(3 if start == "posterior" else 30):
        state = sampler.step(state, generator)
    assert (state.S != first.S).any(1).double().mean() > 0.3
    assert worst(state, shares, mean) < MOST


@pytest.mark.parametrize("name", ["enumeration", "particle_smoother"])
def test_independent_draws_have_the_enumerated_posterior(name: str) -> None:
    """60 particles: their bias, some thousandths, is far below 5.5 standard errors of 1,000 rows (.08)."""
    target, generator = one_target(), torch.Generator().manual_seed(1)
    _, _, shares, mean, _ = exact(target)
    wide = target.repeat(ROWS if name == "particle_smoother" else 300)
    sampler: Sampler = statespace.particle_smoother(wide, 60) if len(wide.present) == ROWS else enumeration(wide)
    assert worst(sampler.init(generator), shares, mean) < MOST


def test_the_particle_filter_s_evidence_is_unbiased() -> None:
    """The mean of exp(log evidence) over 1,000 runs of 10 particles, at 5.5 standard errors."""
    target, generator = one_target(), torch.Generator().manual_seed(2)
    log_p = exact(target)[4]
    ratio = (statespace.particle_filter(target.repeat(ROWS), 10, generator).log_evidence - log_p).exp()
    assert abs(float((ratio.mean() - 1) / (ratio.std() / ROWS**0.5))) < MOST


@pytest.mark.system
def test_the_variational_bound_rises_to_just_below_the_evidence() -> None:
    """And its importance-weighted draws have the evidence: 200 rows, at 5.5 standard errors."""
    target, generator = one_target(), torch.Generator().manual_seed(3)
    log_p = float(exact(target)[4])
    sampler = statespace.variational(target.repeat(200))
    state = sampler.init(generator)
    first = state.log_weight.mean()
    for _ in range(60):
        state = sampler.step(state, generator)
    assert first + 0.2 < state.log_weight.mean() < log_p
    assert log_p - state.log_weight.mean() < 1.5
    ratio = (state.log_weight - log_p).exp()
    assert abs(float((ratio.mean() - 1) / (ratio.std() / 200**0.5))) < MOST


def recurrent_by_quadrature() -> tuple[Target, Tensor, Tensor]:
    """D = 1, three steps: the target, p(S_i = k) and E[Z_i] by sums over all paths and a grid of Z."""
    model = random_system(2, 1, 1, initial=True, recurrent=True, seed=4).requires_grad_(False)
    assert isinstance(model.switches, RecurrentChain)
    model.switches.weight.mul_(2.0)
    target = model.target(model.sample(3, 1, torch.Generator().manual_seed(5))[2])
    grid = torch.linspace(-7, 7, 71).double()
    Z = torch.cartesian_prod(grid, grid, grid).unsqueeze(-1)
    wide, paths = target.repeat(len(Z)), torch.tensor(list(itertools.product(range(2), repeat=3)))
    table = torch.stack([wide.log_joint(path.expand(len(Z), 3), Z) for path in paths])
    weights = table.flatten().softmax(0).view(8, -1)
    shares = torch.einsum("p,pik->ik", weights.sum(1), F.one_hot(paths, 2).double())
    return target, shares, (weights.sum(0)[:, None, None] * Z).sum(0)


@pytest.mark.system
@pytest.mark.parametrize("name", ["gibbs", "particle_smoother"])
def test_recurrent_switches_have_the_posterior_by_quadrature(name: str) -> None:
    """Gibbs for 20 sweeps from p(S), which is enough here; the smoother with 100 particles."""
    target, shares, mean = recurrent_by_quadrature()
    wide, generator = target.repeat(ROWS), torch.Generator().manual_seed(6)
    sampler = statespace.gibbs(wide) if name == "gibbs" else statespace.particle_smoother(wide, 100)
    state = sampler.init(generator)
    for _ in range(20 if name == "gibbs" else 0):
        state = sampler.step(state, generator)
    assert worst(state, shares, mean) < MOST


def test_sampled_sequences_have_the_evidence_of_the_model() -> None:
    """Under the model that drew them, E[log p(X)] is minus the entropy of X, from the determinant of its covariance."""
    model = random_system(1, D, 2, full=True, initial=True).requires_grad_(False)
    X = model.sample(3, 4000, torch.Generator().manual_seed(0))[2]
    log_p, flat = model.posterior(X).log_evidence, X.flatten(1)
    p_X = MultivariateNormal(flat.mean(0), flat.T.cov())
    excess = log_p + p_X.entropy()
    assert abs(float(excess.mean() / (excess.std() / 4000**0.5))) < MOST


@pytest.mark.system
def test_stochastic_em_finds_the_states_of_a_system_that_switches_seldom() -> None:
    """The best of two starts, against the states that made X, after matching labels."""
    torch.manual_seed(0)
    eye = torch.eye(2).double()
    turn = torch.linalg.matrix_exp(torch.tensor([[0.0, -0.4], [0.4, 0.0]]).double())
    dynamics = statespace.LinearGaussian.of(
        torch.stack([0.98 * turn, 0.98 * turn.T]), torch.zeros(2, 2).double(), 0.05 * eye.expand(2, 2, 2)
    )
    emissions = statespace.LinearGaussian.of(
        torch.randn(4, 2).double(), torch.zeros(4).double(), 0.01 * torch.eye(4).double()
    )
    p = torch.tensor([[0.95, 0.05], [0.05, 0.95]]).double()
    truth = statespace.SwitchingLDS(dynamics, emissions, statespace.MarkovChain(p[0], p)).requires_grad_(False)
    S, _, X = truth.sample(120, 6, torch.Generator().manual_seed(1))
    X[:, 50:53] = float("nan")
    fits = statespace.fit(X, 2, 2, starts=2, sweeps=30, generator=torch.Generator().manual_seed(2))
    assert fits[0].log_evidence >= fits[1].log_evidence
    agreement = float((fits[0].last.S == S).double().mean())
    assert max(agreement, 1 - agreement) > 0.85
