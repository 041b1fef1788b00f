"""Look ahead first: all Z jointly given the given sentences, then the missing sentences by sequential Monte Carlo.

The target is the model's distribution of everything that is not given,

    p(S, Z, X- | X+) ∝ p(S) prod_i p(Z_i | Z_{i-1}, S_i) p(X_i | X_:i, Z_i)

with p(X_i | .) of a missing sentence truncated as the `DecodingConfig` says; `correct=True` undoes that in the weights.
A particle begins with (S, Z) drawn exactly from p(S) prod_i p(Z_i | Z_{i-1}, S_i) prod_{j given} phi_j(Z_j), and writes
left to right. At a given sentence j its weight is multiplied by p(X_j | X_:j, Z_j) / phi_j(Z_j), so that the sentence
counts once. With `twist_weight` above 0 this is a twisted particle filter: after every written sentence the particles
are also weighed by p(X_j | X_:i+1, Z_j)^twist_weight, the next given sentence as if it came next. It is divided out
again at j, so the target stays what it is. Everything is linear in N.

A decoder that reads ahead has a distribution r(X- | X+, S) beside p: the particles then write from r, and every
sentence is read under p. With `correct=True` a written sentence's weight is p / r, and the target is still p, within
what can be drawn: with guidance no word that r takes for far less plausible than its best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.listening import listener
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.sampling.batch import InfillBatch, evidence
from fabula.sampling.cast import Cast
from fabula.sampling.decode import Writer
from fabula.sampling.latents import Paths, draw_latents, find_paths
from fabula.sampling.noise import Noise
from fabula.sampling.particles import decoder_of, next_given, propose, rank, resample, start, twisted, weigh
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import Diagnostics, Rounds, SampledStories
from fabula.sampling.settings import SMCSettings, TagSource
from fabula.sampling.tags import infer_tags, tags_to_write
from fabula.statespace.diagnostics import effective_size
from fabula.statespace.gaussian import Potential

FIRST = 5
"""Of the particles, one in so many is in the first group."""


def observe(model: SLDS, blanks: InfillBatch, tags: TagSource) -> tuple[InfillBatch, Potential]:
    """The batch with its tags inferred, and phi of the given sentences: 1 for the missing ones."""
    return infer_tags(model, blanks, tags), evidence(model, blanks.X, blanks.lengths).phi


def without_latents(blanks: InfillBatch) -> Potential:
    """phi of a model that has no Z: of width 0."""
    empty = torch.zeros(*blanks.lengths.shape, 0, device=blanks.device)
    return Potential(empty, empty)


def run(
    model: Model, blanks: InfillBatch, settings: SMCSettings, generators: Sequence[torch.Generator], *,
    rules: WordRules, cast: Cast | None = None,
) -> Rounds:  # fmt: skip
    """The particles' stories, ranked as the settings say.

    The particles come in two independent groups, the first a small one: a first answer is there soon. With `at_once`
    both are written side by side, in half as many steps; the stories are the same.
    """
    if cast is not None and not settings.allow_new_names:
        blanks = cast.without_new_names(blanks)
    latent, paths, phi = model.latent, None, without_latents(blanks)
    if latent is not None:
        blanks, phi = observe(latent, blanks, settings.tags)
        paths = find_paths(latent.scaffold, latent.dynamics, blanks.allowed, phi, blanks.present, generators)
    first = settings.samples // FIRST
    sizes = [size for size in (first, settings.samples - first) if size]
    rounds = [sizes] if settings.at_once else [[size] for size in sizes]
    smallest: torch.Tensor | None = None
    for number, groups in enumerate(rounds, 1):
        noises = [Noise(generators, blanks.sentences, size, blanks.device) for size in groups]
        stories, diagnostics = draw_groups(model, rules, blanks, phi, settings, noises, paths, cast)
        smallest = diagnostics.ess if smallest is None else torch.minimum(smallest, diagnostics.ess)
        yield stories, diagnostics._replace(ess=smallest) if number == len(rounds) else None


class Draws(NamedTuple):
    """The random numbers of a particle group, drawn before its first sentence."""

    S: Int[Tensor, "story sample sent"]
    Z: Float[Tensor, "story sample sent latent"] | None
    uniform: Float[Tensor, "story sample sent word"] | None
    """A number for every word to be chosen; None: choices are greedy."""
    resampling: Float[Tensor, "story sent"]
    """One number a sentence and story, drawn whether needed or not: neighbours must not move a story's generator."""
    tag_ess: Float[Tensor, " story"] | None


def draw_numbers(
    model: Model, blanks: InfillBatch, phi: Potential, settings: SMCSettings, noise: Noise,
    paths: Sequence[Paths] | None,
) -> Draws:  # fmt: skip
    """(S, Z) and the numbers that words and parents are chosen by."""
    stories, latent, latents = len(blanks.X), model.latent, None
    if latent is not None:
        allowed = blanks.allowed_of(latent.K)
        latents = draw_latents(latent.scaffold, latent.dynamics, allowed, phi, blanks.present, noise, paths)
    S = tags_to_write(model, blanks, noise) if latents is None else latents.S
    decoding = settings.decoding
    uniform = None if decoding.top_k == 1 else noise.uniform(decoding.max_words)
    resampling = noise.uniform().view(stories, noise.chains, -1)[:, 0]
    S, uniform = S.unflatten(0, (stories, -1)), None if uniform is None else uniform.unflatten(0, (stories, -1))
    Z, tag_ess = (None, None) if latents is None else (latents.Z.unflatten(0, (stories, -1)), latents.tag_ess)
    return Draws(S, Z, uniform, resampling, tag_ess)


def draw_groups(
    model: Model, rules: WordRules, blanks: InfillBatch, phi: Potential, settings: SMCSettings, noises: Sequence[Noise],
    paths: Sequence[Paths] | None = None, cast: Cast | None = None,
) -> tuple[SampledStories, Diagnostics]:  # fmt: skip
    """Particle groups side by side, one for each noise: draw (S, Z); for every sentence propose, weigh and, where the
    effective size of a group is small, resample it; rank."""
    sizes = [noise.chains for noise in noises]
    draws = [draw_numbers(model, blanks, phi, settings, noise, paths) for noise in noises]
    stories, N = blanks.X.shape[:2]
    P, device = sum(sizes), blanks.device
    S = torch.cat([group.S for group in draws], 1)
    Z, uniform = _rows([group.Z for group in draws]), _rows([group.uniform for group in draws])
    resampling = torch.stack([group.resampling for group in draws], 1)
    wide, following = blanks.repeat(P), next_given(blanks)
    shared = 0 if Z is not None else shared_sentences(blanks, S)
    writer = Writer(decoder_of(model), rules, settings.decoding)
    particles = start(writer, blanks, blanks if shared else wide, S[:, 0] if shared else S.flatten(0, 1), Z)
    ess = torch.full((stories,), float(min(sizes)))
    for i in range(N):
        if shared and i == shared:
            copies = torch.arange(stories, device=device).repeat_interleave(P)
            particles = particles.select(copies)._replace(S=S.flatten(0, 1))
        copies_of_each, batch = (1, blanks) if i < shared else (P, wide)
        drawn = None if uniform is None or i < shared else uniform[:, i]
        particles, sentences = propose(writer, particles, batch, i, drawn)
        phi_i = Potential(*(t[:, i].repeat_interleave(copies_of_each, 0) for t in phi))
        ahead = following[:, i].repeat_interleave(copies_of_each)
        particles = weigh(model, settings, particles, sentences, batch, i, phi_i, ahead)
        if i < shared:
            continue
        groups = particles.log_w.view(stories, P).split(sizes, 1)
        sizes_now = torch.stack([effective_size(log_w) for log_w in groups], 1).cpu()
        ess = torch.where(blanks.given[:, i], torch.minimum(ess, sizes_now.amin(1)), ess)
        # Where nothing is left to write, resampling could only lose stories.
        here = weighed(model, blanks, settings, i, following[:, i]) & blanks.missing[:, i + 1 :].any(1)
        poor = here[:, None] & (sizes_now < settings.resample_below * torch.tensor(sizes))
        if poor.any():
            particles = resample(particles, poor.to(device), resampling[:, :, i], sizes)
            if (heard := listener()) is not None:  # the sample that is listened to may be another one now
                for j in blanks.missing[0, : i + 1].nonzero().flatten().tolist():
                    heard.tokens(j, particles.X[0, j].tolist, ended=True)
    # Where no given sentence came after the last twist, it is still in the weights.
    particles = particles._replace(log_w=particles.log_w - particles.twist)
    score, verdicts = rank(model, settings, particles, wide, cast)
    diagnostics = Diagnostics.none(stories, N)._replace(ess=ess, changed=_differing(particles.X, blanks, P, sizes[-1]))
    if draws[-1].tag_ess is not None:
        diagnostics = diagnostics._replace(tag_ess=draws[-1].tag_ess)
    X, lengths, log_p, log_w = particles.X, particles.lengths, particles.log_p, particles.log_w
    return SampledStories(X, lengths, particles.S, log_p, score, log_w, verdicts), diagnostics


def weighed(model: Model, blanks: InfillBatch, settings: SMCSettings, i: int, following: Tensor) -> Tensor:
    """The stories whose weights sentence i changes."""
    changed = blanks.given[:, i] | twisted(blanks, settings, i, following)
    if settings.arc_weight and model.tagger is not None:
        changed = changed | (blanks.missing[:, i] & ~blanks.allowed[:, i].all(1).cpu())
    return changed


def _rows(groups: Sequence[Tensor | None]) -> Tensor | None:
    """Several groups' numbers as rows, a story's groups side by side."""
    there = [group for group in groups if group is not None]
    return torch.cat(there, 1).flatten(0, 1) if there else None


def shared_sentences(blanks: InfillBatch, S: Int[Tensor, "story sample sent"]) -> int:
    """Sentences that all particles of a story share without Z: those before the first gap, under the same tags.

    They are read once for all particles.
    """
    differ = blanks.missing.any(0) | (S[:, :1] != S).any(1).any(0).cpu()
    return int(differ.int().argmax())


def _differing(X: Tensor, blanks: InfillBatch, P: int, last: int) -> Float[Tensor, "story sent"]:
    """How often a particle's sentence differs from the particle's before it, in the last group."""
    X = X.view(len(blanks.X), P, *X.shape[1:])[:, P - last :]
    other = (X.roll(1, 1) != X).any(-1).float().mean(1).cpu()
    return other.masked_fill(~blanks.missing, float("nan"))
