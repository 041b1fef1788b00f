"""The densities of one latent step against torch's own multivariate normal, in float64."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from fabula.statespace.gaussian import Diagonal, Information, Potential

D = 3


@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "information"])
def test_densities_and_draws_are_the_multivariate_normals(dense: bool) -> None:
    """Pushing the unit vectors through rsample gives the columns of a root of the covariance."""
    torch.manual_seed(1)
    mean, variance, z = torch.randn(4, D).double(), torch.randn(4, D).double().exp(), torch.randn(4, D).double()
    J = torch.randn(4, D, D).double().tril(-1) + torch.diag_embed(variance)
    J = J @ J.mT if dense else torch.diag_embed(1 / variance)
    reference = MultivariateNormal(mean, precision_matrix=J)
    phi = Information(J, (J @ mean.unsqueeze(-1)).squeeze(-1), mean[:, 0])
    ours = phi if dense else Diagonal(mean, variance)
    log_p = phi.log(z) - phi.log_integral() if dense else Diagonal(mean, variance).log_prob(z)
    torch.testing.assert_close(log_p, reference.log_prob(z), rtol=0, atol=1e-10)
    torch.testing.assert_close(phi.moments()[1], reference.covariance_matrix, rtol=1e-9, atol=1e-9)
    root = torch.stack([ours.rsample(unit.expand(4, D)) - mean for unit in torch.eye(D).double()], -1)
    torch.testing.assert_close(root @ root.mT, reference.covariance_matrix, rtol=1e-9, atol=1e-9)


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
