"""p(Z_i | Z_{i-1}, S_i) against its dense construction, in float64."""

import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.nn import functional as F

from fabula.statespace.dynamics import LinearGaussian
from small import random_dynamics

K, D = 3, 4


@pytest.fixture
def made() -> LinearGaussian:
    return random_dynamics(K, D, seed=0)


def B(made: LinearGaussian) -> torch.Tensor:
    """The noise factor of every state, written down from the parameters."""
    return torch.diag_embed(made.log_B.exp())


def test_each_state_is_a_linear_gaussian_step(made: LinearGaussian) -> None:
    z_prev, z = torch.randn(5, D, dtype=torch.float64), torch.randn(5, D, dtype=torch.float64)
    each = made.log_prob_each(z_prev, z)
    for k in range(K):
        covariance = B(made)[k] @ B(made)[k].T
        expected = MultivariateNormal(z_prev @ made.A[k].T + made.bias[k], covariance).log_prob(z)
        torch.testing.assert_close(each[:, k], expected, rtol=0, atol=1e-10)
        hard = F.one_hot(torch.full((5,), k), K).double()
        torch.testing.assert_close(made(z_prev, hard).log_prob(z), expected, rtol=0, atol=1e-10)


def test_a_soft_state_mixes_the_matrices(made: LinearGaussian) -> None:
    """A, bias and Sigma are mixed, not the densities: the paper's soft Gumbel-Softmax."""
    z_prev, z = torch.randn(5, D, dtype=torch.float64), torch.randn(5, D, dtype=torch.float64)
    s = torch.rand(5, K, dtype=torch.float64).softmax(-1)
    p = made(z_prev, s)
    for row in range(5):
        A = torch.einsum("k,kij->ij", s[row], made.A)
        Sigma = torch.einsum("k,kij->ij", s[row], B(made) @ B(made).transpose(-1, -2))
        expected = MultivariateNormal(A @ z_prev[row] + s[row] @ made.bias, Sigma).log_prob(z[row])
        torch.testing.assert_close(p.log_prob(z)[row], expected, rtol=0, atol=1e-10)
