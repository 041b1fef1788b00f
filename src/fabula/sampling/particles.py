"""Particles of `smc`: stories written part of the way, the step that writes one sentence more, and resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from fabula.errors import UserError
from fabula.models.critic import Critic
from fabula.models.decoders.protocol import Decoder, Given
from fabula.models.protocol import Model
from fabula.sampling.batch import InfillBatch
from fabula.sampling.decode import Sentences, Uniform, Writer
from fabula.shapes import Latent, Latents, PerSentence, PerStory, Rows, Tags
from fabula.statespace.diagnostics import effective_size, systematic


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


def critic_of(model: Model) -> Critic:
    if model.critic is None:
        raise UserError("this model has no critic: rank by ending or density", field="rank")
    return model.critic


def start(writer: Writer, blanks: InfillBatch, wide: InfillBatch, S: Tensor, Z: Tensor | None) -> Particles:
    """Before the first sentence. What a decoder reads ahead it reads once for all particles of a story."""
    decoder, decoding, rows, device = writer.decoder, writer.decoding, len(wide.X), wide.device
    state = decoder.start(rows, None if Z is None else Z[:, 0])
    proposal = None
    if decoder.reads_ahead:
        given = Given(blanks.X, blanks.lengths, blanks.present.to(device), blanks.missing.to(device))
        copies = torch.arange(len(blanks.X), device=device).repeat_interleave(rows // len(blanks.X))
        proposal = decoder.start(len(blanks.X), None, given).select(copies)
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
    drawn_from = state if proposal is None else proposal
    drawn_from, sentences = writer.sentence(drawn_from, blanks, i, s, z, uniform, particles.X)
    if proposal is None:
        state = drawn_from
    else:
        state, log_p = decoder.read(decoder.begin_sentence(state, s), sentences.words, sentences.lengths, z)
        sentences, proposal = sentences._replace(log_p=log_p), drawn_from
    X, lengths, log_p = particles.X.clone(), particles.lengths.clone(), particles.log_p.clone()
    X[:, i], lengths[:, i], log_p[:, i] = sentences.words, sentences.lengths, sentences.log_p
    return particles._replace(state=state, proposal=proposal, X=X, lengths=lengths, log_p=log_p), sentences


def group_sizes(log_w: Float[Tensor, "story sample"], sizes: Sequence[int]) -> Float[Tensor, "story group"]:
    """The effective number of particles of every group."""
    return torch.stack([effective_size(part) for part in log_w.split(list(sizes), 1)], 1)


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
