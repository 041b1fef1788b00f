"""Joint draws of the latents, (S, Z) ~ p(S) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i), over the states an arc allows.

First a tag path S for every draw, by p(S) E(S), where E(S) is the integral over Z, exact; then Z given S, exact too.
S acts on Z at every step, so that the sum over paths does not factorise as it does for p(S) alone. Where a story has
few paths they are enumerated, which is exact. Where they are many, some are sampled and weighted: right
as their number grows, and `tag_ess` says what they are worth. Everything is linear in the number of sentences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.sampling.noise import Noise
from fabula.shapes import Tags
from fabula.statespace import samplers as tag_paths
from fabula.statespace.chain import chain
from fabula.statespace.diagnostics import effective_size
from fabula.statespace.dynamics import LinearGaussian
from fabula.statespace.gaussian import Potential
from fabula.statespace.markov import MarkovChain, clamp

WAVES, WAVE = 4, 81
"""Paths that are sampled: waves of so many each, a wave learning from those before it."""
KEPT = 0.1
"""Weight of the prior, beside 1 for what was learnt, in the distribution that the next wave is drawn from."""


class Latents(NamedTuple):
    """Joint draws, rows = stories x particles."""

    S: Tags
    Z: Float[Tensor, "batch sent latent"]
    tag_ess: Float[Tensor, " story"]
    """How many draws of S the sampled paths are worth; NaN where all paths were enumerated."""


class Paths(NamedTuple):
    """Tag paths of some stories, equally many for each, and what each path weighs."""

    stories: list[int]
    """Their places among all stories."""
    S: Int[Tensor, "story path sent"]
    """The paths, those that differ in the last tags side by side; -1 behind a story's end."""
    log_weights: Float[Tensor, "story path"]
    """log p(S) E(S); of sampled paths with the log-density that they were drawn from taken away."""
    sampled: bool


def find_paths(
    scaffold: MarkovChain, dynamics: LinearGaussian, allowed: Bool[Tensor, "story sent state"], phi: Potential,
    present: Bool[Tensor, "story sent"], generators: Sequence[torch.Generator],
) -> list[Paths]:  # fmt: skip
    """All tag paths of every story that has few enough, sampled ones of the others; equally many together."""
    here = present.to(allowed.device)
    groups: dict[int, list[int]] = {}
    for story, count in enumerate(tag_paths.count_paths(allowed, here).tolist()):
        groups.setdefault(int(count) if count <= tag_paths.MAX_PATHS else 0, []).append(story)
    tables = []
    for count, stories in groups.items():
        states, evidence = allowed[stories], phi.rows(torch.tensor(stories, device=allowed.device))
        if not count:
            its = [generators[story] for story in stories]
            paths = sample_paths(scaffold, dynamics, states, evidence, here[stories], its)
            tables.append(paths._replace(stories=stories))
            continue
        S = tag_paths.enumerate_paths(states, here[stories], count)
        weights = phi.mean.new_zeros(len(stories), count)
        if count > 1:
            weights = tag_paths.path_weights(scaffold, dynamics, S, evidence, here[stories])
        tables.append(Paths(stories, S, weights, sampled=False))
    return tables


def sample_paths(
    scaffold: MarkovChain, dynamics: LinearGaussian, allowed: Bool[Tensor, "story sent state"], phi: Potential,
    present: Bool[Tensor, "story sent"], generators: Sequence[torch.Generator],
) -> Paths:  # fmt: skip
    """Weighted tag paths by adaptive importance sampling, wave after wave.

        q_w(S) ∝ p(S) prod_i t_wi(S_i) over the allowed states,        weight of S = p(S) E(S) / mean_w q_w(S)

    The first wave has t = 1, so q_1 = p(S | arc). Each later one has for t_i the marginal of S_i under the weights so
    far, with some of the prior's kept in it, over the prior's. q_w is a Markov chain: forward-backward normalises it
    and draws from it. Blocks that alternate, Z | S and S | Z, are no way around this: in a trained model Z all but
    determines S, and such a chain never leaves the tags that it begins with (docs/log.md).
    """
    (n, N, K), sentences = allowed.shape, [int(count) for count in present.sum(1)]
    noise = Noise(generators, sentences, WAVE, allowed.device, N)
    here = present.repeat_interleave(WAVE, 0)
    log_t = clamp(phi.mean.new_zeros(allowed.shape), allowed)
    prior = scaffold.posterior(log_t, present).clamp(min=1e-30)  # it divides below
    S, log_target = torch.zeros(n, 0, N, dtype=torch.int64, device=allowed.device), phi.mean.new_zeros(n, 0)
    waves, log_weights = [], log_target
    for _ in range(WAVES):
        waves.append(log_t)
        uniform = noise.uniform().to(phi.mean.dtype)
        drawn = scaffold.sample(log_t.repeat_interleave(WAVE, 0), here, uniform).masked_fill(~here, UNKNOWN)
        S = torch.cat([S, drawn.view(n, WAVE, N)], 1)
        log_target = torch.cat([log_target, tag_paths.path_weights(scaffold, dynamics, S[:, -WAVE:], phi, present)], 1)
        log_q = torch.stack([_log_q(scaffold, S, t, present) for t in waves])
        log_weights = log_target - (log_q.logsumexp(0) - math.log(len(waves)))
        states = torch.nn.functional.one_hot(S.clamp(min=0), K).to(prior.dtype)
        learnt = torch.einsum("np,npik->nik", log_weights.softmax(1), states)
        log_t = clamp(((learnt + KEPT * prior) / ((1 + KEPT) * prior)).log(), allowed)
    return Paths(list(range(n)), S, log_weights, sampled=True)


def _log_q(scaffold: MarkovChain, S: Tensor, log_t: Tensor, present: Tensor) -> Float[Tensor, "story path"]:
    """log of p(S) prod_i t_i(S_i), normalised over all paths."""
    count = S.shape[1]
    log_p = scaffold.log_prob(S.flatten(0, 1), present.repeat_interleave(count, 0)).view(-1, count)
    chosen = log_t.gather(2, S.clamp(min=0).transpose(1, 2)) * present.unsqueeze(-1)
    return log_p + chosen.sum(1) - scaffold.log_marginal(log_t, present).unsqueeze(1)


def draw_latents(
    scaffold: MarkovChain, dynamics: LinearGaussian, allowed: Bool[Tensor, "story sent state"], phi: Potential,
    present: Bool[Tensor, "story sent"], noise: Noise, paths: Sequence[Paths] | None = None,
) -> Latents:  # fmt: skip
    """(S, Z) ~ p(S) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i) over the allowed states.

    `paths` is what `find_paths` finds for the same stories: whoever draws more than once finds them once.
    """
    if paths is None:
        paths = find_paths(scaffold, dynamics, allowed, phi, present, noise.generators)
    (n, N, _), chains, here = allowed.shape, noise.chains, present.to(allowed.device)
    uniform = noise.uniform()[:, 0].view(n, chains).to(phi.mean.dtype)
    S = torch.full((n, chains, N), UNKNOWN, device=allowed.device)
    ess = torch.full((n,), float("nan"))
    for group in paths:
        S[group.stories] = tag_paths.draw_paths(group.S, group.log_weights, uniform[group.stories])
        if group.sampled:
            ess[group.stories] = effective_size(group.log_weights).float().cpu()
    story = torch.arange(n, device=allowed.device).repeat_interleave(chains)
    S, eps = S.flatten(0, 1), noise.normal(dynamics.D)
    return Latents(S, _smooth(dynamics, S, phi, here, story, eps), ess)


def _smooth(
    dynamics: LinearGaussian, drawn: Tensor, phi: Potential, present: Tensor, at: Tensor, eps: Tensor
) -> Float[Tensor, "batch sent latent"]:
    """Z | S for every row; rows of a story that share a path share its factorisation."""
    N, D = drawn.shape[1], dynamics.D
    keyed = torch.cat([at[:, None], drawn.clamp(min=0)], 1)
    unique, owner = torch.unique(keyed, dim=0, return_inverse=True)
    story, S = unique[:, 0], unique[:, 1:]
    Z = torch.zeros_like(eps)
    limit = tag_paths.rows_at_once(D, N)
    for begin in range(0, len(unique), limit):
        some = story[begin : begin + limit]
        chains_of_Z = chain(dynamics, S[begin : begin + limit], phi.rows(some), present[some])
        mine = ((owner >= begin) & (owner < begin + limit)).nonzero().squeeze(1)
        for rows in torch.split(mine, limit):
            Z[rows] = chains_of_Z.rows(owner[rows] - begin).sample(eps[rows, None])[:, 0]
    return Z
