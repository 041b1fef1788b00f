"""The densities of one latent step against torch's own multivariate normal, in float64."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from fabula.models.gaussian import Dense, Diagonal, Potential

D = 3
Pair = tuple[Diagonal | Dense, MultivariateNormal]


@pytest.fixture(params=["diagonal", "dense"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """A density and the same by torch."""
    torch.manual_seed(1)
    mean, variance = torch.randn(4, D).double(), torch.randn(4, D).double().exp()
    if request.param == "diagonal":
        return Diagonal(mean, variance), MultivariateNormal(mean, torch.diag_embed(variance))
    factor = torch.randn(4, D, D).double().tril(-1) + torch.diag_embed(variance)
    return Dense(mean, factor), MultivariateNormal(mean, precision_matrix=factor @ factor.transpose(-1, -2))


def test_densities_and_draws_are_the_multivariate_normals(pair: Pair) -> None:
    """Pushing the unit vectors through rsample gives the columns of a root of the covariance."""
    ours, reference = pair
    z = torch.randn(4, D, dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(z), reference.log_prob(z), rtol=0, atol=1e-10)
    unit = torch.eye(D, dtype=torch.float64)
    root = torch.stack([ours.rsample(unit[d].expand(4, D)) - ours.mean for d in range(D)], -1)
    torch.testing.assert_close(root @ root.transpose(-1, -2), reference.covariance_matrix, rtol=1e-9, atol=1e-9)


def test_times_is_the_normalised_product_and_kl_the_closed_form() -> None:
    """log p(z) + log phi(z) - log product(z) is constant in z, also where phi has precision 0 in a coordinate."""
    torch.manual_seed(2)
    precision = torch.rand(4, D).double()
    precision[:, 1] = 0
    p, phi = Diagonal(torch.randn(4, D).double(), torch.randn(4, D).double().exp()), Potential(precision, precision)
    q, z = p.times(phi), torch.randn(7, 4, D).double()
    constant = p.log_prob(z) + phi.log(z) - q.log_prob(z)
    torch.testing.assert_close(constant, constant[:1].expand_as(constant), rtol=0, atol=1e-10)
    normals = [MultivariateNormal(each.mean, torch.diag_embed(each.variance)) for each in (q, p)]
    torch.testing.assert_close(q.kl(p), kl_divergence(*normals), rtol=0, atol=1e-10)
