"""The linear-Gaussian chain against its dense joint precision, in float64."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn import functional as F

from fabula.models.chain import Chain, chain
from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import Potential
from small import random_dynamics

K, D, N = 3, 2, 4


@pytest.fixture
def dynamics() -> Dynamics:
    return random_dynamics(K, D, seed=2)


def story() -> tuple[Tensor, Potential, Tensor]:
    """Three stories: whole, with missing sentences, and a short one."""
    generator = torch.Generator().manual_seed(5)
    S = torch.randint(0, K, (3, N), generator=generator)
    present = torch.tensor([[True] * 4, [True] * 4, [True, True, False, False]])
    known = torch.tensor([[True] * 4, [True, False, False, True], [False, True, True, True]])
    mean = torch.randn(3, N, D, generator=generator, dtype=torch.float64)
    precision = torch.rand(3, N, D, generator=generator, dtype=torch.float64) * 3
    return S, Potential(mean, precision).where(known), present


def dense(dynamics: Dynamics, s: Tensor, phi: Potential, row: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, covariance and log integral of one story, by writing the whole joint precision down; s is soft."""
    precision, h = torch.zeros(n * D, n * D, dtype=torch.float64), torch.zeros(n * D, dtype=torch.float64)
    constant = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        A = torch.einsum("k,kij->ij", s[row, i], dynamics.A)
        bias, Q = s[row, i] @ dynamics.bias, torch.linalg.inv(torch.einsum("k,kij->ij", s[row, i], dynamics.Sigma()))
        P, m = torch.diag(phi.precision[row, i]), phi.mean[row, i]
        own, before = slice(i * D, (i + 1) * D), slice((i - 1) * D, i * D)
        precision[own, own] += Q + P
        h[own] += Q @ bias + P @ m
        constant += 0.5 * torch.logdet(Q) - 0.5 * bias @ Q @ bias - 0.5 * m @ P @ m
        if i:
            precision[before, before] += A.T @ Q @ A
            precision[before, own] -= A.T @ Q
            precision[own, before] -= Q @ A
            h[before] -= A.T @ Q @ bias
    covariance = torch.linalg.inv(precision)
    mean = covariance @ h
    return mean, covariance, constant + 0.5 * torch.logdet(covariance) + 0.5 * h @ mean


@pytest.mark.parametrize("soft", [False, True], ids=["hard S", "soft S"])
def test_chain_is_the_dense_joint(dynamics: Dynamics, soft: bool) -> None:
    """Mean, covariance (by pushing unit vectors through the draw), log integral and log density."""
    S, phi, present = story()
    s = F.one_hot(S, K).double()
    if soft:
        s = (s + 0.2) / (1 + 0.2 * K)
    joint = chain(dynamics, s if soft else S, phi, present)
    still = torch.zeros(3, 1, N, D, dtype=torch.float64)
    for row in range(3):
        n = int(present[row].sum())
        mean, covariance, log_integral = dense(dynamics, s, phi, row, n)
        torch.testing.assert_close(joint.sample(still)[row, 0, :n].flatten(), mean, rtol=0, atol=1e-10)
        torch.testing.assert_close(joint.log_evidence[row], log_integral, rtol=0, atol=1e-10)
        units = torch.zeros(3, n * D, N, D, dtype=torch.float64)
        units[row, :, :n] = torch.eye(n * D, dtype=torch.float64).view(n * D, n, D)
        root = joint.sample(units)[row, :, :n].flatten(1) - mean
        torch.testing.assert_close(root.T @ root, covariance, rtol=0, atol=1e-10)
        noise = torch.randn(3, 6, N, D, dtype=torch.float64)
        Z = joint.sample(noise)[row, :, :n].flatten(1)
        expected = MultivariateNormal(mean, covariance).log_prob(Z)
        torch.testing.assert_close(joint.log_density(noise)[row], expected, rtol=0, atol=1e-9)


def test_gradients_of_the_chain(dynamics: Dynamics) -> None:
    """gradcheck of the draw, its density and the integral, with respect to evidence and dynamics."""
    S, phi, present = story()
    noise = torch.randn(3, 1, N, D, dtype=torch.float64)

    def values(mean: Tensor, precision: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        joint: Chain = chain(dynamics, S, Potential(mean, precision), present)
        Z = joint.sample(noise) * present[:, None, :, None]
        return Z, joint.log_density(noise), joint.log_evidence

    mean, precision = phi.mean.clone().requires_grad_(), phi.precision.clone().requires_grad_()
    # gradcheck changes its inputs in place, so the parameters that `chain` reads change with them.
    assert torch.autograd.gradcheck(values, (mean, precision, *dynamics.parameters()))
