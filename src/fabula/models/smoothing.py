"""Exact inference in the linear-Gaussian chain for a given S: filter forward, sample backward.

    p(Z | S, phi) ∝ prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i),      Z_0 = 0

A missing sentence has phi of precision zero; nothing is inverted that its evidence could make singular: with
W = diag(precision)^1/2 the update is C = P - P W (I + W P W)^-1 W P, and I + W P W is at least the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import Potential


class Filtered(NamedTuple):
    """p(Z_i | S, phi_1..i) for every i, the step it came by, and log of the integral of everything so far."""

    mean: Float[Tensor, "batch sent latent"]
    covariance: Float[Tensor, "batch sent latent latent"]
    log_evidence: Float[Tensor, " batch"]


def filter_forward(
    dynamics: Dynamics,
    S: Int[Tensor, "batch sent"] | Float[Tensor, "batch sent state"],
    phi: Potential,
    present: Bool[Tensor, "batch sent"],
) -> Filtered:
    """The Kalman filter with potentials for observations; sentences that are not `present` copy the step before.

    `S` is hard (a state for each sentence) or soft (a point of the simplex, which mixes the dynamics convexly).
    """
    A = dynamics.A
    batch, N = present.shape
    D = dynamics.D
    steps = _steps(dynamics, S)
    eye = torch.eye(D, dtype=A.dtype, device=A.device)
    mean = A.new_zeros(batch, D)
    covariance = A.new_zeros(batch, D, D)
    log_evidence = A.new_zeros(batch)
    means, covariances = [], []
    for i in range(N):
        A_s, bias_s, Sigma_s = steps(i)
        predicted = (A_s @ mean.unsqueeze(-1)).squeeze(-1) + bias_s
        P = A_s @ covariance @ A_s.transpose(-1, -2) + Sigma_s
        # The floor only keeps the root's gradient finite where there is no evidence.
        W = phi.precision[:, i].clamp(min=1e-30).sqrt()
        PW = P * W.unsqueeze(-2)
        factor = torch.linalg.cholesky(eye + W.unsqueeze(-1) * PW)
        residual = W * (phi.mean[:, i] - predicted)
        gain = torch.cholesky_solve(PW.transpose(-1, -2), factor).transpose(-1, -2)  # P W (I + W P W)^-1
        white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1)
        step_log = -0.5 * (white**2).sum(-1) - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        here = present[:, i]
        updated = P - gain @ PW.transpose(-1, -2)
        updated = 0.5 * (updated + updated.transpose(-1, -2))
        new_mean = predicted + (gain @ residual.unsqueeze(-1)).squeeze(-1)
        mean = torch.where(here[:, None], new_mean, mean)
        covariance = torch.where(here[:, None, None], updated, covariance)
        log_evidence = log_evidence + torch.where(here, step_log, 0.0)
        means.append(mean)
        covariances.append(covariance)
    return Filtered(torch.stack(means, 1), torch.stack(covariances, 1), log_evidence)


def sample_backward(
    dynamics: Dynamics,
    S: Int[Tensor, "batch sent"] | Float[Tensor, "batch sent state"],
    filtered: Filtered,
    present: Bool[Tensor, "batch sent"],
    noise: Float[Tensor, "batch sample sent latent"],
    step_noise: Float[Tensor, "batch sample sent latent"],
) -> Float[Tensor, "batch sample sent latent"]:
    """Joint draws Z ~ p(Z | S, phi), many per row, backward from the end.

    Each step draws a pair (z_i', z_{i+1}') from the filter and the dynamics and corrects it by the regression of
    z_i on z_{i+1}: exact, and no difference of covariances has to stay positive definite.
    """
    N = present.shape[1]
    steps = _steps(dynamics, S)
    roots = _root(filtered.covariance)
    z = _affine(roots[:, -1], noise[:, :, -1], filtered.mean[:, -1])
    Z = [z]
    for i in range(N - 2, -1, -1):
        A_s, bias_s, Sigma_s = steps(i + 1)
        mean, covariance = filtered.mean[:, i], filtered.covariance[:, i]
        z_free = _affine(roots[:, i], noise[:, :, i], mean)
        moved = step_noise[:, :, i] @ torch.linalg.cholesky(Sigma_s).transpose(-1, -2)
        z_next_free = _affine(A_s, z_free, bias_s) + moved
        AC = A_s @ covariance
        P = AC @ A_s.transpose(-1, -2) + Sigma_s
        J = torch.cholesky_solve(AC, torch.linalg.cholesky(P))  # (A C A^T + Sigma)^-1 A C
        corrected = z_free + (z - z_next_free) @ J
        z = torch.where(present[:, i + 1, None, None], corrected, z)
        Z.append(z)
    return torch.stack(Z[::-1], dim=2)


def _steps(dynamics: Dynamics, S: Tensor) -> Callable[[int], tuple[Tensor, Tensor, Tensor]]:
    """A, bias and Sigma of the step into sentence i, for every row."""
    A, bias, Sigma = dynamics.A, dynamics.bias, dynamics.Sigma()

    def step(i: int) -> tuple[Tensor, Tensor, Tensor]:
        if S.is_floating_point():
            s = S[:, i].to(A.dtype)
            return torch.einsum("bk,kij->bij", s, A), s @ bias, torch.einsum("bk,kij->bij", s, Sigma)
        s = S[:, i].clamp(min=0)
        return A[s], bias[s], Sigma[s]

    return step


def _affine(matrix: Tensor, z: Tensor, shift: Tensor) -> Tensor:
    """matrix @ z + shift for every sample: batch latent latent, batch sample latent, batch latent."""
    return z @ matrix.transpose(-1, -2) + shift.unsqueeze(1)


def _root(covariance: Float[Tensor, "batch sent latent latent"]) -> Tensor:
    """A lower factor of each covariance; the jitter is far below what float32 resolves in it."""
    scale = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    tiny = 1e-6 if covariance.dtype == torch.float32 else 1e-13
    return torch.linalg.cholesky(covariance + tiny * scale * eye)
