"""A switching linear dynamical system over numbers, and what its samplers draw from.

    p(S, Z, X) = prod_i p(S_i | S_{i-1}) p(Z_i | Z_{i-1}, S_i) N(X_i; C Z_i + d, R)

With K = 1 it is the LDS, and everything below is the Kalman filter and smoother. Other likelihoods enter as potentials
(`Information`, `Potential`) or as any differentiable log p(X_i | Z_i) (`Target.log_likelihood`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fabula.errors import UserError
from fabula.shapes import Bool, Float, Latents, Mask, PerSentence, PerStory, Rows, Tags
from fabula.statespace.chain import Chain, chain
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.gaussian import LOG_2PI, Information
from fabula.statespace.markov import MarkovChain, allowed_states, pick


class Target(NamedTuple):
    """(S, Z) ~ p(S | Z) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i), over the allowed states; rows are independent."""

    switches: MarkovChain
    dynamics: LinearGaussian
    phi: Information
    present: Mask
    allowed: Bool[Tensor, "batch sent state"]
    log_likelihood: Callable[[Latents, Rows], PerSentence] | None = None
    """Beside phi: log p(X_i | Z_i) of every step, differentiable; the second argument names the X of each row."""
    origin: Rows | None = None
    """The row of X of each row, where rows were repeated."""

    def repeat(self, chains: int) -> Target:
        """Every row `chains` times, side by side."""
        rows = torch.arange(len(self.present), device=self.present.device).repeat_interleave(chains)
        phi, origin = self.phi.rows(rows), rows if self.origin is None else self.origin[rows]
        return self._replace(phi=phi, present=self.present[rows], allowed=self.allowed[rows], origin=origin)

    def is_gaussian(self) -> bool:
        """Whether Z given S is Gaussian: no recurrent switches, no likelihood beside phi."""
        return self.log_likelihood is None and self.switches.transitions(self.phi.h) is None

    def log_factor(self, S: Tags, Z: Latents) -> PerSentence:
        """What is not Gaussian in each Z_i: log p(X_i | Z_i) + log p(S_{i+1} | S_i, Z_i) of recurrent switches."""
        each, transitions = self.log_likelihoods(Z), self.switches.transitions(Z)
        if transitions is None:
            return each
        return each + nn.functional.pad(self.switches.log_prob_each(S, self.present, transitions), (0, 1))

    def log_likelihoods(self, Z: Latents) -> PerSentence:
        """log p(X_i | Z_i) beside phi, of the steps that are present."""
        if self.log_likelihood is None:
            return torch.zeros_like(Z[..., 0])
        rows = torch.arange(len(Z), device=Z.device) if self.origin is None else self.origin
        return self.log_likelihood(Z, rows) * self.present

    def log_joint(self, S: Tags, Z: Latents) -> PerStory:
        """log of the density above, not normalised."""
        of_Z = self.dynamics.log_prob_steps(Z).gather(2, S.clamp(min=0).unsqueeze(2)).squeeze(2)
        of_Z = of_Z + self.phi.log(Z) + self.log_likelihoods(Z)
        return self.switches.log_prob(S, self.present, self.switches.transitions(Z)) + (of_Z * self.present).sum(-1)


class SwitchingLDS(nn.Module):
    """The model with linear-Gaussian emissions: C, d, R are `emissions.A[0]`, `.bias[0]`, `.Sigma()[0]`."""

    def __init__(
        self, dynamics: LinearGaussian, emissions: LinearGaussian, switches: MarkovChain | None = None
    ) -> None:
        """`switches` may be left out where there is one state."""
        super().__init__()
        if switches is None:
            switches = MarkovChain(torch.ones(1).to(dynamics.A), torch.ones(1, 1).to(dynamics.A))
        if switches.K != dynamics.K:
            raise UserError(f"the Markov chain has {switches.K} states, the dynamics {dynamics.K}")
        self.dynamics, self.emissions, self.switches = dynamics, emissions, switches

    def potentials(self, X: Float[Tensor, "batch sent observed"], observed: Mask | None = None) -> Information:
        """phi_i(z) = N(X_i; C z + d, R), with all constants; 1 where a step is missing: not `observed`, or with NaN."""
        observed = ~X.isnan().any(-1) if observed is None else observed & ~X.isnan().any(-1)
        C, Q = self.emissions.A[0], self.emissions.precision()[0]
        residual = torch.where(observed.unsqueeze(-1), X, 0.0) - self.emissions.bias[0]
        pulled = residual @ Q
        log_det = -2 * self.emissions.B()[0].diagonal().log().sum()
        constant = 0.5 * (log_det - X.shape[-1] * LOG_2PI - (pulled * residual).sum(-1))
        J = (C.T @ Q @ C).expand(*X.shape[:2], -1, -1)
        return Information(J, pulled @ C, constant).where(observed)

    def target(
        self, X: Float[Tensor, "batch sent observed"], *, observed: Mask | None = None,
        lengths: Tensor | None = None, S: Tags | None = None,
    ) -> Target:  # fmt: skip
        """p(S, Z | X) for the samplers. Sequences end at their `lengths`; S has the states that are known, -1 else."""
        steps = torch.arange(X.shape[1], device=X.device)
        present = (steps < (X.shape[1] if lengths is None else lengths.to(X.device)[:, None])).expand(X.shape[:2])
        known = torch.full(X.shape[:2], -1, device=X.device) if S is None else S
        phi = self.potentials(X, present if observed is None else observed & present)
        return Target(self.switches, self.dynamics, phi, present, allowed_states(known, self.switches.K))

    def posterior(self, X: Float[Tensor, "batch sent observed"], *, S: Tags | None = None, **given: Tensor) -> Chain:
        """p(Z | X, S), exact: `.marginals()`, `.filter()`, `.sample(noise)`, `.log_evidence` = log p(X | S).

        `given` is `observed` and `lengths` of `target`. S must be given where there are several states, and the
        switches must not be recurrent.
        """
        if S is None and self.switches.K > 1:
            raise UserError("with several states p(Z | X) needs S, or a sampler (enumeration, gibbs, ...)")
        target = self.target(X, **given)
        return chain(self.dynamics, target.present * 0 if S is None else S, target.phi, target.present)

    @torch.no_grad()
    def sample(self, N: int, rows: int, generator: torch.Generator | None = None) -> tuple[Tags, Latents, Tensor]:
        """S, Z and X of `rows` sequences of N steps."""
        A, first = self.dynamics.A, self.dynamics.initial
        uniform = torch.rand(rows, N, generator=generator).to(A)
        normal = torch.randn(rows, N, A.shape[1] + self.emissions.D, generator=generator).to(A)
        s = pick(self.switches.initial().expand(rows, -1), uniform[:, 0])
        noise, z = normal[:, :, : A.shape[1]], A.new_zeros(rows, A.shape[1])
        z = self.dynamics.sample(z, s, noise[:, 0]) if first is None else first.sample(z[:, :0], s, noise[:, 0])
        S, Z = [s], [z]
        for i in range(1, N):
            moves = self.switches.transitions(torch.stack([Z[-1], Z[-1]], 1))
            log_p = self.switches.transition()[S[-1]] if moves is None else moves[torch.arange(rows), 0, S[-1]]
            S.append(pick(log_p, uniform[:, i]))
            Z.append(self.dynamics.sample(Z[-1], S[-1], noise[:, i]))
        mean = self.emissions.mean_each(torch.stack(Z, 1))[:, :, 0]
        X = mean + normal[:, :, A.shape[1] :] @ self.emissions.B()[0].T
        return torch.stack(S, 1), torch.stack(Z, 1), X
