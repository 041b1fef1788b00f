"""The exact posterior of Z in the linear-Gaussian chain for given dynamics at every step, linear in N.

    q(Z | S, phi) ∝ prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i),      Z_0 = 0, or p(Z_1 | S_1) given

Z is jointly Gaussian with a block-tridiagonal precision Λ (D x D blocks) and information vector h. One Cholesky
factorisation Λ = L Lᵀ, block by block, gives everything: joint draws solve Lᵀ Z = L⁻¹ h + eps, and their density needs
only eps and the diagonal of L. Marginals, the filter and the integral of all potentials follow too. A missing step has
a potential of precision zero and adds nothing to Λ.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fabula.shapes import Float, Latents, Mask, PerSentence, PerState, PerStory, Rows, Tags
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.gaussian import LOG_2PI, Information, Potential, check_positive_definite, cholesky


class Marginals(NamedTuple):
    """Moments of every Z_i."""

    mean: Latents
    covariance: Float[Tensor, "batch sent latent latent"]
    cross: Float[Tensor, "batch links latent latent"] | None = None
    """Cov(Z_i, Z_{i+1}); a filter has none."""


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
    carried: Float[Tensor, "links batch rows latent"]
    """What the step into i+1 says about Z_i: its part of Λ_ii and h_i."""

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

    def mean(self) -> Latents:
        """E[Z_i] of every step."""
        noise = torch.zeros_like(self.pulled).transpose(0, 1).unsqueeze(1)
        return self.sample(noise).squeeze(1)

    def marginals(self) -> Marginals:
        """The smoother: with R_i = L_ii⁻ᵀ and E_i = R_i L_{i+1,i}ᵀ,  Z_i = R_i (L⁻¹ h)_i - E_i Z_{i+1} + R_i eps_i."""
        eye = torch.eye(self.pulled.shape[-1], dtype=self.pulled.dtype, device=self.pulled.device)
        R = torch.linalg.solve_triangular(self.diagonal.mT, eye, upper=True)
        E, shift, alone = R[:-1] @ self.below.mT, R @ self.pulled.unsqueeze(-1), R @ R.mT
        mean, covariance = shift[-1], alone[-1]
        means, covariances, crosses = [mean], [covariance], []
        for i in range(len(E) - 1, -1, -1):
            moved = E[i] @ covariance
            mean = torch.baddbmm(shift[i], E[i], mean, alpha=-1)
            covariance = torch.baddbmm(alone[i], moved, E[i].mT)
            means.append(mean)
            covariances.append(covariance)
            crosses.append(moved)
        cross = -torch.stack(crosses[::-1], 1) if crosses else E.transpose(0, 1)
        return Marginals(torch.stack(means[::-1], 1).squeeze(-1), torch.stack(covariances[::-1], 1), cross)

    def filter(self) -> Marginals:
        """p(Z_i | phi_1 .. phi_i, S) of every step."""
        seen = torch.cat([self.diagonal, self.pulled.unsqueeze(-2)], -2) @ self.diagonal.mT
        seen = torch.cat([seen[:-1] - self.carried, seen[-1:]]).transpose(0, 1)
        return Marginals(*Information(seen[..., :-1, :], seen[..., -1, :], seen[..., 0, 0]).moments())

    def rows(self, rows: Rows) -> Chain:
        """The chains of some rows."""
        L, W, y, carried = (t[:, rows] for t in (self.diagonal, self.below, self.pulled, self.carried))
        return Chain(L, W, y, self.log_evidence[rows], self.present[rows], carried)


def chain(dynamics: LinearGaussian, S: Tags | PerState, phi: Potential | Information, present: Mask) -> Chain:
    """Factorise q(Z | S, phi). S is hard (a state per step) or soft (it mixes A, bias and Sigma convexly).

    `phi` has potentials for all steps, [batch, sent, ...]. Steps that are not `present` (behind a sequence's end)
    become independent standard normals. A matrix that is not positive definite is a `UserError`.
    """
    D, potential = dynamics.D, phi.information()
    joined, back, link, constant = steps(dynamics, S, present)
    if dynamics.initial is not None:
        first, _, _, scale = steps(dynamics.initial, S[:, :1], present[:, :1])
        joined, constant = torch.cat([first, joined[1:]]), torch.cat([scale, constant[:, 1:]], 1)
    here = present.to(joined.dtype)
    joined[:-1] += back[1:]
    joined[..., :D, :].addcmul_(potential.J.transpose(0, 1), here.T[..., None, None])
    joined[..., D, :].addcmul_(potential.h.transpose(0, 1), here.T[..., None])
    diagonal, solved, verdicts = [], [], []
    block = joined[0]
    for i in range(len(joined)):
        L, info = torch.linalg.cholesky_ex(block[:, :D])
        right = block[:, D:] if i + 1 == len(joined) else torch.cat([link[i + 1], block[:, D:]], 1)
        # [Λ_{i+1,i}; h_iᵀ] L⁻ᵀ = [L_{i+1,i}; (L⁻¹ h)_iᵀ]: one solve, and one product for what both take from i + 1.
        x = torch.linalg.solve_triangular(L, right.mT, upper=False).mT
        diagonal.append(L)
        solved.append(x)
        verdicts.append(info)
        if i + 1 < len(joined):
            block = torch.baddbmm(joined[i + 1], x, x[:, :D].mT, alpha=-1)
    check_positive_definite(torch.stack(verdicts, 1), "the precision of Z_i (row, step)")
    factors, pulled = torch.stack(diagonal), torch.stack([x[:, -1] for x in solved])
    links = torch.stack([x[:, :D] for x in solved[:-1]]) if len(solved) > 1 else factors[:0]
    log_det = factors.diagonal(dim1=-2, dim2=-1).log().sum(-1).T
    each = constant + potential.constant - log_det + 0.5 * pulled.square().sum(-1).T
    return Chain(factors, links, pulled, (each * here).sum(-1), present, back[1:])


def steps(dynamics: LinearGaussian, S: Tensor, present: Mask) -> tuple[Tensor, Tensor, Tensor, PerSentence]:
    """The step into every i as blocks of Λ and h, for every row.

    [Q; biasᵀ Q] on Z_i, [Aᵀ Q A; -biasᵀ Q A] on Z_{i-1} and Λ_{i,i-1} = -Q A, all [sent, batch, rows, columns], and
    (log det Q - biasᵀ Q bias) / 2, [batch, sent]; where there is no step, those of a standard normal.
    """
    soft = S.is_floating_point()
    A, bias = dynamics.A, dynamics.bias
    if soft:
        s = S.to(A.dtype)
        A, bias = torch.einsum("bnk,kij->nbij", s, A), torch.einsum("bnk,ki->nbi", s, bias)
    if soft and dynamics.lower is not None:
        B = cholesky(torch.einsum("bnk,kij->nbij", s, dynamics.Sigma()), "a mixed covariance")
        Q, log_det = torch.cholesky_inverse(B), -2 * B.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    elif soft:
        variance = torch.einsum("bnk,ki->nbi", s, dynamics.variance())
        Q, log_det = torch.diag_embed(1 / variance), -variance.log().sum(-1)
    else:
        Q, log_det = dynamics.precision(), -dynamics.variance().log().sum(-1)
    QA, row = Q @ A, bias.unsqueeze(-2)
    own = torch.cat([Q, row @ Q], -2)
    constant = 0.5 * (log_det - (bias * own[..., -1, :]).sum(-1))
    blocks = [own, torch.cat([A.mT @ QA, -(row @ QA)], -2), -QA]
    absent = [torch.eye(*own.shape[-2:]).to(own), *(torch.zeros_like(block.flatten(0, -3)[0]) for block in blocks[1:])]
    if soft:
        here = present.T[..., None, None]
        chosen = [torch.where(here, block, other) for block, other in zip(blocks, absent, strict=True)]
        return chosen[0], chosen[1], chosen[2], constant.T
    # One more state, of steps that are not there: an index is cheaper than a mask over all blocks.
    states = torch.where(present, S, dynamics.K).T
    tables = [torch.cat([block, other[None]]) for block, other in zip(blocks, absent, strict=True)]
    return tables[0][states], tables[1][states], tables[2][states], constant[S.clamp(min=0)]


class Blocks(NamedTuple):
    """One step into each state, as `steps` gives it, [..., state, ...]; and its messages."""

    own: Tensor
    back: Tensor
    link: Tensor
    constant: Tensor

    @staticmethod
    def of(dynamics: LinearGaussian) -> Blocks:
        states = torch.arange(dynamics.K, device=dynamics.A.device)[:, None]
        return Blocks(*(block.flatten(0, 1) for block in steps(dynamics, states, torch.ones_like(states).bool())))

    def at(self, s: Tensor) -> Blocks:
        return Blocks(*(block[s] for block in self))

    def reversed(self) -> Blocks:
        """The same p(z | z_prev, k), for messages that come from z and are about z_prev."""
        return Blocks(self.back, self.own, self.link.mT, self.constant)

    def given(self, z_prev: Tensor) -> Information:
        """p(z | z_prev, k) as a potential of z."""
        h = self.own[..., -1, :] - (self.link @ z_prev.unsqueeze(-1)).squeeze(-1)
        log_p = Information(self.back[..., :-1, :], self.back[..., -1, :], self.constant).log(z_prev)
        return Information(self.own[..., :-1, :].expand(*h.shape, -1), h, log_p - LOG_2PI * self.own.shape[-1] / 2)

    def forward(self, alpha: Information) -> Information:
        """∫ alpha(z_prev) p(z | z_prev, k) dz_prev as a potential of z."""
        D = alpha.h.shape[-1]
        L = cholesky(alpha.J + self.back[..., :D, :], "the precision of a particle's Z_i")
        right = torch.cat([self.link.mT.expand(*L.shape[:-1], -1), (alpha.h + self.back[..., D, :]).unsqueeze(-1)], -1)
        x: Tensor = torch.linalg.solve_triangular(L, right, upper=False)
        left = self.own - x.mT @ x[..., :D]
        log_scale = alpha.constant + self.constant - L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return Information(left[..., :D, :], left[..., D, :], log_scale + 0.5 * x[..., D].square().sum(-1))


class Draw(NamedTuple):
    """Z ~ q(Z | s, X), with log q(Z | s, X) and KL(q || p(Z | s)) of each sequence."""

    Z: Latents
    log_q: PerStory
    kl: PerStory


def draw_smoothing(
    dynamics: LinearGaussian, s: PerState, phi: Potential | Information, present: Mask, noise: Latents
) -> Draw:
    """All Z jointly from q(Z | s, X) ∝ prod_i p(Z_i | Z_{i-1}, s_i) phi_i(Z_i): each Z_i depends on every potential.

    log q - log p = sum_i log phi_i(Z_i) - log evidence, so the KL needs no second recursion.
    """
    q = chain(dynamics, s, phi, present)
    Z = q.sample(noise.unsqueeze(1)).squeeze(1)
    kl = (phi.log(Z) * present).sum(-1) - q.log_evidence
    return Draw(Z, q.log_density(noise.unsqueeze(1)).squeeze(1), kl)
