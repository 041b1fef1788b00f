"""Particles of `smc`: stories written part of the way, the step that writes one sentence more, weights, resampling.

And the score that finished stories are ranked by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.corpus.taggers.protocol import misses
from fabula.corpus.vocabulary import PAD
from fabula.errors import UserError
from fabula.models.critic import Critic
from fabula.models.decoders.protocol import Decoder, Given
from fabula.models.protocol import Model
from fabula.sampling.batch import InfillBatch
from fabula.sampling.cast import Cast
from fabula.sampling.decode import Sentences, Uniform, Writer
from fabula.sampling.guidance import GuidedDecoder, GuidedState
from fabula.sampling.samples import score_following, score_parts
from fabula.sampling.settings import SMCSettings
from fabula.shapes import Flags, Integers, Latent, Latents, PerSentence, PerStory, Rows, Tags
from fabula.statespace.diagnostics import systematic
from fabula.statespace.gaussian import Potential


class Particles(NamedTuple):
    """Stories written part of the way, rows = stories x particles."""

    state: Any
    """The decoder's, under p."""
    proposal: Any
    """The decoder's, under r; None where sentences are written from p."""
    S: Tags
    Z: Latents | None
    X: Int[Tensor, "batch sent word"]
    lengths: Tags
    log_p: PerSentence
    log_w: PerStory
    twist: PerStory
    """What twisting has put into `log_w` so far, to be taken out at the next given sentence."""

    def z(self, i: int) -> Latent | None:
        return None if self.Z is None else self.Z[:, i]

    def select(self, rows: Rows) -> Particles:
        proposal = None if self.proposal is None else self.proposal.select(rows)
        tensors = {name: t[rows] for name, t in self._asdict().items() if isinstance(t, Tensor)}
        return self._replace(state=self.state.select(rows), proposal=proposal, **tensors)


def decoder_of(model: Model) -> Decoder[Any]:
    assert model.decoder is not None, "smc needs a model that writes sentence by sentence"
    return model.decoder


def start(writer: Writer, blanks: InfillBatch, wide: InfillBatch, S: Tensor, Z: Tensor | None) -> Particles:
    """Before the first sentence. What a decoder reads ahead it reads once for all particles of a story."""
    decoder, decoding, rows, device = writer.decoder, writer.decoding, len(wide.X), wide.device
    state = decoder.start(rows, None if Z is None else Z[:, 0])
    proposal = None
    if decoder.reads_until(0):
        given = Given(blanks.X, blanks.lengths, blanks.present.to(device), blanks.missing.to(device))
        copies = torch.arange(len(blanks.X), device=device).repeat_interleave(rows // len(blanks.X))
        proposer = GuidedDecoder(decoder) if decoding.guidance and blanks.given.any() else decoder
        proposal = proposer.start(len(blanks.X), None, given).select(copies)
    X = wide.X.new_zeros(rows, wide.X.shape[1], max(wide.X.shape[2], decoding.max_words))
    log_p, nothing = torch.zeros(wide.lengths.shape, device=device), torch.zeros(rows, device=device)
    return Particles(state, proposal, S, Z, X, torch.zeros_like(wide.lengths), log_p, nothing, nothing)


def propose(
    writer: Writer, particles: Particles, blanks: InfillBatch, i: int, uniform: Uniform | None
) -> tuple[Particles, Sentences]:
    """Sentence i of every particle, written where missing; its `log_p` is under p, its `log_q` under its proposal."""
    decoder, s, z = writer.decoder, particles.S[:, i], particles.z(i)
    # Where nothing is left to write the proposal has served.
    state, proposal = particles.state, particles.proposal if blanks.missing[:, i:].any() else None
    if isinstance(proposal, GuidedState):
        ahead = blanks.given[:, i + 1 : decoder.reads_until(i)].any(1).to(blanks.device)
        proposal = replace(proposal, weight=writer.decoding.guidance * ahead)
        guided, opening = replace(writer, decoder=GuidedDecoder(decoder)), blanks.opening[:, i]
        forced = torch.zeros_like(particles.log_w)
        if opening.any():  # weighed as without guidance
            before = decoder.begin_sentence(proposal.under_r, s)
            forced = decoder.read(before, opening, (opening != PAD).sum(1), z)[1]
        proposal, sentences = guided.sentence(proposal, blanks, i, s, z, uniform, particles.X)
        state, log_p = proposal.under_p, proposal.log_p.masked_fill(sentences.lengths == 0, 0.0)
        sentences = sentences._replace(log_p=log_p, log_forced=forced)
    elif proposal is None:
        state, sentences = writer.sentence(state, blanks, i, s, z, uniform, particles.X)
    else:
        proposal, sentences = writer.sentence(proposal, blanks, i, s, z, uniform, particles.X)
        state, log_p = decoder.read(decoder.begin_sentence(state, s), sentences.words, sentences.lengths, z)
        sentences = sentences._replace(log_p=log_p)
    X, lengths, log_p = particles.X.clone(), particles.lengths.clone(), particles.log_p.clone()
    X[:, i], lengths[:, i], log_p[:, i] = sentences.words, sentences.lengths, sentences.log_p
    return particles._replace(state=state, proposal=proposal, X=X, lengths=lengths, log_p=log_p), sentences


def resample(
    particles: Particles, poor: Bool[Tensor, "story group"], uniform: Float[Tensor, "story group"], sizes: Sequence[int]
) -> Particles:
    """Systematic resampling in the poor groups, of so many particles each; every child carries its group's mean
    weight, so that groups still compare."""
    log_w = particles.log_w.view(len(poor), -1)
    stay = torch.arange(log_w.numel(), device=log_w.device).view_as(log_w)
    parents, means = [], []
    for k, (weights, rows) in enumerate(zip(log_w.split(list(sizes), 1), stay.split(list(sizes), 1), strict=True)):
        P, here = weights.shape[1], poor[:, k, None]
        parents.append(torch.where(here, rows[:, :1] + systematic(weights, uniform[:, k]), rows))
        means.append(torch.where(here, weights.logsumexp(1, keepdim=True) - math.log(P), weights))
    return particles.select(torch.cat(parents, 1).flatten())._replace(log_w=torch.cat(means, 1).flatten())


def weigh(
    model: Model, settings: SMCSettings, particles: Particles, sentences: Sentences, blanks: InfillBatch, i: int,
    phi: Potential, following: Integers,
) -> Particles:  # fmt: skip
    """The weights after sentence i: p / phi of a given one, p / q of a written one if `correct`, and the twist."""
    device = blanks.device
    given, missing = blanks.given[:, i].to(device), blanks.missing[:, i].to(device)
    observed = sentences.log_p if particles.Z is None else sentences.log_p - phi.log(particles.Z[:, i])
    log_w = particles.log_w + torch.where(given, observed - particles.twist, 0.0)
    written = sentences.log_p - sentences.log_q if settings.correct else sentences.log_forced
    log_w = log_w + torch.where(missing, written, 0.0)
    log_w = log_w - settings.arc_weight * off_the_arc(model, settings, particles, blanks, [i])
    twist = particles.twist.masked_fill(given, 0.0)
    here = twisted(blanks, settings, i, following).to(device)
    if here.any():
        ahead = settings.twist_weight * log_p_next(model, particles, blanks, following)
        log_w = log_w + torch.where(here, ahead - twist, 0.0)
        twist = torch.where(here, ahead, twist)
    return particles._replace(log_w=log_w, twist=twist)


def twisted(blanks: InfillBatch, settings: SMCSettings, i: int, following: Integers) -> Flags:
    """Only where more is to be written before the given sentence: where that comes next it weighs anyway."""
    return blanks.missing[:, i] & (following > i + 1) & (settings.twist_weight > 0)


def off_the_arc(
    model: Model, settings: SMCSettings, particles: Particles, blanks: InfillBatch, places: Iterable[int]
) -> PerStory:
    """How many tags that a story's sentences were written under they do not have by the model's tagger."""
    wrong = torch.zeros(len(particles.X), device=blanks.device)
    tagger, tokenizer = model.tagger, model.tokenizer
    if not settings.arc_weight or tagger is None or tokenizer is None:
        return wrong
    for i in places:
        rows = ((particles.S[:, i] != UNKNOWN) & blanks.missing[:, i].to(blanks.device)).nonzero().squeeze(1)
        if len(rows):
            texts = [tokenizer.decode(words) for (words,) in words_of(particles, slice(i, i + 1), rows)]
            wrong[rows] += torch.tensor(misses(tagger, texts, particles.S[rows, i].tolist())).to(wrong)
    return wrong


def words_of(particles: Particles, places: slice, rows: Tensor | slice = slice(None)) -> list[list[list[int]]]:
    """The tokens of some sentences of every story, each without its end."""
    X, lengths = particles.X[rows, places].tolist(), particles.lengths[rows, places].tolist()
    return [
        [sentence[: max(n - 1, 0)] for sentence, n in zip(*row, strict=True)] for row in zip(X, lengths, strict=True)
    ]


def next_given(blanks: InfillBatch) -> Int[Tensor, "story sent"]:
    """The first given sentence after each, or -1 where none follows."""
    N = blanks.given.shape[1]
    following = torch.full(blanks.given.shape, -1)
    for i in range(N - 2, -1, -1):
        following[:, i] = torch.where(blanks.given[:, i + 1], i + 1, following[:, i + 1])
    return following


def log_p_next(model: Model, particles: Particles, blanks: InfillBatch, at: Integers) -> PerStory:
    """log p of the given sentence `at` (0 where -1), were it to come right now."""
    there = (at >= 0).to(blanks.device)
    place, rows = at.clamp(min=0).to(blanks.device), torch.arange(len(at), device=blanks.device)
    lengths = blanks.lengths[rows, place] * there
    state = decoder_of(model).begin_sentence(particles.state, particles.S[rows, place])
    z = None if particles.Z is None else particles.Z[rows, place]
    return decoder_of(model).read(state, blanks.X[rows, place] * there[:, None], lengths, z)[1]


def rank(
    model: Model, settings: SMCSettings, particles: Particles, blanks: InfillBatch, cast: Cast | None
) -> tuple[PerStory, PerSentence | None]:
    """What finished stories are ranked by, larger is better; and the critic's verdicts, if it was asked."""
    score = score_following(particles.log_p, particles.lengths, blanks, settings.fluency)
    verdicts = None
    if settings.rank == "critic":
        if model.critic is None:
            raise UserError("this model has no critic: rank by ending", field="rank")
        verdicts = judged(model.critic, particles, blanks)
        ending, _ = score_parts(particles.log_p, particles.lengths, blanks)
        score = verdicts[:, 0] + model.critic.ending * ending
    score = score - settings.arc_weight * off_the_arc(model, settings, particles, blanks, range(blanks.X.shape[1]))
    if settings.context:
        score = score + settings.context * context_gain(model, particles, blanks)
    if settings.agreement and cast is not None:
        score = score - settings.agreement * cast.faults(particles.X, blanks)
    return score, verdicts


def judged(critic: Critic, particles: Particles, blanks: InfillBatch) -> PerSentence:
    """A critic's verdicts: in the first column the whole story's, then what each later line did to it."""
    stories = [story[:N] for story, N in zip(words_of(particles, slice(None)), blanks.sentences, strict=True)]
    verdicts = torch.zeros(particles.lengths.shape)
    for n, verdict in enumerate(critic.judge(stories)):
        verdicts[n, : len(verdict.lines)] = torch.tensor([verdict.whole, *verdict.lines[1:]])
    return verdicts.to(blanks.device)


def context_gain(model: Model, particles: Particles, blanks: InfillBatch) -> PerStory:
    """log p(X_i | X_:i, Z_i) - log p(X_i | Z_i) of the written sentences, per word: what the story so far adds.

    A sentence that could stand anywhere is as probable without a history.
    """
    X, device = particles.X, blanks.device
    blank = decoder_of(model).without_history(particles.state)
    saved, words = (torch.zeros(len(X), device=device) for _ in range(2))
    for i in blanks.missing.any(0).nonzero().flatten().tolist():
        length, z, s = particles.lengths[:, i] * blanks.missing[:, i].to(device), particles.z(i), particles.S[:, i]
        written = X[:, i] * (length > 0)[:, None]
        rows, of_row = distinct(written, s[:, None], *([] if z is None else [z]))
        before = decoder_of(model).begin_sentence(blank.select(rows), s[rows])
        alone = decoder_of(model).read(before, written[rows], length[rows], None if z is None else z[rows])[1][of_row]
        saved = saved + torch.where(length > 0, particles.log_p[:, i] - alone, 0.0)
        words = words + length
    return saved / words.clamp(min=1)


def distinct(*columns: Tensor) -> tuple[Int[Tensor, " distinct"], Integers]:
    """One of each kind of row, and every row's place among them: resampled particles have much in common."""
    _, kind = torch.cat([column.double() for column in columns], 1).unique(dim=0, return_inverse=True)
    order = torch.arange(len(kind), device=kind.device)
    rows = order.new_full((int(kind.max()) + 1,), len(kind)).scatter_reduce(0, kind, order, "amin")
    return rows, kind
