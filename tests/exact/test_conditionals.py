"""Eq. (1) and the sweep over Z, against densities written out in float64."""

import pytest
import torch
from torch import Tensor

from fabula.sampling.gibbs import LatentConditional, sweep_Z
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.gaussian import Potential
from small import random_dynamics

D, K = 4, 3


@pytest.fixture
def moves() -> LinearGaussian:
    return random_dynamics(K, D, seed=1).requires_grad_(False)


def log_normal(z: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    residual = (z - mean).unsqueeze(-1)
    quadratic: Tensor = (residual * torch.linalg.solve(covariance, residual)).sum((-1, -2))
    log_det: Tensor = torch.linalg.slogdet(2 * torch.pi * covariance).logabsdet
    return -0.5 * (quadratic + log_det)


def log_q(moves: LinearGaussian, z: Tensor, z_prev: Tensor, s: int, phi: Potential) -> Tensor:
    prior = log_normal(z, moves.A[s] @ z_prev + moves.bias[s], moves.Sigma()[s])
    return prior - 0.5 * (phi.precision * (z - phi.mean) ** 2).sum(-1)


@pytest.mark.parametrize("followed", [True, False])
def test_latent_conditional_is_the_normalised_product(moves: LinearGaussian, followed: bool) -> None:
    """log p(z_next | z) + log q(z) - log conditional(z) is constant in z; the last latent comes from q alone."""
    phi = Potential(torch.randn(D).double(), torch.rand(D).double() * 3)
    z_prev, z_next, z = torch.randn(D).double(), torch.randn(D).double(), 2 * torch.randn(50, D).double()
    conditional = LatentConditional(moves)(
        z_prev[None], torch.tensor([1]), Potential(phi.mean[None], phi.precision[None]),
        z_next[None], torch.tensor([2]), torch.tensor([followed]),
    )  # fmt: skip
    onward = torch.stack([log_normal(z_next, moves.A[2] @ each + moves.bias[2], moves.Sigma()[2]) for each in z])
    product = followed * onward + torch.stack([log_q(moves, each, z_prev, 1, phi) for each in z])
    difference = product - conditional.log(z)
    assert (difference - difference[0]).abs().max() < 1e-9


def test_the_sweep_sees_the_new_before_and_the_old_after(moves: LinearGaussian) -> None:
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


def test_a_shorter_story_ends_where_it_ends(moves: LinearGaussian) -> None:
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
