"""Look ahead first: all Z jointly given the given sentences, then the missing sentences by particles.

The target is the model's law of everything that is not given,

    p(S, Z, X- | X+) ∝ p(S) prod_i p(Z_i | Z_{i-1}, S_i) p(X_i | X_:i, Z_i)

with p(X_i | .) of a missing sentence truncated as the `DecodingConfig` says; `correct=True` undoes that in the weights.
A particle begins with (S, Z) drawn exactly from p(S) prod_i p(Z_i | Z_{i-1}, S_i) prod_{j given} phi_j(Z_j), and writes
left to right. At a given sentence j its weight is multiplied by p(X_j | X_:j, Z_j) / phi_j(Z_j), so that the sentence
counts once. With `twist_weight` above 0 this is a twisted particle filter: after every written sentence the particles
are also weighed by p(X_j | X_:i+1, Z_j)^twist_weight, the next given sentence as if it came next. It is divided out
again at j, so the target stays what it is. Everything is linear in N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.vocabulary import EOS
from fabula.infill import decode
from fabula.infill.batch import InfillBatch, evidence
from fabula.infill.cast import Cast
from fabula.infill.conditionals import draw_S
from fabula.infill.decode import TOP_15, DecodingConfig, Lexicon
from fabula.infill.noise import Noise
from fabula.infill.repeats import echoed, repeated
from fabula.infill.samples import Diagnostics, Round, effective_size, score_following, split_r_hat
from fabula.infill.tags import TagSource, infer_tags
from fabula.models.chain import Chain, chain
from fabula.models.dynamics import Dynamics
from fabula.models.gaussian import Potential
from fabula.models.scaffold import UNKNOWN, Scaffold
from fabula.models.slds import SLDS

MAX_PATHS = 729
"""Free tag paths of a story that are enumerated: 3^6. Beyond, blocks alternate."""

FIRST = 5
"""Of the particles, one in so many is in the first island."""

MATRICES_AT_ONCE = 1 << 25
"""Numbers held in the matrices of factorised chains (128 MiB); more rows are cut into pieces."""

Observed = Literal["given", "past"]
"""What (S, Z) are drawn knowing: all `given` sentences, or only those before the first blank (`past`). With `past` only
the weights look ahead, which shows what Z contributes; where tags are free the target is the same."""


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """How many particles, and how they write."""

    particles: int = 50
    decoding: DecodingConfig = TOP_15
    correct: bool = False
    """Whether weights undo the truncation (the target is then p itself on what the truncated law can write), or the
    truncated law is the target."""
    fluency: float = 0.0
    """What a nat per word of the writing itself counts in the ranking (`score_following`)."""
    twist_weight: float = 0.0
    """How much the next given sentence weighs the particles before it is reached; 0: not at all."""
    agreement: float = 0.0
    """What a fault of the writing costs in the ranking, in nats: a pronoun that nobody can be meant by (`cast`), a
    sentence that repeats another, a word of content that stands twice in its sentence."""
    context: float = 0.0
    """What a nat per word counts in the ranking that the story so far saves the written sentences (`context_gain`)."""
    resample_below: float = 0.5
    """Particles are resampled at a given sentence where their effective number falls below this share."""
    rounds: int = 20
    """Alternations of Z | S and S | Z where the tags are too many to enumerate."""
    tags: TagSource = "read"
    z_observes: Observed = "given"

    def __post_init__(self) -> None:
        if self.particles < 1 or self.rounds < 1 or not 0 <= self.resample_below <= 1:
            raise ValueError("particles and rounds are at least 1, resample_below between 0 and 1")


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


def observe(
    model: SLDS, blanks: InfillBatch, tags: TagSource, observed: Observed, gold: InfillBatch | None = None
) -> tuple[InfillBatch, Potential]:
    """The blanks with its tags settled, and phi of the sentences that are heard: 1 for the others, given or not."""
    heard = blanks.given & ((blanks.missing.cumsum(1) == 0) | (observed == "given"))
    lengths = blanks.lengths * heard.to(blanks.device)
    S = infer_tags(model, replace(blanks, lengths=lengths), tags, gold).S
    return replace(blanks, S=S), evidence(model, blanks.X, lengths).phi


def run(
    model: SLDS,
    lexicon: Lexicon,
    blanks: InfillBatch,
    settings: BridgeSettings,
    generators: list[torch.Generator],
    gold: InfillBatch | None = None,
    cast: Cast | None = None,
) -> Iterator[tuple[Round, Diagnostics | None]]:
    """The particles' stories, ranked by log p of the given sentences that what was written can change.

    The particles come in two independent islands, the first a small one: a first answer is there soon.
    """
    blanks, phi = observe(model, blanks, settings.tags, settings.z_observes, gold)
    first = settings.particles // FIRST
    islands = [n for n in (first, settings.particles - first) if n]
    paths = enumerate_paths(model.scaffold, model.dynamics, blanks.S, phi, blanks.present)
    seen: list[Diagnostics] = []
    for particles in islands:
        noise = Noise(generators, blanks.sentences, particles, blanks.device)
        drawn, diagnostics = particles_of(model, lexicon, blanks, phi, settings, noise, paths, cast)
        seen.append(diagnostics)
        yield drawn, _worst(seen) if len(seen) == len(islands) else None


def _worst(islands: list[Diagnostics]) -> Diagnostics:
    return islands[-1]._replace(
        ess=torch.stack([d.ess for d in islands]).amin(0),
        tag_r_hat=torch.stack([d.tag_r_hat for d in islands]).amax(0),
    )


def particles_of(
    model: SLDS,
    lexicon: Lexicon,
    blanks: InfillBatch,
    phi: Potential,
    settings: BridgeSettings,
    noise: Noise,
    paths: Sequence[Paths] | None = None,
    cast: Cast | None = None,
) -> tuple[Round, Diagnostics]:
    """One island: draw (S, Z), write left to right, weigh and resample at given sentences."""
    stories, N = blanks.X.shape[:2]
    P, device = noise.chains, blanks.device
    latents = draw_latents(model.scaffold, model.dynamics, blanks.S, phi, blanks.present, noise, settings.rounds, paths)
    S, Z = latents.S, latents.Z
    wide = blanks.repeat(P)
    uniform = None if settings.decoding.top_k == 1 else noise.uniform(settings.decoding.max_words)
    # One number a sentence and story, drawn whether needed or not: neighbours must not move a story's generator.
    resampling = noise.uniform().view(stories, P, -1)[:, 0]
    cursor = decode.begin(model.language, stories * P, Z[:, 0], device, settings.decoding.bf16)
    width = max(blanks.X.shape[2], settings.decoding.max_words)
    X = wide.X.new_zeros(stories * P, N, width)
    lengths, log_p = torch.zeros_like(wide.lengths), torch.zeros(stories * P, N, device=device)
    log_w, psi = (torch.zeros(stories * P, device=device) for _ in range(2))
    following = next_given(blanks)
    ess = torch.full((stories,), float(P))
    for i in range(N):
        drawn = None if uniform is None else uniform[:, i]
        cursor, new = decode.sentence(model.language, lexicon, settings.decoding, cursor, wide, i, Z[:, i], drawn, X)
        X[:, i], lengths[:, i], log_p[:, i] = new.words, new.lengths, new.log_p
        given, missing = wide.given[:, i].to(device), wide.missing[:, i].to(device)
        phi_i = Potential(phi.mean[:, i].repeat_interleave(P, 0), phi.precision[:, i].repeat_interleave(P, 0))
        log_w = log_w + torch.where(given, new.log_p - phi_i.log(Z[:, i]) - psi, 0.0)
        undo = new.log_p - new.log_q if settings.correct else new.log_forced
        log_w = log_w + torch.where(missing, undo, 0.0)
        psi = psi.masked_fill(given, 0.0)
        # Asked only where more is to be written before the given sentence: where it comes next it weighs anyway.
        asked = blanks.missing[:, i] & (following[:, i] > i + 1)
        if settings.twist_weight and asked.any():
            expected = settings.twist_weight * log_p_next(model, cursor, wide, Z, following[:, i].repeat_interleave(P))
            here = asked.to(device).repeat_interleave(P)
            log_w = log_w + torch.where(here, expected - psi, 0.0)
            psi = torch.where(here, expected, psi)
        now = effective_size(log_w.view(stories, P)).cpu()
        weighed = blanks.given[:, i] | (asked & (settings.twist_weight > 0))
        ess = torch.where(blanks.given[:, i], torch.minimum(ess, now), ess)
        # Where nothing is left to write, resampling could only lose stories.
        still = blanks.missing[:, i + 1 :].any(1)
        poor = weighed & still & (now < settings.resample_below * P)
        if poor.any():
            parents = systematic(log_w.view(stories, P), resampling[:, i])
            stay = torch.arange(stories * P, device=device).view(stories, P)
            parents = torch.where(poor.to(device)[:, None], stay[:, :1] + parents, stay).flatten()
            cursor = cursor.pick(parents)
            S, Z, X, lengths, log_p = S[parents], Z[parents], X[parents], lengths[parents], log_p[parents]
            psi = psi[parents]
            # Each child carries its island's mean weight, so that weights still compare across islands.
            mean = (log_w.view(stories, P).logsumexp(1) - math.log(P)).repeat_interleave(P)
            log_w = torch.where(poor.to(device).repeat_interleave(P), mean, log_w)
    blank = Diagnostics.none(stories, N)
    score = score_following(log_p, lengths, wide, settings.fluency)
    if settings.context:
        score = score + settings.context * context_gain(model, X, lengths, log_p, Z, wide, cursor)
    if settings.agreement:
        faults = repeated(X, wide) + echoed(X, wide)
        score = score - settings.agreement * (faults if cast is None else faults + cast.clashes(X, wide))
    found = Round(X, lengths, S, log_p, score, log_w)
    return found, blank._replace(ess=ess, tag_r_hat=latents.tag_r_hat, changed=_differing(X, blanks, P))


def context_gain(
    model: SLDS,
    X: Int[Tensor, "batch sent word"],
    lengths: Int[Tensor, "batch sent"],
    log_p: Float[Tensor, "batch sent"],
    Z: Float[Tensor, "batch sent latent"],
    blanks: InfillBatch,
    cursor: decode.Cursor,
) -> Float[Tensor, " batch"]:
    """log p(X_i | X_:i, Z_i) - log p(X_i | Z_i) of the written sentences, per word: what the story tells of them.

    A sentence that could stand anywhere is as probable alone. Alone is after an `<eos>`, with nothing remembered.
    """
    blank = decode.Cursor(tuple(torch.zeros_like(h) for h in cursor.state), torch.full_like(cursor.previous, EOS))
    saved, words = (torch.zeros(len(X), device=X.device) for _ in range(2))
    for i in blanks.missing.any(0).nonzero().flatten().tolist():
        own = lengths[:, i] * blanks.missing[:, i].to(X.device)
        alone = decode.read(model.language, blank, X[:, i] * (own > 0)[:, None], own, Z[:, i])[1]
        saved = saved + torch.where(own > 0, log_p[:, i] - alone, 0.0)
        words = words + own
    return saved / words.clamp(min=1)


def next_given(blanks: InfillBatch) -> Int[Tensor, "story sent"]:
    """The first given sentence after each, or -1 where none follows."""
    N = blanks.given.shape[1]
    found = torch.full(blanks.given.shape, -1)
    for i in range(N - 2, -1, -1):
        found[:, i] = torch.where(blanks.given[:, i + 1], i + 1, found[:, i + 1])
    return found


def log_p_next(
    model: SLDS,
    cursor: decode.Cursor,
    blanks: InfillBatch,
    Z: Float[Tensor, "batch sent latent"],
    at: Int[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """log p of the given sentence `at` (0 where -1), were it to come right now."""
    there = (at >= 0).to(blanks.device)
    place, rows = at.clamp(min=0).to(blanks.device), torch.arange(len(at), device=blanks.device)
    lengths = blanks.lengths[rows, place] * there
    _, log_p = decode.read(model.language, cursor, blanks.X[rows, place] * there[:, None], lengths, Z[rows, place])
    return log_p


def systematic(
    log_weights: Float[Tensor, "story sample"], uniform: Float[Tensor, " story"]
) -> Int[Tensor, "story sample"]:
    """Systematic resampling: particle p is the parent of floor or ceil of P w_p children, with one uniform number."""
    P = log_weights.shape[1]
    cumulative = log_weights.softmax(-1).cumsum(-1)
    points = (torch.arange(P, device=uniform.device) + uniform[:, None]) / P * cumulative[:, -1:]
    return torch.searchsorted(cumulative.contiguous(), points.contiguous(), right=True).clamp(max=P - 1)


def _differing(X: Tensor, blanks: InfillBatch, P: int) -> Float[Tensor, "story sent"]:
    """How often a particle's sentence differs from the particle's before it."""
    X = X.view(len(blanks.X), P, *X.shape[1:])
    other = (X.roll(1, 1) != X).any(-1).float().mean(1).cpu()
    return other.masked_fill(~blanks.missing, float("nan"))
