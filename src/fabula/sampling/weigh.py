"""The weights of `bridge`'s particles: what a sentence, given or written, and the lines ahead say of a story so far."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.corpus.taggers.protocol import misses
from fabula.models.critic import WINDOW, Critic
from fabula.models.gaussian import Potential
from fabula.models.protocol import Model
from fabula.sampling import decode
from fabula.sampling.batch import InfillBatch
from fabula.sampling.particles import Particles, critic_of, decoder_of
from fabula.sampling.smc_settings import BridgeSettings


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


def value_so_far(critic: Critic, particles: Particles, i: int) -> Float[Tensor, " batch"]:
    """The critic's value of the last sentences up to i."""
    first = max(0, i + 1 - WINDOW)
    X, lengths = particles.X[:, first : i + 1].tolist(), particles.lengths[:, first : i + 1].tolist()
    stories = [
        [sentence[: max(n - 1, 0)] for sentence, n in zip(*row, strict=True)] for row in zip(X, lengths, strict=True)
    ]
    return critic.values(stories)[:, -1].to(particles.X.device)


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
