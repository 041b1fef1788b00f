"""What `bridge` ranks finished stories by."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.models.critic import Critic
from fabula.models.protocol import Model
from fabula.sampling.batch import InfillBatch
from fabula.sampling.cast import Cast
from fabula.sampling.particles import Particles, critic_of, decoder_of
from fabula.sampling.samples import score_following, score_parts
from fabula.sampling.smc_settings import BridgeSettings
from fabula.sampling.weigh import off_the_arc


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
        own, z, s = particles.lengths[:, i] * blanks.missing[:, i].to(device), particles.z(i), particles.S[:, i]
        written = X[:, i] * (own > 0)[:, None]
        rows, of_row = distinct(written, s[:, None], *([] if z is None else [z]))
        before = decoder_of(model).begin_sentence(blank.select(rows), s[rows])
        alone = decoder_of(model).read(before, written[rows], own[rows], None if z is None else z[rows])[1][of_row]
        saved = saved + torch.where(own > 0, particles.log_p[:, i] - alone, 0.0)
        words = words + own
    return saved / words.clamp(min=1)


def distinct(*columns: Tensor) -> tuple[Int[Tensor, " distinct"], Int[Tensor, " batch"]]:
    """One of each kind of row, and every row's place among them: resampled particles have much in common."""
    _, kind = torch.cat([column.double() for column in columns], 1).unique(dim=0, return_inverse=True)
    order = torch.arange(len(kind), device=kind.device)
    rows = order.new_full((int(kind.max()) + 1,), len(kind)).scatter_reduce(0, kind, order, "amin")
    return rows, kind
