"""Gaussians over one latent step, and the potentials that multiply them.

`Diagonal` (independent coordinates) is multiplied by a `Potential`, which makes q(Z_i | Z_{i-1}, S_i, X) in product
form: dynamics times evidence. `Information` is a potential with any precision matrix.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fabula.errors import UserError
from fabula.shapes import Float

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

    def rows(self, rows: Tensor) -> Potential:
        return Potential(self.mean[rows], self.precision[rows])

    def information(self) -> Information:
        """The same in information form."""
        constant = -0.5 * (self.precision * self.mean**2).sum(-1)
        return Information(torch.diag_embed(self.precision), self.precision * self.mean, constant)


class Information(NamedTuple):
    """phi(z) = exp(-1/2 z^T J z + h^T z + constant): any Gaussian factor. J = 0, h = 0 says nothing about z."""

    J: Float[Tensor, "*batch latent latent"]
    h: Float[Tensor, "*batch latent"]
    constant: Float[Tensor, "*batch"]

    def log(self, z: Float[Tensor, "... latent"]) -> Float[Tensor, "..."]:
        return self.constant + (z * (self.h - 0.5 * (self.J @ z.unsqueeze(-1)).squeeze(-1))).sum(-1)

    def where(self, known: Tensor) -> Information:
        """The same where `known`, and 1 elsewhere."""
        weight = known.to(self.h.dtype)
        return Information(self.J * weight[..., None, None], self.h * weight[..., None], self.constant * weight)

    def rows(self, rows: Tensor) -> Information:
        return Information(self.J[rows], self.h[rows], self.constant[rows])

    def times(self, other: Information) -> Information:
        return Information(self.J + other.J, self.h + other.h, self.constant + other.constant)

    def information(self) -> Information:
        return self

    def moments(self) -> tuple[Float[Tensor, "*batch latent"], Float[Tensor, "*batch latent latent"]]:
        """Mean and covariance of the density that is proportional to it."""
        covariance = torch.cholesky_inverse(cholesky(self.J, "a precision"))
        return (covariance @ self.h.unsqueeze(-1)).squeeze(-1), covariance

    def rsample(self, noise: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch latent"]:
        """A draw from that density, which carries gradients; the noise is the caller's."""
        factor = cholesky(self.J, "a precision")
        moved: Tensor = torch.linalg.solve_triangular(factor.mT, noise.unsqueeze(-1), upper=True)
        return (torch.cholesky_solve(self.h.unsqueeze(-1), factor) + moved).squeeze(-1)

    def log_integral(self) -> Float[Tensor, "*batch"]:
        """log of its integral over z, which must be finite."""
        factor = cholesky(self.J, "a precision")
        white: Tensor = torch.linalg.solve_triangular(factor, self.h.unsqueeze(-1), upper=False)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return self.constant + 0.5 * (white.square().sum((-1, -2)) + self.h.shape[-1] * LOG_2PI) - log_det


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


def cholesky(matrix: Float[Tensor, "*batch latent latent"], name: str) -> Float[Tensor, "*batch latent latent"]:
    """The lower Cholesky factor, or an error that says which matrix has none."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    check_positive_definite(info, name)
    return factor


def check_positive_definite(info: Tensor, name: str) -> None:
    """Raise where LAPACK's verdicts name a matrix that is not positive definite. Waits once for a GPU."""
    if bool(info.any()):
        place = tuple(info.nonzero()[0].tolist())
        raise UserError(
            f"{name} is not positive definite (the first of {int((info != 0).sum())} is at {place}): covariances must "
            "be positive definite, precisions of potentials positive semidefinite, and all of them finite"
        )
