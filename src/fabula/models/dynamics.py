"""Factor 2, the narrative dynamics: p(Z_i | Z_{i-1}, S_i), one linear-Gaussian step per state (Section 2.4)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fabula.models.gaussian import Dense, Diagonal, Gaussian


class Dynamics(nn.Module, ABC):
    """One linear-Gaussian step per switching state.

        Z_i = A[S_i] Z_{i-1} + bias[S_i] + B[S_i] eps,   eps ~ N(0, I),   Z_0 = 0

    so p(Z_i | Z_{i-1}, S_i) = N(A z + bias, B B^T). With K = 1 this is the LDS baseline.
    A soft `s` (a point of the simplex) mixes A, bias and Sigma = B B^T convexly, as the paper's Gumbel-Softmax does.
    """

    is_dense: bool
    """Whether B has anything below its diagonal."""

    def __init__(self, K: int, D: int) -> None:
        super().__init__()
        # Near the identity: a story keeps most of what it is about from one sentence to the next.
        self.A = nn.Parameter(0.8 * torch.eye(D).repeat(K, 1, 1) + 0.02 * torch.randn(K, D, D))
        self.bias = nn.Parameter(0.1 * torch.randn(K, D))

    @property
    def K(self) -> int:
        return self.A.shape[0]

    @property
    def D(self) -> int:
        return self.A.shape[1]

    @abstractmethod
    def Sigma(self) -> Float[Tensor, "state latent latent"]:
        """B B^T of every state, as a matrix."""

    @abstractmethod
    def forward(self, z_prev: Float[Tensor, "batch latent"], s: Float[Tensor, "batch state"]) -> Gaussian:
        """p(Z_i | Z_{i-1} = z_prev, S_i = s)."""

    @abstractmethod
    def log_prob_each(
        self, z_prev: Float[Tensor, "*batch latent"], z: Float[Tensor, "*batch latent"]
    ) -> Float[Tensor, "*batch state"]:
        """log p(Z_i = z | Z_{i-1} = z_prev, S_i = k) for every state k."""

    def mean_each(self, z_prev: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch state latent"]:
        """A[k] z_prev + bias[k] for every state k."""
        return torch.einsum("kij,...j->...ki", self.A, z_prev) + self.bias

    def mean(self, z_prev: Float[Tensor, "batch latent"], s: Float[Tensor, "batch state"]) -> Tensor:
        return (s.unsqueeze(-1) * self.mean_each(z_prev)).sum(-2)


class DiagonalDynamics(Dynamics):
    """Dynamics with a diagonal B (the authors' choice, and the fast one)."""

    is_dense = False

    def __init__(self, K: int, D: int) -> None:
        super().__init__(K, D)
        self.log_B = nn.Parameter(torch.full((K, D), -0.5))

    def Sigma(self) -> Float[Tensor, "state latent latent"]:
        return torch.diag_embed((2 * self.log_B).exp())

    def forward(self, z_prev: Float[Tensor, "batch latent"], s: Float[Tensor, "batch state"]) -> Gaussian:
        return Diagonal(self.mean(z_prev, s), s @ (2 * self.log_B).exp())

    def log_prob_each(
        self, z_prev: Float[Tensor, "*batch latent"], z: Float[Tensor, "*batch latent"]
    ) -> Float[Tensor, "*batch state"]:
        return Diagonal(self.mean_each(z_prev), (2 * self.log_B).exp()).log_prob(z.unsqueeze(-2))


class DenseDynamics(Dynamics):
    """Dynamics with a full, lower-triangular B: noise that moves coordinates together."""

    is_dense = True

    def __init__(self, K: int, D: int) -> None:
        super().__init__(K, D)
        self.log_B_diagonal = nn.Parameter(torch.full((K, D), -0.5))
        self.B_below = nn.Parameter(torch.zeros(K, D, D))

    def B(self) -> Float[Tensor, "state latent latent"]:
        return torch.diag_embed(self.log_B_diagonal.exp()) + self.B_below.tril(-1)

    def Sigma(self) -> Float[Tensor, "state latent latent"]:
        B = self.B()
        return B @ B.transpose(-1, -2)

    def forward(self, z_prev: Float[Tensor, "batch latent"], s: Float[Tensor, "batch state"]) -> Gaussian:
        covariance = torch.einsum("bk,kij->bij", s, self.Sigma())
        return Dense.from_covariance(self.mean(z_prev, s), covariance)

    def log_prob_each(
        self, z_prev: Float[Tensor, "*batch latent"], z: Float[Tensor, "*batch latent"]
    ) -> Float[Tensor, "*batch state"]:
        return Dense.from_covariance(self.mean_each(z_prev), self.Sigma()).log_prob(z.unsqueeze(-2))


def dynamics(noise: str, K: int, D: int) -> Dynamics:
    """The dynamics a recipe names: `diagonal` or `full` B."""
    return DenseDynamics(K, D) if noise == "full" else DiagonalDynamics(K, D)
