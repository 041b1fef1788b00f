"""The LDS against dynamax (JAX): filter, smoother, evidence and EM on 20 random problems, equal to 1e-8 in float64.

dynamax has no masks. A missing step is one with C = 0, d = 0, R = I and X = 0, which adds a constant to log p(X);
sequences of unequal lengths are run one by one. An M step over such a batch is the regression from dynamax's moments.
"""

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from fabula.statespace import LinearGaussian, SwitchingLDS, em_step
from numbers_model import random_system

pytestmark = pytest.mark.system
PROBLEMS, BATCH, N = 20, 3, 12


@pytest.fixture(scope="module")
def jax() -> Any:
    module = import_module("jax")
    module.config.update("jax_enable_x64", True)
    return module


@pytest.fixture(scope="module")
def lgssm(jax: Any) -> Any:
    """dynamax's module, with its smoother and E step compiled once for each size."""
    module: Any = import_module("dynamax.linear_gaussian_ssm")
    module.smoother = jax.jit(module.lgssm_smoother)
    module.ssm = cache(module.LinearGaussianSSM)
    module.e_step = cache(lambda D, E: jax.jit(module.ssm(D, E).e_step))
    return module


def problem(seed: int) -> tuple[SwitchingLDS, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    D, E = ((2, 3), (3, 2), (4, 4))[seed % 3]
    model = random_system(1, D, E, full=True, initial=True, seed=seed).requires_grad_(False)
    X = model.sample(N, BATCH, torch.Generator().manual_seed(seed))[2]
    X[torch.from_numpy(rng.random((BATCH, N)) < 0.25)] = float("nan")
    return model, X, torch.from_numpy(rng.choice([N, 8, 5], BATCH))


def parameters(jax: Any, lgssm: Any, model: SwitchingLDS, seen: np.ndarray[Any, Any] | None = None) -> Any:
    """dynamax's parameters of the model; with `seen` emissions for every step."""
    first, moves, shows = model.dynamics.initial, model.dynamics, model.emissions
    assert first is not None
    C, d, R = (p.numpy()[0] for p in (shows.A, shows.bias, shows.Sigma()))
    if seen is not None:
        C, d, R = seen[:, None, None] * C, seen[:, None] * d, np.where(seen[:, None, None], R, np.eye(len(d)))
    arrays = [p.numpy()[0] for p in (first.bias, first.Sigma(), moves.A, moves.Sigma())]
    made = lgssm.inference.make_lgssm_params(*arrays, C, R, dynamics_bias=moves.bias.numpy()[0], emissions_bias=d)
    # Copied: EM steps change the model's tensors in place.
    return jax.tree_util.tree_map(lambda array: jax.numpy.array(array, copy=True), made)


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_filter_smoother_evidence_and_an_em_step(jax: Any, lgssm: Any, seed: int) -> None:
    model, X, lengths = problem(seed)
    D, E = model.dynamics.D, X.shape[2]
    posterior = model.posterior(X, lengths=lengths)
    smoothed, filtered = posterior.marginals(), posterior.filter()
    assert smoothed.cross is not None
    steps, shows, start = (np.zeros((n, n)) for n in (2 * D + 1, D + 1 + E, D + 1))
    for row, n in enumerate(lengths.tolist()):
        x = X[row, :n].numpy()
        seen = ~np.isnan(x).any(1)
        x = np.where(seen[:, None], x, 0.0)
        theirs = lgssm.smoother(parameters(jax, lgssm, model, seen), x)
        mean, cov = (np.asarray(a) for a in (theirs.smoothed_means, theirs.smoothed_covariances))
        cross = np.asarray(theirs.smoothed_cross_covariances) - mean[:-1, :, None] * mean[1:, None]
        constant = -0.5 * E * np.log(2 * np.pi) * (~seen).sum()
        log_p = float(theirs.marginal_loglik) - constant
        assert float(posterior.log_evidence[row]) == pytest.approx(log_p, abs=1e-8)
        for ours, expected in (
            (smoothed.mean[row, :n], mean),
            (smoothed.covariance[row, :n], cov),
            (smoothed.cross[row, : n - 1], cross),
            (filtered.mean[row, :n], theirs.filtered_means),
            (filtered.covariance[row, :n], theirs.filtered_covariances),
        ):
            np.testing.assert_allclose(ours.numpy(), np.asarray(expected), rtol=0, atol=1e-8)
        one = np.ones((n, 1))
        u = np.concatenate([mean[:-1], one[1:], mean[1:]], 1)
        blocks = np.zeros((2 * D + 1, 2 * D + 1))
        before, after = np.s_[:D], np.s_[D + 1 :]
        blocks[before, before], blocks[after, after] = cov[:-1].sum(0), cov[1:].sum(0)
        blocks[before, after], blocks[after, before] = cross.sum(0), cross.sum(0).T
        steps += u.T @ u + blocks
        v = np.concatenate([mean, one, x], 1)[seen]
        shows += v.T @ v + np.pad(cov[seen].sum(0), (0, 1 + E))
        w = np.concatenate([one[:1], mean[:1]], 1)
        start += w.T @ w + np.pad(cov[0], (1, 0))
    em_step(model, X, lengths=lengths)
    first = model.dynamics.initial
    assert first is not None
    for linear, products, k in ((model.dynamics, steps, D), (model.emissions, shows, D), (first, start, 0)):
        xx, xy, yy = products[: k + 1, : k + 1], products[: k + 1, k + 1 :], products[k + 1 :, k + 1 :]
        W = np.linalg.solve(xx, xy).T
        compare(linear, W[:, :-1], W[:, -1], (yy - W @ xy) / xx[-1, -1])


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_em_steps_are_dynamax_s_where_nothing_is_missing(jax: Any, lgssm: Any, seed: int) -> None:
    """Three steps, with dynamax's own M step, from the same parameters; of one sequence, because for several dynamax
    1.0.3 divides the outer product of the sum of all E[Z_1] by their number once, not twice."""
    model = problem(seed)[0]
    X = model.sample(60, 1, torch.Generator().manual_seed(seed))[2]
    sizes = model.dynamics.D, X.shape[2]
    params, properties = parameters(jax, lgssm, model), lgssm.ssm(*sizes).initialize()[1]
    for _ in range(3):
        stats, log_p = lgssm.e_step(*sizes)(params, jax.numpy.array(X[0].numpy()))
        stats = jax.tree_util.tree_map(lambda array: jax.numpy.array(array)[None], stats)
        params, _ = lgssm.ssm(*sizes).m_step(params, properties, stats, None)
        assert float(em_step(model, X)) == pytest.approx(float(log_p), abs=1e-6, rel=1e-8)
    first, moves, shows = model.dynamics.initial, model.dynamics, model.emissions
    assert first is not None
    compare(moves, params.dynamics.weights, params.dynamics.bias, params.dynamics.cov)
    compare(shows, params.emissions.weights, params.emissions.bias, params.emissions.cov)
    compare(first, np.zeros((sizes[0], 0)), params.initial.mean, params.initial.cov)


def compare(linear: LinearGaussian, *expected: Any) -> None:
    """A, bias and Sigma to 1e-8."""
    for ours, value in zip((linear.A[0], linear.bias[0], linear.Sigma()[0]), expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), np.asarray(value), rtol=0, atol=1e-8)
