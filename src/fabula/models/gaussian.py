"""Gaussians over one latent step, and the potentials that multiply them.

Two laws with the same methods: `Diagonal` (independent coordinates) and `Dense` (any covariance). Both can be
multiplied by a `Potential`, which is what makes q(Z_i | Z_{i-1}, S_i, X) in product form: dynamics times evidence.
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
        """The same, saying nothing where `known` is false."""
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
        """The normalised product of this law and a potential."""
        variance = self.variance / (1 + self.variance * phi.precision)
        return Diagonal(variance * (self.mean / self.variance + phi.precision * phi.mean), variance)

    def kl(self, p: Gaussian) -> Float[Tensor, "*batch"]:
        """KL(self || p) in closed form."""
        assert isinstance(p, Diagonal)
        ratio = self.variance / p.variance
        return 0.5 * (ratio - 1 - ratio.log() + (self.mean - p.mean) ** 2 / p.variance).sum(-1)

    def covariance(self) -> Float[Tensor, "*batch latent latent"]:
        return torch.diag_embed(self.variance)


class Dense(NamedTuple):
    """N(mean, (C C^T)^-1): the lower Cholesky factor C of the *precision*, because products add precisions."""

    mean: Float[Tensor, "*batch latent"]
    factor: Float[Tensor, "*batch latent latent"]

    @staticmethod
    def from_covariance(mean: Tensor, covariance: Tensor) -> Dense:
        precision = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
        return Dense(mean, torch.linalg.cholesky(precision))

    def rsample(self, noise: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch latent"]:
        upper = self.factor.transpose(-1, -2)
        moved: Tensor = torch.linalg.solve_triangular(upper, noise.unsqueeze(-1), upper=True)
        return self.mean + moved.squeeze(-1)

    def log_prob(self, z: Float[Tensor, "... latent"]) -> Float[Tensor, "..."]:
        white = (self.factor.transpose(-1, -2) @ (z - self.mean).unsqueeze(-1)).squeeze(-1)
        return -0.5 * (white**2 + LOG_2PI).sum(-1) + self._log_det_factor()

    def times(self, phi: Potential) -> Dense:
        own = self.factor @ self.factor.transpose(-1, -2)
        factor = torch.linalg.cholesky(own + torch.diag_embed(phi.precision))
        pull = (own @ self.mean.unsqueeze(-1)) + (phi.precision * phi.mean).unsqueeze(-1)
        return Dense(torch.cholesky_solve(pull, factor).squeeze(-1), factor)

    def kl(self, p: Gaussian) -> Float[Tensor, "*batch"]:
        assert isinstance(p, Dense)
        # tr(P_p Sigma_q) = || C_q^-1 C_p ||_F^2
        mixed: Tensor = torch.linalg.solve_triangular(self.factor, p.factor, upper=False)
        white = (p.factor.transpose(-1, -2) @ (self.mean - p.mean).unsqueeze(-1)).squeeze(-1)
        log_ratio = self._log_det_factor() - p._log_det_factor()
        return 0.5 * ((mixed**2).sum((-1, -2)) - self.mean.shape[-1] + (white**2).sum(-1)) + log_ratio

    def covariance(self) -> Float[Tensor, "*batch latent latent"]:
        return torch.cholesky_inverse(self.factor)

    def _log_det_factor(self) -> Tensor:
        return self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


Gaussian = Diagonal | Dense
