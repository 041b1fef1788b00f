"""Joint draws of the latents, (S, Z) ~ p(S) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i), with the given tags fixed.

Where a story has few free tag paths they are enumerated, which is exact; beyond, two exact blocks alternate, Z | S and
S | Z. Everything is linear in the number of sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.infill.conditionals import draw_S
from fabula.infill.noise import Noise
from fabula.infill.samples import split_r_hat
from fabula.models.chain import Chain, chain
from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import Potential
from fabula.models.scaffold import UNKNOWN, Scaffold

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
    """Every tag path of some stories that have the same number of free tags, and what each path weighs."""

    stories: list[int]
    """Their places among all stories."""
    free: Int[Tensor, "story free"]
    """Which sentences' tags are free."""
    choices: Int[Tensor, "path free"]
    """The tags that each path puts there."""
    log_weights: Float[Tensor, "story path"]
    """log p(S) + log of the integral of p(Z | S) phi(Z) over Z."""

    def put(self, S: Int[Tensor, "rows sent"], story: Tensor, path: Tensor) -> Int[Tensor, "rows sent"]:
        """The rows of tags, row r being a copy of story `story[r]` of these, with path `path[r]` in the free places."""
        return S.scatter(1, self.free[story], self.choices[path])


def enumerate_paths(
    scaffold: Scaffold,
    dynamics: Dynamics,
    S: Int[Tensor, "story sent"],
    phi: Potential,
    present: Bool[Tensor, "story sent"],
) -> list[Paths]:
    """The tag paths of every story that has few enough of them, stories of equally many together."""
    free = (S == UNKNOWN).cpu() & present.cpu()
    groups: dict[int, list[int]] = {}
    for story, count in enumerate(free.sum(1).tolist()):
        if scaffold.K**count <= MAX_PATHS:
            groups.setdefault(count, []).append(story)
    found = []
    for count, stories in groups.items():
        places = free[stories].nonzero()[:, 1].view(len(stories), count).to(S.device)
        choices = torch.tensor(list(product(range(scaffold.K), repeat=count)), dtype=torch.int64, device=S.device)
        blank = Paths(stories, places, choices, phi.mean.new_zeros(len(stories), len(choices)))
        if count:
            own = Potential(phi.mean[stories], phi.precision[stories])
            weights = _path_weights(scaffold, dynamics, S[stories], own, present[stories].to(S.device), blank)
            blank = blank._replace(log_weights=weights)
        found.append(blank)
    return found


def _path_weights(
    scaffold: Scaffold, dynamics: Dynamics, S: Tensor, phi: Potential, present: Tensor, paths: Paths
) -> Float[Tensor, "story path"]:
    """What every path of every story weighs, cut into pieces where the chains' matrices would be too many."""
    count = len(paths.choices)
    found = []
    for rows in torch.split(torch.arange(len(S) * count, device=S.device), _rows_at_once(dynamics.D, S.shape[1])):
        story = rows // count
        tags, here = paths.put(S[story], story, rows % count), present[story]
        law = chain(dynamics, tags, Potential(phi.mean[story], phi.precision[story]), here)
        found.append(scaffold.log_prob(tags, here) + law.log_evidence)
    return torch.cat(found).view(len(S), count)


def draw_latents(
    scaffold: Scaffold,
    dynamics: Dynamics,
    S: Int[Tensor, "story sent"],
    phi: Potential,
    present: Bool[Tensor, "story sent"],
    noise: Noise,
    rounds: int = 20,
    paths: Sequence[Paths] | None = None,
) -> Latents:
    """(S, Z) ~ p(S) prod_i p(Z_i | Z_{i-1}, S_i) phi_i(Z_i) with the given tags in their places.

    `paths` is what `enumerate_paths` finds for the same stories: whoever draws more than once finds them once.
    """
    if paths is None:
        paths = enumerate_paths(scaffold, dynamics, S, phi, present)
    few = {story for group in paths for story in group.stories}
    chains, here = noise.chains, present.to(S.device)
    drawn = S.new_full((len(S), chains, S.shape[1]), UNKNOWN)
    Z = phi.mean.new_zeros(*drawn.shape, dynamics.D)
    r_hat = torch.full((len(S),), float("nan"))
    # Stories are split by how their tags are drawn, and each keeps to its own noise: none notices the others.
    for exact in (True, False):
        stories = [n for n in range(len(S)) if (n in few) == exact]
        if not stories:
            continue
        own = Potential(phi.mean[stories], phi.precision[stories])
        if exact:
            tags, its = S.repeat_interleave(chains, 0).view(len(S), chains, -1), noise.of(stories)
            uniform = S.new_zeros(len(S), chains, dtype=phi.mean.dtype)
            uniform[stories] = its.uniform()[:, 0].view(len(stories), chains).to(uniform.dtype)
            for group in paths:
                tags[group.stories] = _drawn_paths(group, tags[group.stories], uniform[group.stories])
            found = _given_tags(dynamics, tags[stories].flatten(0, 1), own, here[stories], its)
        else:
            found = _alternating(scaffold, dynamics, S[stories], own, here[stories], noise.of(stories), rounds)
        drawn[stories] = found.S.view(len(stories), chains, -1)
        Z[stories] = found.Z.view(len(stories), chains, S.shape[1], -1)
        r_hat[stories] = found.tag_r_hat
    drawn = drawn.masked_fill(~here[:, None], UNKNOWN)
    return Latents(drawn.flatten(0, 1), Z.flatten(0, 1), r_hat)


def _drawn_paths(paths: Paths, S: Tensor, uniform: Tensor) -> Int[Tensor, "story sample sent"]:
    """A path for every sample of these stories, in proportion to what it weighs."""
    stories, chains = uniform.shape
    story = torch.arange(stories, device=S.device).repeat_interleave(chains)
    cumulative = paths.log_weights.softmax(-1).cumsum(-1)
    path = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=len(paths.choices) - 1)
    return paths.put(S.flatten(0, 1), story, path.flatten()).view_as(S)


def _given_tags(dynamics: Dynamics, S: Tensor, phi: Potential, present: Tensor, noise: Noise) -> Latents:
    """Z given the path of every row."""
    at = torch.arange(len(present), device=S.device).repeat_interleave(noise.chains)
    Z = _smooth(dynamics, S, phi, present, at, noise)
    return Latents(S, Z, torch.full((len(present),), float("nan")))


def _alternating(
    scaffold: Scaffold, dynamics: Dynamics, S: Tensor, phi: Potential, present: Tensor, noise: Noise, rounds: int
) -> Latents:
    """Two exact blocks in turn, Z | S and S | Z, from S ~ p(S) on."""
    at = torch.arange(len(S), device=S.device).repeat_interleave(noise.chains)
    given, here = S[at], present[at]
    flat = torch.zeros(*given.shape, scaffold.K, device=S.device)
    drawn = draw_S(scaffold, scaffold.clamp(flat, given), here, noise.uniform())
    track = []
    for _ in range(rounds):
        Z = _smooth(dynamics, drawn, phi, present, at, noise)
        before = torch.cat([torch.zeros_like(Z[:, :1]), Z[:, :-1]], 1)
        log_evidence = scaffold.clamp(dynamics.log_prob_each(before, Z), given)
        drawn = draw_S(scaffold, log_evidence, here, noise.uniform())
        track.append(torch.nn.functional.one_hot(drawn, scaffold.K).float().cpu())
    states = torch.stack(track, 1).view(len(S), noise.chains, rounds, -1, scaffold.K)
    r_hat = torch.stack([split_r_hat(s[:, :, :N]).max() for s, N in zip(states, noise.sentences, strict=True)])
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
