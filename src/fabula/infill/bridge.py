"""Look ahead first: all Z jointly given the given sentences, then the missing sentences by particles.

The target is the model's law of everything that is not given,

    p(S, Z, X- | X+) ∝ p(S) prod_i p(Z_i | Z_{i-1}, S_i) p(X_i | X_:i, Z_i)

with p(X_i | .) of a missing sentence truncated as the `DecodingConfig` says; `correct=True` undoes that in the weights.
A particle begins with (S, Z) drawn exactly from p(S) prod_i p(Z_i | Z_{i-1}, S_i) prod_{j given} phi_j(Z_j), and writes
left to right. At a given sentence j its weight is multiplied by p(X_j | X_:j, Z_j) / phi_j(Z_j), so that the sentence
counts once. With `twist_weight` above 0 this is a twisted particle filter: after every written sentence the particles
are also weighed by p(X_j | X_:i+1, Z_j)^twist_weight, the next given sentence as if it came next. It is divided out
again at j, so the target stays what it is. Everything is linear in N.

A decoder that reads ahead has a law r(X- | X+, S) beside p: the particles then write from r, and every sentence is read
under p. With `correct=True` a written sentence's weight is p / r, so that the target is p all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.corpus.taggers.protocol import misses
from fabula.errors import UserError
from fabula.infill import decode
from fabula.infill.batch import InfillBatch, evidence
from fabula.infill.cast import Cast
from fabula.infill.decode import TOP_15, DecodingConfig
from fabula.infill.latents import Paths, draw_latents, find_paths
from fabula.infill.noise import Noise
from fabula.infill.rules import WordRules
from fabula.infill.samples import Diagnostics, SampledStories, effective_size, score_following, score_parts
from fabula.infill.tags import TagSource, infer_tags, tags_to_write
from fabula.models.critic import WINDOW, Critic
from fabula.models.decoders.protocol import Decoder, Given
from fabula.models.gaussian import Potential
from fabula.models.protocol import Model
from fabula.models.slds import SLDS

FIRST = 5
"""Of the particles, one in so many is in the first island."""

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
    """Weight of the mean log-probability per written word in the ranking score (`score_following`)."""
    twist_weight: float = 0.0
    """Exponent of the next given sentence's probability in the weights before it is reached; 0: no twisting."""
    agreement: float = 0.0
    """Nats that a fault of the writing costs in the ranking (`Cast.faults`): a pronoun without a possible antecedent, a
    sentence that repeats another, a word of content that stands twice in its sentence."""
    context: float = 0.0
    """Weight in the ranking score of what the story so far tells of the written sentences (`context_gain`)."""
    rank: Literal["critic", "ending", "density"] = "ending"
    """Whether finished stories are ranked by the model's critic with some weight on the other two (its own), by the
    given sentences that follow (`score_following`), or by their probability."""
    arc_weight: float = 0.0
    """Nats that a written sentence costs, in weights and ranking, whose tag by the model's tagger is not the one asked
    for: the law is then p(X | S) with so much less for what the arc's own tagger would call otherwise."""
    guide: float = 0.0
    """Weight of the critic's value of the story so far in the weights, while more is to be written: a twist."""
    resample_below: float = 0.5
    """Particles are resampled at a given sentence where their effective number falls below this share."""
    tags: TagSource = "read"
    z_observes: Observed = "given"

    def __post_init__(self) -> None:
        if self.particles < 1 or not 0 <= self.resample_below <= 1:
            raise ValueError("particles is at least 1, resample_below between 0 and 1")


def observe(
    model: SLDS, blanks: InfillBatch, tags: TagSource, observed: Observed, gold: InfillBatch | None = None
) -> tuple[InfillBatch, Potential]:
    """The batch with its tags inferred, and phi of the observed sentences: 1 for the others, given or not."""
    seen = blanks.given & ((blanks.missing.cumsum(1) == 0) | (observed == "given"))
    lengths = blanks.lengths * seen.to(blanks.device)
    allowed = infer_tags(model, replace(blanks, lengths=lengths), tags, gold).allowed
    return replace(blanks, allowed=allowed), evidence(model, blanks.X, lengths).phi


def without_latents(blanks: InfillBatch) -> Potential:
    """phi of a model that has no Z: of width 0."""
    empty = torch.zeros(*blanks.lengths.shape, 0, device=blanks.device)
    return Potential(empty, empty)


def run(
    model: Model,
    rules: WordRules,
    blanks: InfillBatch,
    settings: BridgeSettings,
    generators: list[torch.Generator],
    gold: InfillBatch | None = None,
    cast: Cast | None = None,
) -> Iterator[tuple[SampledStories, Diagnostics | None]]:
    """The particles' stories, ranked by log p of the given sentences that what was written can change.

    The particles come in two independent islands, the first a small one: a first answer is there soon.
    """
    latent, paths, phi = model.latent, None, without_latents(blanks)
    if latent is not None:
        blanks, phi = observe(latent, blanks, settings.tags, settings.z_observes, gold)
        paths = find_paths(latent.scaffold, latent.dynamics, blanks.allowed, phi, blanks.present, generators)
    first = settings.particles // FIRST
    islands = [n for n in (first, settings.particles - first) if n]
    seen: list[Diagnostics] = []
    for particles in islands:
        noise = Noise(generators, blanks.sentences, particles, blanks.device)
        drawn, diagnostics = island(model, rules, blanks, phi, settings, noise, paths, cast)
        seen.append(diagnostics)
        yield drawn, _worst(seen) if len(seen) == len(islands) else None


def _worst(islands: list[Diagnostics]) -> Diagnostics:
    return islands[-1]._replace(
        ess=torch.stack([d.ess for d in islands]).amin(0),
    )


class Particles(NamedTuple):
    """Stories told part of the way, rows = stories x particles."""

    state: Any
    """The decoder's, under p."""
    proposal: Any
    """The decoder's, under r; None where sentences are written from p."""
    S: Int[Tensor, "batch sent"]
    Z: Float[Tensor, "batch sent latent"] | None
    X: Int[Tensor, "batch sent word"]
    lengths: Int[Tensor, "batch sent"]
    log_p: Float[Tensor, "batch sent"]
    log_w: Float[Tensor, " batch"]
    twist: Float[Tensor, " batch"]
    """What twisting has put into `log_w` so far, to be taken out at the next given sentence."""

    def z(self, i: int) -> Float[Tensor, "batch latent"] | None:
        return None if self.Z is None else self.Z[:, i]

    def select(self, rows: Int[Tensor, " rows"]) -> Particles:
        proposal, Z = self.proposal, self.Z
        S, X, lengths, log_p, log_w, twist = (t[rows] for t in (self.S, *self[4:]))
        proposal = None if proposal is None else proposal.select(rows)
        Z = None if Z is None else Z[rows]
        return Particles(self.state.select(rows), proposal, S, Z, X, lengths, log_p, log_w, twist)


def decoder_of(model: Model) -> Decoder[Any]:
    assert model.decoder is not None, "bridge needs a model that writes sentence by sentence"
    return model.decoder


def island(
    model: Model,
    rules: WordRules,
    blanks: InfillBatch,
    phi: Potential,
    settings: BridgeSettings,
    noise: Noise,
    paths: Sequence[Paths] | None = None,
    cast: Cast | None = None,
) -> tuple[SampledStories, Diagnostics]:
    """Independent particles: draw (S, Z); for every sentence propose, weigh and, where few count, resample; rank."""
    stories, N = blanks.X.shape[:2]
    P, device = noise.chains, blanks.device
    latent, latents = model.latent, None
    if latent is not None:
        allowed = blanks.allowed_of(latent.K)
        latents = draw_latents(
            latent.scaffold, latent.dynamics, allowed, phi, blanks.present, noise, paths
        )  # fmt: skip
    S = tags_to_write(model, blanks, noise) if latents is None else latents.S
    wide = blanks.repeat(P)
    shared = 0 if latents is not None else alike(blanks, S.view(stories, P, -1))
    uniform = None if settings.decoding.top_k == 1 else noise.uniform(settings.decoding.max_words)
    # One number a sentence and story, drawn whether needed or not: neighbours must not move a story's generator.
    resampling = noise.uniform().view(stories, P, -1)[:, 0]
    Z = None if latents is None else latents.Z
    own = S.view(stories, P, -1)[:, 0] if shared else S
    particles = start(model, blanks, blanks if shared else wide, own, Z, settings.decoding)
    following = next_given(blanks)
    ess = torch.full((stories,), float(P))
    for i in range(shared):
        particles, new = propose(model, rules, settings.decoding, particles, blanks, i, None)
        alone = Potential(phi.mean[:, i], phi.precision[:, i])
        particles = weigh(model, settings, particles, new, blanks, i, alone, following[:, i])
    if shared:
        particles = particles.select(torch.arange(stories, device=device).repeat_interleave(P))._replace(S=S)
    for i in range(shared, N):
        drawn = None if uniform is None else uniform[:, i]
        particles, new = propose(model, rules, settings.decoding, particles, wide, i, drawn)
        phi_i = Potential(phi.mean[:, i].repeat_interleave(P, 0), phi.precision[:, i].repeat_interleave(P, 0))
        particles = weigh(model, settings, particles, new, wide, i, phi_i, following[:, i].repeat_interleave(P))
        now = effective_size(particles.log_w.view(stories, P)).cpu()
        weighed = twisted(blanks, settings, i, following[:, i]) | guided_here(blanks, settings, i)
        if settings.arc_weight and model.tagger is not None:
            weighed = weighed | (blanks.missing[:, i] & ~blanks.allowed[:, i].all(1).cpu())
        ess = torch.where(blanks.given[:, i], torch.minimum(ess, now), ess)
        # Where nothing is left to write, resampling could only lose stories.
        still = blanks.missing[:, i + 1 :].any(1)
        poor = (blanks.given[:, i] | weighed) & still & (now < settings.resample_below * P)
        if poor.any():
            particles = resample(particles, poor.to(device), resampling[:, i])
    # Where no given sentence came after the last twist, it is still in the weights.
    particles = particles._replace(log_w=particles.log_w - particles.twist)
    score, verdicts = rank(model, settings, particles, wide, cast)
    found = SampledStories(
        particles.X, particles.lengths, particles.S, particles.log_p, score, particles.log_w, verdicts
    )
    diagnostics = Diagnostics.none(stories, N)
    diagnostics = diagnostics._replace(ess=ess, changed=_differing(particles.X, blanks, P))
    return found, diagnostics if latents is None else diagnostics._replace(tag_ess=latents.tag_ess)


def alike(blanks: InfillBatch, S: Int[Tensor, "story sample sent"]) -> int:
    """Sentences that a story's particles have in common, without Z: those before the first gap, under the same tags.

    They are read once for all particles.
    """
    differ = blanks.missing.any(0) | (S[:, :1] != S).any(1).any(0).cpu()
    return int(differ.int().argmax())


def start(
    model: Model, blanks: InfillBatch, wide: InfillBatch, S: Tensor, Z: Tensor | None, decoding: DecodingConfig
) -> Particles:
    """Before the first sentence. What a decoder reads ahead it reads once for all particles of a story."""
    decoder, rows, device = decoder_of(model), len(wide.X), wide.device
    state = decoder.start(rows, None if Z is None else Z[:, 0], bf16=decoding.bf16)
    proposal = None
    if decoder.reads_ahead:
        given = Given(blanks.X, blanks.lengths, blanks.present.to(device), blanks.missing.to(device))
        copies = torch.arange(len(blanks.X), device=device).repeat_interleave(rows // len(blanks.X))
        proposal = decoder.start(len(blanks.X), None, given, decoding.bf16).select(copies)
    X = wide.X.new_zeros(rows, wide.X.shape[1], max(wide.X.shape[2], decoding.max_words))
    log_p, nothing = torch.zeros(wide.lengths.shape, device=device), torch.zeros(rows, device=device)
    return Particles(state, proposal, S, Z, X, torch.zeros_like(wide.lengths), log_p, nothing, nothing)


def propose(
    model: Model,
    rules: WordRules,
    decoding: DecodingConfig,
    particles: Particles,
    blanks: InfillBatch,
    i: int,
    uniform: Float[Tensor, "batch word"] | None,
) -> tuple[Particles, decode.Sentences]:
    """Sentence i of every particle, written where missing; its `log_p` is under p, its `log_q` under its proposal."""
    decoder, s, z = decoder_of(model), particles.S[:, i], particles.z(i)
    # Where nothing is left to write the proposal has served.
    state, proposal = particles.state, particles.proposal if blanks.missing[:, i:].any() else None
    drawn_from = state if proposal is None else proposal
    drawn_from, new = decode.sentence(
        decoder, rules, decoding, drawn_from, blanks, i, s, z, uniform, particles.X
    )  # fmt: skip
    if proposal is None:
        state = drawn_from
    else:
        state, log_p = decoder.read(decoder.begin_sentence(state, s), new.words, new.lengths, z)
        new, proposal = new._replace(log_p=log_p), drawn_from
    X, lengths, log_p = particles.X.clone(), particles.lengths.clone(), particles.log_p.clone()
    X[:, i], lengths[:, i], log_p[:, i] = new.words, new.lengths, new.log_p
    return particles._replace(state=state, proposal=proposal, X=X, lengths=lengths, log_p=log_p), new


def weigh(
    model: Model,
    settings: BridgeSettings,
    particles: Particles,
    new: decode.Sentences,
    blanks: InfillBatch,
    i: int,
    phi: Potential,
    following: Int[Tensor, " batch"],
) -> Particles:
    """The weights after sentence i: p / phi of a given one, p / q of a written one if `correct`, and the twist."""
    device = blanks.device
    given, missing = blanks.given[:, i].to(device), blanks.missing[:, i].to(device)
    observed = new.log_p if particles.Z is None else new.log_p - phi.log(particles.Z[:, i])
    log_w = particles.log_w + torch.where(given, observed - particles.twist, 0.0)
    log_w = log_w + torch.where(missing, new.log_p - new.log_q if settings.correct else new.log_forced, 0.0)
    log_w = log_w - settings.arc_weight * off_the_arc(model, settings, particles, blanks, [i])
    twist = particles.twist.masked_fill(given, 0.0)
    here, guided = twisted(blanks, settings, i, following), guided_here(blanks, settings, i)
    if (here | guided).any():
        expected = torch.zeros_like(log_w)
        if here.any():
            ahead = settings.twist_weight * log_p_next(model, particles, blanks, following)
            expected = expected + torch.where(here.to(device), ahead, 0.0)
        if guided.any():
            value = settings.guide * value_so_far(critic_of(model), particles, i)
            expected = expected + torch.where(guided.to(device), value, 0.0)
        log_w = log_w + torch.where((here | guided).to(device), expected - twist, 0.0)
        twist = torch.where((here | guided).to(device), expected, twist)
    return particles._replace(log_w=log_w, twist=twist)


def twisted(
    blanks: InfillBatch, settings: BridgeSettings, i: int, following: Int[Tensor, " batch"]
) -> Bool[Tensor, " batch"]:
    """Only where more is to be written before the given sentence: where that comes next it weighs anyway."""
    return blanks.missing[:, i] & (following > i + 1) & (settings.twist_weight > 0)


def guided_here(blanks: InfillBatch, settings: BridgeSettings, i: int) -> Bool[Tensor, " batch"]:
    """Where the critic weighs the story so far: not after the last written sentence, it judges the whole soon."""
    return blanks.missing[:, i] & blanks.missing[:, i + 1 :].any(1) & (settings.guide > 0)


def off_the_arc(
    model: Model, settings: BridgeSettings, particles: Particles, blanks: InfillBatch, places: Iterable[int]
) -> Float[Tensor, " batch"]:
    """How many tags that a story's sentences were written under they do not have by the model's tagger."""
    wrong = torch.zeros(len(particles.X), device=blanks.device)
    tagger, tokenizer = model.tagger, model.tokenizer
    if not settings.arc_weight or tagger is None or tokenizer is None:
        return wrong
    for i in places:
        asked = ((particles.S[:, i] != UNKNOWN) & blanks.missing[:, i].to(blanks.device)).nonzero().squeeze(1)
        if len(asked):
            rows = zip(particles.X[asked, i].tolist(), particles.lengths[asked, i].tolist(), strict=True)
            texts = [tokenizer.decode(words[: max(n - 1, 0)]) for words, n in rows]
            wrong[asked] += torch.tensor(misses(tagger, texts, particles.S[asked, i].tolist())).to(wrong)
    return wrong


def critic_of(model: Model) -> Critic:
    if model.critic is None:
        raise UserError("this model has no critic: rank by ending or density", field="rank")
    return model.critic


def value_so_far(critic: Critic, particles: Particles, i: int) -> Float[Tensor, " batch"]:
    """The critic's value of the last sentences up to i."""
    first = max(0, i + 1 - WINDOW)
    X, lengths = particles.X[:, first : i + 1].tolist(), particles.lengths[:, first : i + 1].tolist()
    stories = [
        [sentence[: max(n - 1, 0)] for sentence, n in zip(*row, strict=True)] for row in zip(X, lengths, strict=True)
    ]
    return critic.values(stories)[:, -1].to(particles.X.device)


def resample(particles: Particles, poor: Bool[Tensor, " story"], uniform: Float[Tensor, " story"]) -> Particles:
    """Systematic resampling in the poor stories; each child carries the mean weight, so that islands still compare."""
    log_w = particles.log_w.view(len(poor), -1)
    P = log_w.shape[1]
    stay = torch.arange(log_w.numel(), device=log_w.device).view_as(log_w)
    parents = torch.where(poor[:, None], stay[:, :1] + systematic(log_w, uniform), stay).flatten()
    mean = (log_w.logsumexp(1) - math.log(P)).repeat_interleave(P)
    log_w = torch.where(poor.repeat_interleave(P), mean, particles.log_w)
    return particles.select(parents)._replace(log_w=log_w)


def rank(
    model: Model, settings: BridgeSettings, particles: Particles, blanks: InfillBatch, cast: Cast | None
) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch sent"] | None]:
    """What finished stories are ranked by, larger is better; and the critic's verdicts, if it was asked."""
    score = score_following(particles.log_p, particles.lengths, blanks, settings.fluency)
    verdicts = None
    if settings.rank == "density":
        later = (blanks.missing.cumsum(1) > 0).to(blanks.device)
        score = (particles.log_p * later).sum(-1)
    elif settings.rank == "critic":
        critic = critic_of(model)
        verdicts = judged(critic, particles, blanks)
        parts = score_parts(particles.log_p, particles.lengths, blanks)
        score = verdicts[:, 0] + critic.ending * parts.ending + critic.density * parts.written
    score = score - settings.arc_weight * off_the_arc(model, settings, particles, blanks, range(blanks.X.shape[1]))
    if settings.context:
        score = score + settings.context * context_gain(model, particles, blanks)
    if settings.agreement and cast is not None:
        score = score - settings.agreement * cast.faults(particles.X, blanks)
    return score, verdicts


def judged(critic: Critic, particles: Particles, blanks: InfillBatch) -> Float[Tensor, "batch sent"]:
    """A critic's verdicts: in the first column the whole story's, then what each later line did to it."""
    stories = []
    for X, lengths, N in zip(particles.X.tolist(), particles.lengths.tolist(), blanks.sentences, strict=True):
        stories.append([X[i][: max(lengths[i] - 1, 0)] for i in range(N)])
    found = torch.zeros(particles.lengths.shape)
    for n, verdict in enumerate(critic.judge(stories)):
        found[n, : len(verdict.lines)] = torch.tensor([verdict.whole, *verdict.lines[1:]])
    return found.to(blanks.device)


def context_gain(model: Model, particles: Particles, blanks: InfillBatch) -> Float[Tensor, " batch"]:
    """log p(X_i | X_:i, Z_i) - log p(X_i | Z_i) of the written sentences, per word: what the story tells of them.

    A sentence that could stand anywhere is as probable without a history.
    """
    X, device = particles.X, blanks.device
    blank = decoder_of(model).without_history(particles.state)
    saved, words = (torch.zeros(len(X), device=device) for _ in range(2))
    for i in blanks.missing.any(0).nonzero().flatten().tolist():
        own = particles.lengths[:, i] * blanks.missing[:, i].to(device)
        before = decoder_of(model).begin_sentence(blank, particles.S[:, i])
        alone = decoder_of(model).read(before, X[:, i] * (own > 0)[:, None], own, particles.z(i))[1]
        saved = saved + torch.where(own > 0, particles.log_p[:, i] - alone, 0.0)
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
    model: Model, particles: Particles, blanks: InfillBatch, at: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """log p of the given sentence `at` (0 where -1), were it to come right now."""
    there = (at >= 0).to(blanks.device)
    place, rows = at.clamp(min=0).to(blanks.device), torch.arange(len(at), device=blanks.device)
    lengths = blanks.lengths[rows, place] * there
    state = decoder_of(model).begin_sentence(particles.state, particles.S[rows, place])
    z = None if particles.Z is None else particles.Z[rows, place]
    return decoder_of(model).read(state, blanks.X[rows, place] * there[:, None], lengths, z)[1]


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
