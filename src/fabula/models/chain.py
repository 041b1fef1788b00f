"""Exact inference in the linear-Gaussian chain for given dynamics at every step, linear in N.

    q(Z | S, phi) ∝ prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i),      Z_0 = 0

Z is jointly Gaussian with a block-tridiagonal precision Λ (D x D blocks) and information vector h. One Cholesky
factorisation Λ = L Lᵀ, block by block, gives everything: joint draws solve Lᵀ Z = L⁻¹ h + eps, and their density needs
only eps and the diagonal of L. The integral of all potentials follows too. A missing sentence has a potential of
precision zero and adds nothing to Λ.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import LOG_2PI, Potential
from fabula.shapes import Mask, PerState, PerStory, Tags


class Chain(NamedTuple):
    """The factorised density of Z given S and the evidence."""

    diagonal: Float[Tensor, "sent batch latent latent"]
    """L_ii, lower triangular."""
    below: Float[Tensor, "links batch latent latent"]
    """L_{i+1,i}."""
    pulled: Float[Tensor, "sent batch latent"]
    """L⁻¹ h."""
    log_evidence: PerStory
    """log of the integral of prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i) over all Z."""
    present: Mask

    def sample(self, noise: Float[Tensor, "batch sample sent latent"]) -> Float[Tensor, "batch sample sent latent"]:
        """Joint draws, many per row, backward from the end; the noise is the caller's, zero noise gives the mean."""
        N = noise.shape[2]
        z = noise.new_zeros(())
        Z = []
        for i in range(N - 1, -1, -1):
            right = self.pulled[i].unsqueeze(1) + noise[:, :, i]
            if i < N - 1:
                right = right - z @ self.below[i]
            # z L = right, row by row: the transpose of Lᵀ zᵀ = rightᵀ.
            z = torch.linalg.solve_triangular(self.diagonal[i], right, upper=False, left=False)
            Z.append(z)
        return torch.stack(Z[::-1], dim=2)

    def log_density(self, noise: Float[Tensor, "batch sample sent latent"]) -> Float[Tensor, "batch sample"]:
        """log q of the draws that `sample` makes of this noise."""
        log_det = self.diagonal.diagonal(dim1=-2, dim2=-1).log().sum(-1).T
        here = self.present.to(noise.dtype)
        exponent = -0.5 * (noise**2 + LOG_2PI).sum(-1)
        return ((exponent + log_det.unsqueeze(1)) * here.unsqueeze(1)).sum(-1)


def chain(dynamics: Dynamics, S: Tags | PerState, phi: Potential, present: Mask) -> Chain:
    """Factorise q(Z | S, phi). S is hard (a state per sentence) or soft (it mixes A, bias and Sigma convexly).

    Sentences that are not `present` (behind a story's end) become independent standard normals.
    """
    A, bias, Q = steps(dynamics, S, present)
    N = bias.shape[1]
    P = phi.precision * present.unsqueeze(-1)
    QA = Q @ A
    # What the step into i+1 says about Z_i; nothing follows the last sentence.
    carried = torch.cat([(A.transpose(-1, -2) @ QA)[:, 1:], torch.zeros_like(QA[:, :1])], 1)
    blocks = Q + carried + torch.diag_embed(P)
    Qb = (Q @ bias.unsqueeze(-1)).squeeze(-1)
    back = (QA.transpose(-1, -2) @ bias.unsqueeze(-1)).squeeze(-1)
    h = Qb + P * phi.mean - torch.cat([back[:, 1:], torch.zeros_like(back[:, :1])], 1)
    L = torch.linalg.cholesky_ex(blocks[:, 0]).L
    y = torch.linalg.solve_triangular(L, h[:, 0].unsqueeze(-1), upper=False)
    diagonal, below, pulled = [L], [], [y]
    for i in range(1, N):
        # W = Λ_{i,i-1} L⁻ᵀ with Λ_{i,i-1} = -Q_i A_i.
        W = torch.linalg.solve_triangular(L.transpose(-1, -2), -QA[:, i], upper=True, left=False)
        L = torch.linalg.cholesky_ex(blocks[:, i] - W @ W.transpose(-1, -2)).L
        y = torch.linalg.solve_triangular(L, h[:, i].unsqueeze(-1) - W @ y, upper=False)
        diagonal.append(L)
        below.append(W)
        pulled.append(y)
    factors, y_all = torch.stack(diagonal), torch.stack(pulled).squeeze(-1)
    log_det = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1).T
    prior = 0.5 * Q.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    each = prior - log_det + 0.5 * ((y_all**2).sum(-1).T - (bias * Qb).sum(-1) - (P * phi.mean**2).sum(-1))
    links = torch.stack(below) if below else factors[:0]
    return Chain(factors, links, y_all, (each * present).sum(-1), present)


def steps(dynamics: Dynamics, S: Tensor, present: Mask) -> tuple[Tensor, Tensor, Tensor]:
    """A, bias and the precision Q = Sigma⁻¹ of the step into every sentence, for every row."""
    here = present[..., None, None]
    if S.is_floating_point():
        s = S.to(dynamics.A.dtype)
        A, bias = torch.einsum("bnk,kij->bnij", s, dynamics.A), s @ dynamics.bias
        variance = torch.einsum("bnk,ki->bni", s, dynamics.variance())
    else:
        s = S.clamp(min=0)
        A, bias, variance = dynamics.A[s], dynamics.bias[s], dynamics.variance()[s]
    eye = torch.eye(dynamics.D, dtype=A.dtype, device=A.device)
    return A * here, bias * present.unsqueeze(-1), torch.where(here, torch.diag_embed(1 / variance), eye)
