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

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.models.gaussian import Potential
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.sampling.batch import InfillBatch, evidence
from fabula.sampling.cast import Cast
from fabula.sampling.latents import Paths, draw_latents, find_paths
from fabula.sampling.noise import Noise
from fabula.sampling.particles import propose, start
from fabula.sampling.ranking import rank
from fabula.sampling.resample import of_islands, resample
from fabula.sampling.rules import WordRules
from fabula.sampling.samples import Diagnostics, SampledStories
from fabula.sampling.smc_settings import BridgeSettings, Observed
from fabula.sampling.tags import TagSource, infer_tags, tags_to_write
from fabula.sampling.weigh import guided_here, next_given, twisted, weigh

__all__ = ["BridgeSettings", "Observed", "island", "observe", "run", "without_latents"]

FIRST = 5
"""Of the particles, one in so many is in the first island."""


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

    The particles come in two independent islands, the first a small one: a first answer is there soon. Where nobody
    waits for it (`at_once`) both are told side by side, in half as many steps; the stories are the same.
    """
    if settings.rank == "critic":
        model.expect_critic()
    latent, paths, phi = model.latent, None, without_latents(blanks)
    if latent is not None:
        blanks, phi = observe(latent, blanks, settings.tags, settings.z_observes, gold)
        paths = find_paths(latent.scaffold, latent.dynamics, blanks.allowed, phi, blanks.present, generators)
    first = settings.particles // FIRST
    sizes = [n for n in (first, settings.particles - first) if n]
    together = [sizes] if settings.at_once else [[n] for n in sizes]
    worst: torch.Tensor | None = None
    for number, islands in enumerate(together, 1):
        noises = [Noise(generators, blanks.sentences, n, blanks.device) for n in islands]
        drawn, diagnostics = island(model, rules, blanks, phi, settings, noises, paths, cast)
        worst = diagnostics.ess if worst is None else torch.minimum(worst, diagnostics.ess)
        yield drawn, diagnostics._replace(ess=worst) if number == len(together) else None


class Draws(NamedTuple):
    """What is random of an island, drawn before its first sentence."""

    S: Int[Tensor, "story sample sent"]
    Z: Float[Tensor, "story sample sent latent"] | None
    uniform: Float[Tensor, "story sample sent word"] | None
    """A number for every word to be chosen; None: choices are greedy."""
    resampling: Float[Tensor, "story sent"]
    """One number a sentence and story, drawn whether needed or not: neighbours must not move a story's generator."""
    tag_ess: Float[Tensor, " story"] | None


def draw_island(
    model: Model, blanks: InfillBatch, phi: Potential, settings: BridgeSettings, noise: Noise,
    paths: Sequence[Paths] | None,
) -> Draws:  # fmt: skip
    """(S, Z) and the numbers that words and parents are chosen by."""
    stories, latent, latents = len(blanks.X), model.latent, None
    if latent is not None:
        allowed = blanks.allowed_of(latent.K)
        latents = draw_latents(latent.scaffold, latent.dynamics, allowed, phi, blanks.present, noise, paths)
    S = tags_to_write(model, blanks, noise) if latents is None else latents.S
    uniform = None if settings.decoding.top_k == 1 else noise.uniform(settings.decoding.max_words)
    resampling = noise.uniform().view(stories, noise.chains, -1)[:, 0]

    def by_story(rows: Tensor) -> Tensor:
        return rows.view(stories, -1, *rows.shape[1:])

    return Draws(
        by_story(S), None if latents is None else by_story(latents.Z), None if uniform is None else by_story(uniform),
        resampling, None if latents is None else latents.tag_ess,
    )  # fmt: skip


def island(
    model: Model,
    rules: WordRules,
    blanks: InfillBatch,
    phi: Potential,
    settings: BridgeSettings,
    noise: Noise | Sequence[Noise],
    paths: Sequence[Paths] | None = None,
    cast: Cast | None = None,
) -> tuple[SampledStories, Diagnostics]:
    """Particles: draw (S, Z); for every sentence propose, weigh and, where few count, resample; rank.

    `noise` is an island's, or that of several: islands told side by side, which are resampled each for itself.
    """
    noises = [noise] if isinstance(noise, Noise) else list(noise)
    sizes = [own.chains for own in noises]
    draws = [draw_island(model, blanks, phi, settings, own, paths) for own in noises]
    stories, N = blanks.X.shape[:2]
    P, device = sum(sizes), blanks.device
    S = torch.cat([own.S for own in draws], 1)
    Z = _rows([own.Z for own in draws])
    uniform = _rows([own.uniform for own in draws])
    resampling = torch.stack([own.resampling for own in draws], 1)
    wide = blanks.repeat(P)
    shared = 0 if Z is not None else alike(blanks, S)
    own_S = S[:, 0] if shared else S.flatten(0, 1)
    particles = start(model, blanks, blanks if shared else wide, own_S, Z, settings.decoding)
    following = next_given(blanks)
    ess = torch.full((stories,), float(min(sizes)))
    for i in range(shared):
        particles, new = propose(model, rules, settings.decoding, particles, blanks, i, None)
        alone = Potential(phi.mean[:, i], phi.precision[:, i])
        particles = weigh(model, settings, particles, new, blanks, i, alone, following[:, i])
    if shared:
        copies = torch.arange(stories, device=device).repeat_interleave(P)
        particles = particles.select(copies)._replace(S=S.flatten(0, 1))
    for i in range(shared, N):
        drawn = None if uniform is None else uniform[:, i]
        particles, new = propose(model, rules, settings.decoding, particles, wide, i, drawn)
        phi_i = Potential(phi.mean[:, i].repeat_interleave(P, 0), phi.precision[:, i].repeat_interleave(P, 0))
        particles = weigh(model, settings, particles, new, wide, i, phi_i, following[:, i].repeat_interleave(P))
        now = of_islands(particles.log_w.view(stories, P), sizes).cpu()
        weighed = twisted(blanks, settings, i, following[:, i]) | guided_here(blanks, settings, i)
        if settings.arc_weight and model.tagger is not None:
            weighed = weighed | (blanks.missing[:, i] & ~blanks.allowed[:, i].all(1).cpu())
        ess = torch.where(blanks.given[:, i], torch.minimum(ess, now.amin(1)), ess)
        # Where nothing is left to write, resampling could only lose stories.
        still = blanks.missing[:, i + 1 :].any(1)
        here = (blanks.given[:, i] | weighed) & still
        poor = here[:, None] & (now < settings.resample_below * torch.tensor(sizes))
        if poor.any():
            particles = resample(particles, poor.to(device), resampling[:, :, i], sizes)
    # Where no given sentence came after the last twist, it is still in the weights.
    particles = particles._replace(log_w=particles.log_w - particles.twist)
    score, verdicts = rank(model, settings, particles, wide, cast)
    found = SampledStories(
        particles.X, particles.lengths, particles.S, particles.log_p, score, particles.log_w, verdicts
    )
    diagnostics = Diagnostics.none(stories, N)
    diagnostics = diagnostics._replace(ess=ess, changed=_differing(particles.X, blanks, P, sizes[-1]))
    tag_ess = draws[-1].tag_ess
    return found, diagnostics if tag_ess is None else diagnostics._replace(tag_ess=tag_ess)


def _rows(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Several islands' numbers as rows, a story's islands side by side."""
    there = [part for part in parts if part is not None]
    return torch.cat(there, 1).flatten(0, 1) if there else None


def alike(blanks: InfillBatch, S: Int[Tensor, "story sample sent"]) -> int:
    """Sentences that a story's particles have in common, without Z: those before the first gap, under the same tags.

    They are read once for all particles.
    """
    differ = blanks.missing.any(0) | (S[:, :1] != S).any(1).any(0).cpu()
    return int(differ.int().argmax())


def _differing(X: Tensor, blanks: InfillBatch, P: int, last: int) -> Float[Tensor, "story sent"]:
    """How often a particle's sentence differs from the particle's before it, in the last island."""
    X = X.view(len(blanks.X), P, *X.shape[1:])[:, P - last :]
    other = (X.roll(1, 1) != X).any(-1).float().mean(1).cpu()
    return other.masked_fill(~blanks.missing, float("nan"))
