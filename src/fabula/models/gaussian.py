"""Gaussians over one latent step, and the potentials that multiply them.

`Diagonal` (independent coordinates) is multiplied by a `Potential`, which makes q(Z_i | Z_{i-1}, S_i, X) in product
form: dynamics times evidence. `Dense` (any covariance) is the conditional of a whole story's Z_i.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


class Potential(NamedTuple):
    """phi(z) = exp(-1/2 sum_d precision_d (z_d - mean_d)^2): a Gaussian factor that need not be normalised.

    A precision of zero says nothing about z; that is how a missing sentence enters.
    """

    mean: Float[Tensor, "*batch latent"]
    precision: Float[Tensor, "*batch latent"]

    def log(self, z: Float[Tensor, "... latent"]) -> Float[Tensor, "..."]:
        return -0.5 * (self.precision * (z - self.mean) ** 2).sum(-1)

    def at(self, i: int) -> Potential:
        """The potential of sentence i, of a whole story's potentials."""
        return Potential(self.mean[..., i, :], self.precision[..., i, :])

    def where(self, known: Tensor) -> Potential:
        """The same with precision 0 where `known` is false."""
        return Potential(self.mean, self.precision * known.unsqueeze(-1).to(self.precision.dtype))


class Diagonal(NamedTuple):
    """N(mean, diag(variance))."""

    mean: Float[Tensor, "*batch latent"]
    variance: Float[Tensor, "*batch latent"]

    def rsample(self, noise: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch latent"]:
        """mean + B eps: a draw that carries gradients; the noise is the caller's."""
        return self.mean + self.variance.sqrt() * noise

    def log_prob(self, z: Float[Tensor, "... latent"]) -> Float[Tensor, "..."]:
        return -0.5 * ((z - self.mean) ** 2 / self.variance + self.variance.log() + LOG_2PI).sum(-1)

    def times(self, phi: Potential) -> Diagonal:
        """The normalised product of this density and a potential."""
        variance = self.variance / (1 + self.variance * phi.precision)
        return Diagonal(variance * (self.mean / self.variance + phi.precision * phi.mean), variance)

    def kl(self, p: Diagonal) -> Float[Tensor, "*batch"]:
        """KL(self || p) in closed form."""
        ratio = self.variance / p.variance
        return 0.5 * (ratio - 1 - ratio.log() + (self.mean - p.mean) ** 2 / p.variance).sum(-1)


class Dense(NamedTuple):
    """N(mean, (C C^T)^-1): the lower Cholesky factor C of the *precision*, because products add precisions."""

    mean: Float[Tensor, "*batch latent"]
    factor: Float[Tensor, "*batch latent latent"]

    def rsample(self, noise: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch latent"]:
        upper = self.factor.transpose(-1, -2)
        moved: Tensor = torch.linalg.solve_triangular(upper, noise.unsqueeze(-1), upper=True)
        return self.mean + moved.squeeze(-1)

    def log_prob(self, z: Float[Tensor, "... latent"]) -> Float[Tensor, "..."]:
        white = (self.factor.transpose(-1, -2) @ (z - self.mean).unsqueeze(-1)).squeeze(-1)
        return -0.5 * (white**2 + LOG_2PI).sum(-1) + self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
