"""The full conditional of Z_i (the paper's Eq. 1), which the Gibbs sampler draws from."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import Dense, Potential


class LatentConditional:
    """Eq. (1): Z_i given its neighbours and its sentence,

        N(z_next; A z + bias, Sigma) q(z)  ∝  N(z; mu, Lambda^-1)
        Lambda = A^T Sigma^-1 A + Lambda_q
        mu     = Lambda^-1 (A^T Sigma^-1 (z_next - bias) + Lambda_q mu_q)

    with A, bias, Sigma those of S_{i+1}, and q(z) ∝ p(z | z_prev, S_i) phi_i(z). The paper prints it without the bias,
    which its model has; here the bias is subtracted from z_next.
    """

    def __init__(self, dynamics: Dynamics) -> None:
        self.dynamics = dynamics
        self.A, self.bias = dynamics.A, dynamics.bias
        Sigma = dynamics.Sigma()
        self.precision = torch.cholesky_inverse(torch.linalg.cholesky(Sigma))
        # A^T Sigma^-1 and A^T Sigma^-1 A of every state, once.
        self.pull = self.A.transpose(-1, -2) @ self.precision
        self.gram = self.pull @ self.A

    def q(
        self, z_prev: Float[Tensor, "batch latent"], s: Int[Tensor, " batch"], phi: Potential
    ) -> tuple[Float[Tensor, "batch latent latent"], Float[Tensor, "batch latent"]]:
        """q(Z_i | Z_{i-1}, S_i, X_i) in information form: precision, precision times mean."""
        mean = (self.A[s] @ z_prev.unsqueeze(-1)).squeeze(-1) + self.bias[s]
        Lambda = self.precision[s] + torch.diag_embed(phi.precision)
        return Lambda, (self.precision[s] @ mean.unsqueeze(-1)).squeeze(-1) + phi.precision * phi.mean

    def __call__(
        self,
        z_prev: Float[Tensor, "batch latent"],
        s: Int[Tensor, " batch"],
        phi: Potential,
        z_next: Float[Tensor, "batch latent"],
        s_next: Int[Tensor, " batch"],
        followed: Bool[Tensor, " batch"],
    ) -> Dense:
        """p(Z_i | everything else); where nothing follows it is q alone."""
        Lambda, eta = self.q(z_prev, s, phi)
        on = followed.to(Lambda.dtype)
        Lambda = Lambda + on[:, None, None] * self.gram[s_next]
        ahead = (self.pull[s_next] @ (z_next - self.bias[s_next]).unsqueeze(-1)).squeeze(-1)
        eta = eta + on[:, None] * ahead
        factor = torch.linalg.cholesky(Lambda)
        return Dense(torch.cholesky_solve(eta.unsqueeze(-1), factor).squeeze(-1), factor)


def sweep_Z(
    conditional: LatentConditional,
    Z: Float[Tensor, "batch sent latent"],
    S: Int[Tensor, "batch sent"],
    phi: Potential,
    present: Bool[Tensor, "batch sent"],
    noise: Float[Tensor, "batch sent latent"],
) -> Float[Tensor, "batch sent latent"]:
    """Every Z_i in order from Eq. (1), each seeing the new Z_{i-1} and the old Z_{i+1}; the last from q alone."""
    N = Z.shape[1]
    S = S.clamp(min=0)
    z_prev = torch.zeros_like(Z[:, 0])
    new = []
    for i in range(N):
        ahead = min(i + 1, N - 1)
        followed = present[:, ahead] if i + 1 < N else torch.zeros_like(present[:, i])
        p = conditional(z_prev, S[:, i], phi.at(i), Z[:, ahead], S[:, ahead], followed)
        z_prev = p.rsample(noise[:, i])
        new.append(z_prev)
    return torch.stack(new, 1)
