"""Tag paths and their weights against dense Gaussian integrals, and the resampling."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from fabula.infill import bridge
from fabula.infill.noise import Noise, seeded
from fabula.models.dynamics import Dynamics, dynamics
from fabula.models.gaussian import Potential
from fabula.models.scaffold import Scaffold

D, K, N = 2, 3, 4


def parts(noise: str) -> tuple[Scaffold, Dynamics, Potential]:
    torch.manual_seed(2)
    p_next = torch.rand(K, K) + 0.1
    scaffold = Scaffold(torch.tensor([0.5, 0.3, 0.2]), p_next / p_next.sum(1, keepdim=True)).double()
    moves = dynamics(noise, K, D).double().requires_grad_(False)
    for parameter in moves.parameters():
        parameter.add_(0.4 * torch.randn_like(parameter))
    phi = Potential(torch.randn(N, D).double(), 2 * torch.rand(N, D).double())
    phi.precision[1] = 0
    return scaffold, moves, phi


def dense_log_evidence(moves: Dynamics, S: list[int], phi: Potential) -> Tensor:
    """log of the integral of p(Z | S) phi(Z), from the joint covariance of all of Z."""
    mean, covariance = torch.zeros(N * D).double(), torch.zeros(N * D, N * D).double()
    for i, s in enumerate(S):
        here = slice(i * D, (i + 1) * D)
        before = slice((i - 1) * D, i * D)
        if i:
            mean[here] = moves.A[s] @ mean[before]
            covariance[here, : i * D] = moves.A[s] @ covariance[before, : i * D]
            covariance[: i * D, here] = covariance[here, : i * D].T
            covariance[here, here] = moves.A[s] @ covariance[before, before] @ moves.A[s].T
        mean[here] += moves.bias[s]
        covariance[here, here] += moves.Sigma()[s]
    W = torch.diag(phi.precision.flatten())
    residual = phi.mean.flatten() - mean
    # E exp(-(z - m)^T W (z - m) / 2) under N(mean, C) = |I + C W|^-1/2 exp(-r^T W (I + C W)^-1 r / 2)
    mixed = torch.eye(N * D).double() + covariance @ W
    quadratic: Tensor = residual @ W @ torch.linalg.solve(mixed, residual)
    log_det: Tensor = torch.linalg.slogdet(mixed).logabsdet
    return -0.5 * (log_det + quadratic)


@pytest.mark.parametrize("noise", ["diagonal", "full"])
@pytest.mark.parametrize("given", [(-1, -1, -1, -1), (2, -1, 0, -1), (1, 1, 0, 2)])
def test_path_weights_are_the_exact_posterior_of_S(noise: str, given: tuple[int, ...]) -> None:
    scaffold, moves, phi = parts(noise)
    paths, log_weights = bridge.path_weights(scaffold, moves, torch.tensor(given), phi)
    expected = {}
    for S in itertools.product(range(K), repeat=N):
        if all(g in (-1, s) for g, s in zip(given, S, strict=True)):
            log_p = scaffold.initial()[S[0]] + sum(scaffold.transition()[a, b] for a, b in itertools.pairwise(S))
            expected[S] = float(log_p + dense_log_evidence(moves, list(S), phi))
    assert len(paths) == len(expected)
    for path, log_weight in zip(paths.tolist(), log_weights.tolist(), strict=True):
        assert abs(log_weight - expected[tuple(path)]) < 1e-6


def test_given_tags_stay() -> None:
    scaffold, moves, phi = parts("diagonal")
    S = torch.tensor([[2, -1, 0, -1], [1, 1, -1, -1]])
    present = torch.tensor([[True] * 4, [True, True, True, False]])
    both = Potential(phi.mean.expand(2, -1, -1).float(), phi.precision.expand(2, -1, -1).float())
    noise = Noise([seeded(0), seeded(1)], [4, 3], 50, "cpu")
    drawn = bridge.draw_latents(scaffold.float(), moves.float(), S, both, present, noise).S.view(2, 50, 4)
    assert (drawn[0][:, [0, 2]] == torch.tensor([2, 0])).all()
    assert (drawn[1][:, :2] == 1).all()
    assert (drawn[1][:, 3] == -1).all()
    assert len({tuple(path) for path in drawn[0].tolist()}) > 3


def test_systematic_resampling_copies_in_proportion() -> None:
    """Particle p has floor or ceil of P w_p children."""
    log_weights = torch.randn(20, 50, generator=torch.Generator().manual_seed(0)) * 2
    parents = bridge.systematic(log_weights, torch.rand(20, generator=torch.Generator().manual_seed(1)))
    children = torch.nn.functional.one_hot(parents, 50).sum(1)
    expected = 50 * log_weights.softmax(-1)
    assert (children >= (expected - 1e-4).floor()).all()
    assert (children <= (expected + 1e-4).ceil()).all()
