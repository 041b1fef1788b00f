"""Learning: EM for the LDS in closed form, stochastic EM for switching systems, from several starts.

An M step is a linear regression from expected products. With x = Z_{i-1}, y = Z_i, over the steps with S_i = k:

    (A, bias) = E[Σ y (x, 1)ᵀ] E[Σ (x, 1) (x, 1)ᵀ]⁻¹,      Sigma = E[Σ (y - A x - bias)(y - A x - bias)ᵀ] / n

and likewise for the emissions over observed steps, and for p(Z_1). In stochastic EM S (and with recurrent switches Z)
is drawn by Gibbs sweeps, and products are averaged over sweeps with falling weights (Delyon et al. 1999).
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fabula.errors import UserError
from fabula.shapes import Float, Latents, Mask, PerState, Tags
from fabula.statespace.chain import Marginals
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.markov import MarkovChain, RecurrentChain
from fabula.statespace.model import SwitchingLDS
from fabula.statespace.particles import particle_filter
from fabula.statespace.samplers import State, condition, draw_S, draw_Z, random_like

TRIES, FIRST_ROUNDS = 5, 15
"""Of so many first models, each after so many rounds of stochastic EM with the principal components of X for Z, a start
takes the likeliest."""
PRIOR = 1.0
"""Steps of A = I, with the noise of all states together, that each state's regression is given."""

Products = Float[Tensor, "state columns columns"]
"""E[Σ u uᵀ] of each state, u = (x, 1, y)."""


def products(weights: PerState, x: Tensor, y: Tensor, *covariances: Tensor | None) -> Products:
    """Weighted sums over rows and steps, from means and the covariances of x, of x and y, of y (None: 0)."""
    u, D = torch.cat([x, torch.ones_like(y[..., :1]), y], -1), x.shape[-1]
    total = torch.einsum("bnk,bni,bnj->kij", weights, u, u)
    for covariance, rows, columns in zip(covariances, (0, 0, D + 1), (0, D + 1, D + 1), strict=True):
        if covariance is not None:
            part = torch.einsum("bnk,bnij->kij", weights, covariance)
            total[:, rows : rows + part.shape[1], columns : columns + part.shape[2]] += part
    upper = total.triu()
    return upper + upper.triu(1).mT


def regress(linear: LinearGaussian, u: Products, prior: float = 0.0) -> None:
    """Give a map the regression of y on (x, 1)."""
    inputs, D = linear.A.shape[2], linear.D
    xx, xy, yy = u[:, : inputs + 1, : inputs + 1], u[:, : inputs + 1, inputs + 1 :], u[:, inputs + 1 :, inputs + 1 :]
    n = xx[:, -1:, -1:]
    if prior:
        eye = prior * torch.eye(inputs + 1).to(u)
        xx, xy, yy = xx + eye, xy + eye[:, :D], yy + eye[:D, :D]
    W = torch.linalg.solve(xx, xy).mT
    residual = yy - W @ xy - xy.mT @ W.mT + W @ xx @ W.mT
    Sigma = ((residual + residual.mT) / 2 + prior * residual.sum(0) / n.sum()) / (n + prior)
    linear.assign(W[..., :-1], W[..., -1], Sigma)


def products_of_steps(moments: Marginals, weights: PerState) -> Products:
    """Of Z_{i-1} and Z_i, from the second step on."""
    mean, covariance, cross = moments
    return products(weights[:, 1:], mean[:, :-1], mean[:, 1:], covariance[:, :-1], cross, covariance[:, 1:])


def products_of_emissions(moments: Marginals, X: Tensor, observed: Mask) -> Products:
    """Of Z_i and X_i, where it is observed."""
    weights = observed.unsqueeze(-1).to(X)
    return products(weights, moments.mean, torch.where(weights > 0, X, 0.0), moments.covariance, None, None)


@torch.no_grad()
def em_step(model: SwitchingLDS, X: Float[Tensor, "batch sent observed"], **given: Tensor) -> Float[Tensor, ""]:
    """One step of EM for an LDS, in place; `given` as in `SwitchingLDS.posterior`. Returns log p(X) before it."""
    if model.switches.K > 1:
        raise UserError("em_step is for one state: use fit")
    posterior, first = model.posterior(X, **given), model.dynamics.initial
    moments, weights = posterior.marginals(), posterior.present.unsqueeze(-1).to(X)
    steps, Z_1 = products_of_steps(moments, weights), moments.mean[:, :1]
    Z_0 = Z_1[..., :0] if first is not None else torch.zeros_like(Z_1)
    start = products(weights[:, :1], Z_0, Z_1, None, None, moments.covariance[:, :1])
    if first is None:
        steps = steps + start
    else:
        regress(first, start)
    regress(model.dynamics, steps)
    seen = posterior.present & ~X.isnan().any(-1) & given.get("observed", posterior.present)
    regress(model.emissions, products_of_emissions(moments, X, seen))
    return posterior.log_evidence.sum()


def _fit_switches(switches: MarkovChain, S: Tags, Z: Latents, present: Mask) -> None:
    """p(S_1) and p(S_i | S_{i-1}) by counts, one added to each; with recurrent switches by gradient steps."""
    K, both = switches.K, present[:, 1:]
    before, after = S[:, :-1][both], S[:, 1:][both]
    switches.log_initial.copy_((S[:, 0].bincount(minlength=K) + 1.0).log())
    if not isinstance(switches, RecurrentChain):
        switches.log_transition.copy_(((before * K + after).bincount(minlength=K * K).view(K, K) + 1.0).log())
        return
    leaves = [t.detach().clone().requires_grad_() for t in (switches.log_transition, switches.weight)]
    optimiser = torch.optim.LBFGS(leaves, max_iter=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        logits = leaves[0][before] + Z[:, :-1][both] @ leaves[1].T
        penalty = 0.5 * (leaves[0].square().sum() + leaves[1].square().sum())
        value: Tensor = cross_entropy(logits, after, reduction="sum") + penalty
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    switches.log_transition.copy_(leaves[0].detach())
    switches.weight.copy_(leaves[1].detach())


def _known(Z: Latents) -> Marginals:
    """The moments of a Z that is known."""
    none = Z.new_zeros(1, 1, 1, 1).expand(*Z.shape, Z.shape[-1])
    return Marginals(Z, none, none[:, 1:])


def first_model(
    X: Float[Tensor, "batch sent observed"], seen: Mask, K: int, D: int, recurrent: bool, generator: torch.Generator
) -> tuple[SwitchingLDS, Tags]:
    """Principal components for Z, cells around K random points for S, then rounds of M steps and draws of S."""
    d = X[seen].mean(0)
    variance, axes = torch.linalg.eigh((X[seen] - d).T @ (X[seen] - d) / int(seen.sum()))
    C = axes[:, -D:] * variance[-D:].sqrt()
    Z = torch.where(seen.unsqueeze(-1), X - d, 0.0) @ torch.linalg.pinv(C).T
    R = torch.eye(len(d)).to(X) * (variance[:-D].mean() if len(d) > D else 0.1 * variance.min())
    p = X.new_full((K, K), 1 / K)
    switches = RecurrentChain(p[0], p, X.new_zeros(K, D)) if recurrent else MarkovChain(p[0], p)
    dynamics = LinearGaussian(K, D, full=True).to(X)
    dynamics.initial = LinearGaussian.normal(X.new_zeros(K, D), torch.eye(D).to(X).expand(K, D, D))
    emissions = LinearGaussian(1, len(d), D, full=True).to(X).assign(C[None], d[None], R[None])
    model, tries = SwitchingLDS(dynamics, emissions, switches), list[tuple[float, SwitchingLDS, Tags]]()
    here, both = torch.ones_like(seen), seen & torch.cat([seen[:, :1] & False, seen[:, :-1]], 1)
    for _ in range(TRIES):
        anchors = Z[seen][torch.randperm(int(seen.sum()), generator=generator)[:K].to(X.device)]
        S = torch.cdist(Z.flatten(0, 1), anchors).argmin(-1).view(seen.shape)
        for _ in range(FIRST_ROUNDS):
            regress(dynamics, products_of_steps(_known(Z), one_hot(S, K).to(X) * both.unsqueeze(-1)), PRIOR)
            _fit_switches(switches, S, Z, both)
            log_p, transitions = dynamics.log_prob_steps(Z) * both.unsqueeze(-1), switches.transitions(Z)
            S = switches.sample(log_p, here, random_like(torch.rand, Z[..., 0], generator), transitions)
        value = float(switches.log_marginal(log_p, here, transitions).sum())
        tries.append((value, copy.deepcopy(model), S))
    return max(tries, key=lambda one: one[0])[1:]


class Fit(NamedTuple):
    """A fitted model, an estimate of log p(X) under it, and the last draw of S and Z."""

    model: SwitchingLDS
    log_evidence: float
    last: State


@torch.no_grad()
def fit(
    X: Float[Tensor, "batch sent observed"], K: int, D: int, *, generator: torch.Generator, starts: int = 5,
    sweeps: int = 100, recurrent: bool = False, lengths: Tensor | None = None, particles: int = 50,
) -> list[Fit]:  # fmt: skip
    """Switching systems by stochastic EM from several starts, the one with the largest evidence first.

    Missing steps are NaN. p(Z_1) is held at N(0, I), as the first Z has unit variance. A particle filter gives p(X).
    """
    given, fits = {} if lengths is None else {"lengths": lengths}, []
    for _ in range(starts):
        steps = torch.arange(X.shape[1], device=X.device)
        present = (steps < (X.shape[1] if lengths is None else lengths.to(X.device)[:, None])).expand(X.shape[:2])
        seen = present & ~X.isnan().any(-1)
        model, S = first_model(X, seen, K, D, recurrent, generator)
        target, sums = model.target(X, **given), list[Tensor]()
        state = State(S, draw_Z(target, S, None, generator), X.new_zeros(len(X)))
        for sweep in range(sweeps):
            q = condition(target, state.S)
            Z = draw_Z(target, state.S, state.Z, generator, q)
            moments = q[0].marginals() if q[1] is None else _known(Z)
            weights = one_hot(state.S.clamp(min=0), K).to(X) * present.unsqueeze(-1)
            drawn = [products_of_steps(moments, weights), products_of_emissions(moments, X, seen)]
            rate = 1 / max(1, sweep - sweeps // 2)
            sums = [a + rate * (b - a) for a, b in zip(sums or drawn, drawn, strict=True)]
            regress(model.dynamics, sums[0], PRIOR)
            regress(model.emissions, sums[1])
            _fit_switches(model.switches, state.S.clamp(min=0), Z, present)
            target = model.target(X, **given)
            state = state._replace(S=draw_S(target, Z, generator), Z=Z)
        evidence = particle_filter(target, particles, generator).log_evidence
        fits.append(Fit(model, float(evidence.sum()), state))
    return sorted(fits, key=lambda one: -one.log_evidence)
