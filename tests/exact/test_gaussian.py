"""The laws of one latent step against torch's own multivariate normal, in float64."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from fabula.models.gaussian import Dense, Diagonal, Gaussian, Potential

D = 3


def laws() -> list[tuple[Gaussian, MultivariateNormal]]:
    generator = torch.Generator().manual_seed(1)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mean, variance = randn(4, D), randn(4, D).exp()
    root = randn(4, D, D)
    covariance = root @ root.transpose(-1, -2) + 0.3 * torch.eye(D, dtype=torch.float64)
    return [
        (Diagonal(mean, variance), MultivariateNormal(mean, torch.diag_embed(variance))),
        (Dense.from_covariance(mean, covariance), MultivariateNormal(mean, covariance)),
    ]


@pytest.fixture(params=[0, 1], ids=["diagonal", "dense"])
def law(request: pytest.FixtureRequest) -> tuple[Gaussian, MultivariateNormal]:
    chosen: int = request.param
    return laws()[chosen]


def test_log_density_is_the_multivariate_normals(law: tuple[Gaussian, MultivariateNormal]) -> None:
    ours, reference = law
    z = torch.randn(4, D, dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(z), reference.log_prob(z), rtol=0, atol=1e-10)


def test_a_draw_is_the_mean_plus_a_root_of_the_covariance(law: tuple[Gaussian, MultivariateNormal]) -> None:
    """Pushing the unit vectors through rsample gives the columns of a root; its square is the covariance."""
    ours, reference = law
    unit = torch.eye(D, dtype=torch.float64)
    columns = [ours.rsample(unit[d].expand(4, D)) - ours.mean for d in range(D)]
    root = torch.stack(columns, -1)
    torch.testing.assert_close(root @ root.transpose(-1, -2), reference.covariance_matrix, rtol=0, atol=1e-10)
    torch.testing.assert_close(ours.covariance(), reference.covariance_matrix, rtol=0, atol=1e-10)


def test_times_is_the_normalised_product(law: tuple[Gaussian, MultivariateNormal]) -> None:
    """log p(z) + log phi(z) - log product(z) is constant in z, also where phi says nothing of a coordinate."""
    ours, _ = law
    precision = torch.rand(4, D, dtype=torch.float64)
    precision[:, 1] = 0
    phi = Potential(torch.randn(4, D, dtype=torch.float64), precision)
    product = ours.times(phi)
    z = torch.randn(7, 4, D, dtype=torch.float64)
    constant = ours.log_prob(z) + phi.log(z) - product.log_prob(z)
    torch.testing.assert_close(constant, constant[:1].expand_as(constant), rtol=0, atol=1e-10)


def test_kl_is_the_closed_form(law: tuple[Gaussian, MultivariateNormal]) -> None:
    ours, reference = law
    phi = Potential(torch.randn(4, D, dtype=torch.float64), torch.rand(4, D, dtype=torch.float64))
    q = ours.times(phi)
    expected = kl_divergence(MultivariateNormal(q.mean, q.covariance()), reference)
    torch.testing.assert_close(q.kl(ours), expected, rtol=0, atol=1e-10)


def test_where_silences_a_potential() -> None:
    phi = Potential(torch.randn(2, 3, D), torch.rand(2, 3, D) + 1)
    known = torch.tensor([[True, False, True], [False, True, True]])
    assert (phi.where(known).precision[~known] == 0).all()
    assert torch.equal(phi.where(known).precision[known], phi.precision[known])
