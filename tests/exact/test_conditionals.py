"""Eq. (1) and the sweep over Z, against densities written out in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import Potential
from fabula.sampling.gibbs import LatentConditional, sweep_Z

D, K = 4, 3


@pytest.fixture
def moves() -> Dynamics:
    torch.manual_seed(1)
    made = Dynamics(K, D).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made.requires_grad_(False)


def log_normal(z: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    residual = (z - mean).unsqueeze(-1)
    quadratic: Tensor = (residual * torch.linalg.solve(covariance, residual)).sum((-1, -2))
    log_det: Tensor = torch.linalg.slogdet(2 * torch.pi * covariance).logabsdet
    return -0.5 * (quadratic + log_det)


def log_q(moves: Dynamics, z: Tensor, z_prev: Tensor, s: int, phi: Potential) -> Tensor:
    prior = log_normal(z, moves.A[s] @ z_prev + moves.bias[s], moves.Sigma()[s])
    return prior - 0.5 * (phi.precision * (z - phi.mean) ** 2).sum(-1)


def a_potential() -> Potential:
    return Potential(torch.randn(D).double(), torch.rand(D).double() * 3)


def test_latent_conditional_is_the_normalised_product(moves: Dynamics) -> None:
    """log p(z_next | z) + log q(z) - log conditional(z) is constant in z, bias and all."""
    conditional = LatentConditional(moves)
    z_prev, z_next, phi = torch.randn(D).double(), torch.randn(D).double(), a_potential()
    law = conditional(
        z_prev[None], torch.tensor([1]), Potential(phi.mean[None], phi.precision[None]),
        z_next[None], torch.tensor([2]), torch.tensor([True]),
    )  # fmt: skip
    z = 2 * torch.randn(50, D).double()
    ahead = torch.stack([log_normal(z_next, moves.A[2] @ one + moves.bias[2], moves.Sigma()[2]) for one in z])
    rest = torch.stack([log_q(moves, one, z_prev, 1, phi) for one in z])
    difference = ahead + rest - law.log_prob(z)
    assert (difference - difference[0]).abs().max() < 1e-9


def test_the_last_latent_comes_from_q_alone(moves: Dynamics) -> None:
    conditional = LatentConditional(moves)
    z_prev, phi = torch.randn(D).double(), a_potential()
    law = conditional(
        z_prev[None], torch.tensor([0]), Potential(phi.mean[None], phi.precision[None]),
        torch.full((1, D), 7.0).double(), torch.tensor([1]), torch.tensor([False]),
    )  # fmt: skip
    z = torch.randn(50, D).double()
    difference = torch.stack([log_q(moves, one, z_prev, 0, phi) for one in z]) - law.log_prob(z)
    assert (difference - difference[0]).abs().max() < 1e-9


def test_the_sweep_sees_the_new_before_and_the_old_after(moves: Dynamics) -> None:
    """Without noise each Z_i is the maximum of its conditional: the gradient of the log-density vanishes there."""
    N = 4
    Z, S = torch.randn(1, N, D).double(), torch.tensor([[0, 2, 1, 0]])
    phi = Potential(torch.randn(1, N, D).double(), torch.rand(1, N, D).double())
    swept = sweep_Z(LatentConditional(moves), Z, S, phi, torch.ones(1, N, dtype=torch.bool), torch.zeros_like(Z))
    for i in range(N):
        z = swept[0, i].clone().requires_grad_()
        z_prev = swept[0, i - 1] if i else torch.zeros(D).double()
        log_density = log_q(moves, z, z_prev, int(S[0, i]), Potential(phi.mean[0, i], phi.precision[0, i]))
        if i + 1 < N:
            s = int(S[0, i + 1])
            log_density = log_density + log_normal(Z[0, i + 1], moves.A[s] @ z + moves.bias[s], moves.Sigma()[s])
        (slope,) = torch.autograd.grad(log_density, z)
        assert slope.abs().max() < 1e-9


def test_a_shorter_story_ends_where_it_ends(moves: Dynamics) -> None:
    """Beside a longer story, a story's last latent does not hear what lies behind its end."""
    Z, S = torch.randn(1, 2, D).double(), torch.tensor([[0, 2]])
    phi = Potential(torch.randn(1, 2, D).double(), torch.rand(1, 2, D).double())
    noise = torch.randn(1, 3, D).double()
    conditional = LatentConditional(moves)
    alone = sweep_Z(conditional, Z, S, phi, torch.ones(1, 2, dtype=torch.bool), noise[:, :2])

    def longer(t: Tensor, fill: float) -> Tensor:
        return torch.cat([t, torch.full_like(t[:, :1], fill)], 1)

    padded = sweep_Z(
        conditional, longer(Z, 9.0), longer(S, -1), Potential(longer(phi.mean, 5.0), longer(phi.precision, 2.0)),
        torch.tensor([[True, True, False]]), noise,
    )  # fmt: skip
    assert torch.allclose(padded[:, :2], alone, atol=1e-12)
