"""Joint draws of the latents, (S, Z) ~ p(S) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i), over the states an arc allows.

First a tag path S for every draw, by p(S) E(S), where E(S) is the integral over Z, exact; then Z given S, exact too.
S acts on Z at every step, so that the sum over paths does not factorise as it does for p(S) alone. Where a story has
few paths they are enumerated, which is exact. Where they are many, as many as that are sampled and weighted: right
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
from fabula.models.chain import Chain, chain
from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import Potential
from fabula.models.scaffold import Scaffold, clamp
from fabula.sampling.noise import Noise
from fabula.sampling.samples import effective_size
from fabula.shapes import Rows, Tags

MAX_PATHS = 729
"""Tag paths of a story that are enumerated: 3^6. Beyond, paths are sampled."""
WAVES, WAVE = 4, 81
"""Paths that are sampled: waves of so many each, a wave learning from those before it."""
KEPT = 0.1
"""Weight of the prior, beside 1 for what was learnt, in the distribution that the next wave is drawn from."""

MATRICES_AT_ONCE = 1 << 25
"""Numbers held in the matrices of factorised chains (128 MiB); more rows are cut into pieces."""


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


def count_paths(
    allowed: Bool[Tensor, "story sent state"], present: Bool[Tensor, "story sent"]
) -> Float[Tensor, " story"]:
    """How many tag paths the allowed states leave each story; as a float, for they may be very many."""
    return torch.where(present, allowed.sum(2), 1).double().prod(1)


def find_paths(
    scaffold: Scaffold, dynamics: Dynamics, allowed: Bool[Tensor, "story sent state"], phi: Potential,
    present: Bool[Tensor, "story sent"], generators: Sequence[torch.Generator],
) -> list[Paths]:  # fmt: skip
    """All tag paths of every story that has few enough, sampled ones of the others; equally many together."""
    here = present.to(allowed.device)
    groups: dict[int, list[int]] = {}
    for story, count in enumerate(count_paths(allowed, here).tolist()):
        groups.setdefault(int(count) if count <= MAX_PATHS else 0, []).append(story)
    tables = []
    for count, stories in groups.items():
        states, evidence = allowed[stories], Potential(phi.mean[stories], phi.precision[stories])
        if not count:
            its = [generators[story] for story in stories]
            paths = sample_paths(scaffold, dynamics, states, evidence, here[stories], its)
            tables.append(paths._replace(stories=stories))
            continue
        S = _paths(states, here[stories], count)
        weights = phi.mean.new_zeros(len(stories), count)
        if count > 1:
            weights = _path_weights(scaffold, dynamics, S, evidence, here[stories])
        tables.append(Paths(stories, S, weights, sampled=False))
    return tables


def sample_paths(
    scaffold: Scaffold, dynamics: Dynamics, allowed: Bool[Tensor, "story sent state"], phi: Potential,
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
    noise = Noise(generators, sentences, WAVE, allowed.device)
    noise.longest = N
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
        log_target = torch.cat([log_target, _path_weights(scaffold, dynamics, S[:, -WAVE:], phi, present)], 1)
        log_q = torch.stack([_log_q(scaffold, S, t, present) for t in waves])
        log_weights = log_target - (log_q.logsumexp(0) - math.log(len(waves)))
        states = torch.nn.functional.one_hot(S.clamp(min=0), K).to(prior.dtype)
        learnt = torch.einsum("np,npik->nik", log_weights.softmax(1), states)
        log_t = clamp(((learnt + KEPT * prior) / ((1 + KEPT) * prior)).log(), allowed)
    return Paths(list(range(n)), S, log_weights, sampled=True)


def _log_q(scaffold: Scaffold, S: Tensor, log_t: Tensor, present: Tensor) -> Float[Tensor, "story path"]:
    """log of p(S) prod_i t_i(S_i), normalised over all paths."""
    count = S.shape[1]
    log_p = scaffold.log_prob(S.flatten(0, 1), present.repeat_interleave(count, 0)).view(-1, count)
    chosen = log_t.gather(2, S.clamp(min=0).transpose(1, 2)) * present.unsqueeze(-1)
    return log_p + chosen.sum(1) - scaffold.log_marginal(log_t, present).unsqueeze(1)


def _paths(allowed: Tensor, present: Tensor, count: int) -> Int[Tensor, "story path sent"]:
    """All paths of stories that have `count` each: path p has the digits of p, in each sentence's own base."""
    bases = torch.where(present, allowed.sum(2), 1)
    # The digit of a sentence moves once while those of all later sentences go round.
    strides = torch.cat([bases[:, 1:], torch.ones_like(bases[:, :1])], 1).flip(1).cumprod(1).flip(1)
    digits = torch.arange(count, device=allowed.device)[None, :, None] // strides[:, None] % bases[:, None]
    states = (~allowed).to(torch.int8).argsort(dim=2, stable=True)  # the allowed states first, in their order
    return states.gather(2, digits.transpose(1, 2)).transpose(1, 2).masked_fill(~present[:, None], UNKNOWN)


def _path_weights(
    scaffold: Scaffold, dynamics: Dynamics, S: Int[Tensor, "story path sent"], phi: Potential, present: Tensor
) -> Float[Tensor, "story path"]:
    """What every path of every story weighs, cut into pieces where the chains' matrices would be too many."""
    stories, count, N = S.shape
    tags, log_weights = S.flatten(0, 1), []
    for rows in torch.split(torch.arange(len(tags), device=S.device), _rows_at_once(dynamics.D, N)):
        story = rows // count
        chains_of_Z = chain(dynamics, tags[rows], Potential(phi.mean[story], phi.precision[story]), present[story])
        log_weights.append(scaffold.log_prob(tags[rows], present[story]) + chains_of_Z.log_evidence)
    return torch.cat(log_weights).view(stories, count)


def draw_latents(
    scaffold: Scaffold, dynamics: Dynamics, allowed: Bool[Tensor, "story sent state"], phi: Potential,
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
        S[group.stories] = _drawn_paths(group, uniform[group.stories])
        if group.sampled:
            ess[group.stories] = effective_size(group.log_weights).float().cpu()
    story = torch.arange(n, device=allowed.device).repeat_interleave(chains)
    return Latents(S.flatten(0, 1), _smooth(dynamics, S.flatten(0, 1), phi, here, story, noise), ess)


def _drawn_paths(paths: Paths, uniform: Float[Tensor, "story sample"]) -> Int[Tensor, "story sample sent"]:
    """A path for every sample of these stories, in proportion to what it weighs."""
    cumulative = paths.log_weights.softmax(-1).cumsum(-1)
    last = cumulative.shape[1] - 1
    path = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=last)
    return paths.S.gather(1, path.unsqueeze(-1).expand(-1, -1, paths.S.shape[2]))


def _smooth(
    dynamics: Dynamics, drawn: Tensor, phi: Potential, present: Tensor, at: Tensor, noise: Noise
) -> Float[Tensor, "batch sent latent"]:
    """Z | S for every row; rows of a story that share a path share its factorisation."""
    N, D = drawn.shape[1], dynamics.D
    eps = noise.normal(D)
    keyed = torch.cat([at[:, None], drawn.clamp(min=0)], 1)
    unique, owner = torch.unique(keyed, dim=0, return_inverse=True)
    story, S = unique[:, 0], unique[:, 1:]
    Z = torch.zeros_like(eps)
    limit = _rows_at_once(D, N)
    for begin in range(0, len(unique), limit):
        some = story[begin : begin + limit]
        evidence = Potential(phi.mean[some], phi.precision[some])
        chains_of_Z = chain(dynamics, S[begin : begin + limit], evidence, present[some])
        mine = ((owner >= begin) & (owner < begin + limit)).nonzero().squeeze(1)
        for rows in torch.split(mine, limit):
            Z[rows] = _pick(chains_of_Z, owner[rows] - begin).sample(eps[rows, None])[:, 0]
    return Z


def _pick(some: Chain, rows: Rows) -> Chain:
    return Chain(
        some.diagonal[:, rows], some.below[:, rows], some.pulled[:, rows], some.log_evidence[rows], some.present[rows]
    )


def _rows_at_once(D: int, N: int) -> int:
    # A chain keeps two matrices a sentence, and makes about four more on the way.
    return max(1, MATRICES_AT_ONCE // (6 * N * D * D))
