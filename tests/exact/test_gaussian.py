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


def test_log_density_is_the_multivariate_normals(pair: Pair) -> None:
    ours, reference = pair
    z = torch.randn(4, D, dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(z), reference.log_prob(z), rtol=0, atol=1e-10)


def test_a_draw_is_the_mean_plus_a_root_of_the_covariance(pair: Pair) -> None:
    """Pushing the unit vectors through rsample gives the columns of a root; its square is the covariance."""
    ours, reference = pair
    unit = torch.eye(D, dtype=torch.float64)
    root = torch.stack([ours.rsample(unit[d].expand(4, D)) - ours.mean for d in range(D)], -1)
    torch.testing.assert_close(root @ root.transpose(-1, -2), reference.covariance_matrix, rtol=1e-9, atol=1e-9)


def a_product() -> tuple[Diagonal, Potential]:
    torch.manual_seed(2)
    precision = torch.rand(4, D, dtype=torch.float64)
    precision[:, 1] = 0
    return Diagonal(torch.randn(4, D).double(), torch.randn(4, D).double().exp()), Potential(
        torch.randn(4, D, dtype=torch.float64), precision
    )


def test_times_is_the_normalised_product() -> None:
    """log p(z) + log phi(z) - log product(z) is constant in z, also where phi has precision 0 in a coordinate."""
    p, phi = a_product()
    z = torch.randn(7, 4, D, dtype=torch.float64)
    constant = p.log_prob(z) + phi.log(z) - p.times(phi).log_prob(z)
    torch.testing.assert_close(constant, constant[:1].expand_as(constant), rtol=0, atol=1e-10)


def test_kl_is_the_closed_form() -> None:
    p, phi = a_product()
    q = p.times(phi)
    normals = [MultivariateNormal(each.mean, torch.diag_embed(each.variance)) for each in (q, p)]
    torch.testing.assert_close(q.kl(p), kl_divergence(*normals), rtol=0, atol=1e-10)


def test_where_silences_a_potential() -> None:
    phi = Potential(torch.randn(2, 3, D), torch.rand(2, 3, D) + 1)
    known = torch.tensor([[True, False, True], [False, True, True]])
    assert (phi.where(known).precision[~known] == 0).all()
    assert torch.equal(phi.where(known).precision[known], phi.precision[known])
