"""Joint draws of the latents, (S, Z) ~ p(S) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i), over the states an arc allows.

Where a story has few free tag paths they are enumerated, which is exact; beyond, two exact blocks alternate, Z | S and
S | Z. Everything is linear in the number of sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.infill.noise import Noise
from fabula.infill.samples import split_r_hat
from fabula.models.chain import Chain, chain
from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import Potential
from fabula.models.scaffold import Scaffold, clamp

MAX_PATHS = 729
"""Free tag paths of a story that are enumerated: 3^6. Beyond, blocks alternate."""

MATRICES_AT_ONCE = 1 << 25
"""Numbers held in the matrices of factorised chains (128 MiB); more rows are cut into pieces."""


class Latents(NamedTuple):
    """Joint draws, rows = stories x particles."""

    S: Int[Tensor, "batch sent"]
    Z: Float[Tensor, "batch sent latent"]
    tag_r_hat: Float[Tensor, " story"]
    """Mixing of the alternating blocks; NaN where tags were enumerated."""


class Paths(NamedTuple):
    """Every tag path of some stories that have equally many, and what each path weighs."""

    stories: list[int]
    """Their places among all stories."""
    S: Int[Tensor, "story path sent"]
    """The paths, those that differ in the last tags side by side; -1 behind a story's end."""
    log_weights: Float[Tensor, "story path"]
    """log p(S) + log of the integral of p(Z | S) phi(Z) over Z."""


def count_paths(
    allowed: Bool[Tensor, "story sent state"], present: Bool[Tensor, "story sent"]
) -> Float[Tensor, " story"]:
    """How many tag paths the allowed states leave each story; as a float, for they may be very many."""
    return torch.where(present, allowed.sum(2), 1).double().prod(1)


def enumerate_paths(
    scaffold: Scaffold,
    dynamics: Dynamics,
    allowed: Bool[Tensor, "story sent state"],
    phi: Potential,
    present: Bool[Tensor, "story sent"],
) -> list[Paths]:
    """The tag paths of every story that has few enough of them, stories of equally many together."""
    here = present.to(allowed.device)
    groups: dict[int, list[int]] = {}
    for story, count in enumerate(count_paths(allowed, here).tolist()):
        if count <= MAX_PATHS:
            groups.setdefault(int(count), []).append(story)
    found = []
    for count, stories in groups.items():
        S = _paths(allowed[stories], here[stories], count)
        weights = phi.mean.new_zeros(len(stories), count)
        if count > 1:
            own = Potential(phi.mean[stories], phi.precision[stories])
            weights = _path_weights(scaffold, dynamics, S, own, here[stories])
        found.append(Paths(stories, S, weights))
    return found


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
    tags, found = S.flatten(0, 1), []
    for rows in torch.split(torch.arange(len(tags), device=S.device), _rows_at_once(dynamics.D, N)):
        story = rows // count
        law = chain(dynamics, tags[rows], Potential(phi.mean[story], phi.precision[story]), present[story])
        found.append(scaffold.log_prob(tags[rows], present[story]) + law.log_evidence)
    return torch.cat(found).view(stories, count)


def draw_latents(
    scaffold: Scaffold,
    dynamics: Dynamics,
    allowed: Bool[Tensor, "story sent state"],
    phi: Potential,
    present: Bool[Tensor, "story sent"],
    noise: Noise,
    rounds: int = 20,
    paths: Sequence[Paths] | None = None,
) -> Latents:
    """(S, Z) ~ p(S) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i) over the allowed states.

    `paths` is what `enumerate_paths` finds for the same stories: whoever draws more than once finds them once.
    """
    if paths is None:
        paths = enumerate_paths(scaffold, dynamics, allowed, phi, present)
    few = {story for group in paths for story in group.stories}
    (n, N, _), chains, here = allowed.shape, noise.chains, present.to(allowed.device)
    drawn = torch.full((n, chains, N), UNKNOWN, device=allowed.device)
    Z = phi.mean.new_zeros(*drawn.shape, dynamics.D)
    r_hat = torch.full((n,), float("nan"))
    # Stories are split by how their tags are drawn, and each keeps to its own noise: none notices the others.
    for exact in (True, False):
        stories = [story for story in range(n) if (story in few) == exact]
        if not stories:
            continue
        own = Potential(phi.mean[stories], phi.precision[stories])
        if exact:
            its = noise.of(stories)
            uniform = phi.mean.new_zeros(n, chains)
            uniform[stories] = its.uniform()[:, 0].view(len(stories), chains).to(uniform.dtype)
            for group in paths:
                drawn[group.stories] = _drawn_paths(group, uniform[group.stories])
            found = _given_tags(dynamics, drawn[stories].flatten(0, 1), own, here[stories], its)
        else:
            found = _alternating(scaffold, dynamics, allowed[stories], own, here[stories], noise.of(stories), rounds)
        drawn[stories] = found.S.view(len(stories), chains, -1)
        Z[stories] = found.Z.view(len(stories), chains, N, -1)
        r_hat[stories] = found.tag_r_hat
    drawn = drawn.masked_fill(~here[:, None], UNKNOWN)
    return Latents(drawn.flatten(0, 1), Z.flatten(0, 1), r_hat)


def _drawn_paths(paths: Paths, uniform: Float[Tensor, "story sample"]) -> Int[Tensor, "story sample sent"]:
    """A path for every sample of these stories, in proportion to what it weighs."""
    cumulative = paths.log_weights.softmax(-1).cumsum(-1)
    last = cumulative.shape[1] - 1
    path = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=last)
    return paths.S.gather(1, path.unsqueeze(-1).expand(-1, -1, paths.S.shape[2]))


def _given_tags(dynamics: Dynamics, S: Tensor, phi: Potential, present: Tensor, noise: Noise) -> Latents:
    """Z given the path of every row."""
    at = torch.arange(len(present), device=S.device).repeat_interleave(noise.chains)
    Z = _smooth(dynamics, S, phi, present, at, noise)
    return Latents(S, Z, torch.full((len(present),), float("nan")))


def _alternating(
    scaffold: Scaffold, dynamics: Dynamics, allowed: Tensor, phi: Potential, present: Tensor, noise: Noise, rounds: int
) -> Latents:
    """Two exact blocks in turn, Z | S and S | Z, from S ~ p(S) on."""
    at = torch.arange(len(allowed), device=allowed.device).repeat_interleave(noise.chains)
    states, here = allowed[at], present[at]
    drawn = scaffold.sample(clamp(torch.zeros(states.shape, device=states.device), states), here, noise.uniform())
    track = []
    for _ in range(rounds):
        Z = _smooth(dynamics, drawn, phi, present, at, noise)
        before = torch.cat([torch.zeros_like(Z[:, :1]), Z[:, :-1]], 1)
        drawn = scaffold.sample(clamp(dynamics.log_prob_each(before, Z), states), here, noise.uniform())
        track.append(torch.nn.functional.one_hot(drawn, scaffold.K).float().cpu())
    each = torch.stack(track, 1).view(len(allowed), noise.chains, rounds, -1, scaffold.K)
    r_hat = torch.stack([split_r_hat(s[:, :, :N]).max() for s, N in zip(each, noise.sentences, strict=True)])
    return Latents(drawn, _smooth(dynamics, drawn, phi, present, at, noise), r_hat)


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
        law = chain(dynamics, S[begin : begin + limit], Potential(phi.mean[some], phi.precision[some]), present[some])
        mine = ((owner >= begin) & (owner < begin + limit)).nonzero().squeeze(1)
        for rows in torch.split(mine, limit):
            Z[rows] = _pick(law, owner[rows] - begin).sample(eps[rows, None])[:, 0]
    return Z


def _pick(law: Chain, rows: Int[Tensor, " rows"]) -> Chain:
    return Chain(
        law.diagonal[:, rows], law.below[:, rows], law.pulled[:, rows], law.log_evidence[rows], law.present[rows]
    )


def _rows_at_once(D: int, N: int) -> int:
    # A chain keeps two matrices a sentence, and makes about four more on the way.
    return max(1, MATRICES_AT_ONCE // (6 * N * D * D))
