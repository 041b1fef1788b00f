"""How a sentence fits its story: what it is worth after the sentences before it, and to those that follow.

    before_i = log p(X_1..i) - log p(X_1..i-1)
    after_i  = log p(X_i+1..j | X_1..i) - log p(X_i+1..j | X_1..i-1),     the second with sentence i cut out

Both come from one pass of a particle filter along the story, and one along what follows each cut, which starts from the
particles that the first pass had there: the noise of what they share cancels. Without latents there is nothing to draw,
and the figures are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.metrics.record import log_mean_exp
from fabula.models.gaussian import Potential
from fabula.models.protocol import Model
from fabula.models.recognition import Evidence
from fabula.models.slds import SLDS
from fabula.sampling.batch import InfillBatch, evidence
from fabula.sampling.particles import systematic
from fabula.sampling.samples import effective_size

FOLLOWING = 4
"""Sentences after a cut that are read, at most: further ones hardly depend on it, and all of them would be N^2 / 2."""


class Fits(NamedTuple):
    """Per sentence, in nats."""

    before: list[float]
    after: list[float | None]
    """None for the last sentence."""


class Particles(NamedTuple):
    """Several stories after some of their sentences, the same number of particles each, side by side."""

    state: Any
    """The decoder's."""
    z: Float[Tensor, "rows latent"] | None
    message: Float[Tensor, "rows state"] | None
    """log p(S_i | Z_1..i), with X_1..i where words read S."""
    log_w: Float[Tensor, "story sample"]
    """Of mean 1 in every story."""
    log_p: Float[Tensor, " story"]
    """log p of the sentences read so far."""

    def of(self, story: int) -> Particles:
        """One story's."""
        M = self.log_w.shape[1]
        rows = torch.arange(story * M, (story + 1) * M, device=self.log_w.device)
        z, message = (None if t is None else t[rows] for t in (self.z, self.message))
        return Particles(self.state.select(rows), z, message, self.log_w[[story]], self.log_p[[story]])

    def join(self, other: Particles) -> Particles:
        z = None if self.z is None or other.z is None else torch.cat([self.z, other.z])
        message = None if self.message is None or other.message is None else torch.cat([self.message, other.message])
        return Particles(
            self.state.join(other.state), z, message,
            torch.cat([self.log_w, other.log_w]), torch.cat([self.log_p, other.log_p]),
        )  # fmt: skip


class Filter:
    """One story, and the draws that all passes over it share."""

    def __init__(self, model: Model, blanks: InfillBatch, samples: int, generator: torch.Generator) -> None:
        assert model.decoder is not None, "a sentence's fit is read by a sentence decoder"
        self.model, self.decoder, self.X, self.lengths = model, model.decoder, blanks.X[0], blanks.lengths[0]
        self.N = len(self.lengths)
        self.M = samples if model.has_latent else 1
        if model.latent is not None:
            self.seen: Evidence = evidence(model.latent, blanks.X, blanks.lengths)
            draws = (self.N, self.M, model.D)
            self.noise = torch.randn(*draws, generator=generator, device=blanks.device)
        self.uniform = torch.rand(self.N, generator=generator, device=blanks.device)

    def read(self, at: Particles | None, sentences: Sequence[int]) -> Particles:
        """Story g over sentence `sentences[g]`; None stands before the first sentence of every story."""
        model, M = self.model, self.M
        rows = torch.tensor(list(sentences), device=self.X.device).repeat_interleave(M)
        z = message = None
        weight: Tensor = torch.zeros(len(rows), device=self.X.device)
        if model.latent is not None:
            z, message, weight = self._move(model.latent, at, rows, sentences)
        state = self.decoder.start(len(rows), z) if at is None else at.state
        state = self.decoder.begin_sentence(state, None)
        if model.latent is not None and message is not None:
            state, each = model.latent.decoder.read_each(state, self.X[rows], self.lengths[rows], z)
            log_p_words = (message + each).logsumexp(1)
            message = message + each - log_p_words.unsqueeze(1)
        else:
            state, log_p_words = self.decoder.read(state, self.X[rows], self.lengths[rows], z)
        log_w = (weight + log_p_words).view(-1, M)
        log_p = weight.new_zeros(len(log_w))
        if at is not None:
            log_w, log_p = log_w + at.log_w, at.log_p
        mean = log_mean_exp(log_w, 1)
        moved = Particles(state, z, message, log_w - mean.unsqueeze(1), log_p + mean)
        return self._resampled(moved, sentences)

    def _move(
        self, model: SLDS, at: Particles | None, rows: Int[Tensor, " rows"], sentences: Sequence[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Z_i from q(Z_i | Z_i-1, X_i) ∝ p(Z_i | Z_i-1, q(S_i)) phi_i(Z_i): the draw, p(S_i | Z), log p - log q."""
        phi = Potential(self.seen.phi.mean[0, rows], self.seen.phi.precision[0, rows])
        z_prev = torch.zeros_like(phi.mean) if at is None or at.z is None else at.z
        law = model.dynamics(z_prev, self.seen.log_q_S[0, rows].exp()).times(phi)
        z = law.rsample(self.noise[list(sentences)].flatten(0, 1))
        before = (
            model.scaffold.initial()
            if at is None or at.message is None
            else (at.message.unsqueeze(-1) + model.scaffold.transition()).logsumexp(1)
        )
        message = before + model.dynamics.log_prob_each(z_prev, z)
        log_p_z = message.logsumexp(1)
        return z, message - log_p_z.unsqueeze(1), log_p_z - law.log_prob(z)

    def _resampled(self, at: Particles, sentences: Sequence[int]) -> Particles:
        """Particles that count for little make way where few are left that count."""
        poor = effective_size(at.log_w) < self.M / 2
        if not poor.any():
            return at
        parents = systematic(at.log_w, self.uniform[list(sentences)])
        stay = torch.arange(at.log_w.numel(), device=poor.device).view_as(at.log_w)
        rows = torch.where(poor.unsqueeze(1), stay[:, :1] + parents, stay).flatten()
        z, message = (None if t is None else t[rows] for t in (at.z, at.message))
        return at._replace(
            state=at.state.select(rows), z=z, message=message, log_w=at.log_w.masked_fill(poor.unsqueeze(1), 0.0)
        )


def fits(model: Model, blanks: InfillBatch, samples: int, generator: torch.Generator) -> Fits:
    """Every sentence of the one story of a batch."""
    story = Filter(model, blanks, samples, generator)
    N = story.N
    along: list[Particles] = []
    for i in range(N):
        along.append(story.read(along[-1] if along else None, [i]))
    begun = [0.0, *(float(at.log_p) for at in along)]

    # What follows each cut, all cuts side by side; a cut whose last sentence is read drops out at the end.
    cuts = list(range(N - 1))
    at = story.read(None, [1]) if N > 1 else None
    if at is not None and N > 2:
        start = along[0]
        for particles in along[1 : N - 2]:
            start = start.join(particles)
        at = at.join(story.read(start, range(2, N)))
    without = [0.0] * N
    for lag in range(1, FOLLOWING + 1):
        assert at is not None or not cuts
        for place, i in enumerate(cuts):
            without[i] = float(at.log_p[place]) if at is not None else 0.0
        going = [place for place, i in enumerate(cuts) if i + lag + 1 < N]
        if lag == FOLLOWING or not going or at is None:
            break
        # Cuts end from the last one on, so those that go on are the first.
        rest = at.of(0)
        for place in going[1:]:
            rest = rest.join(at.of(place))
        cuts = [cuts[place] for place in going]
        at = story.read(rest, [i + lag + 1 for i in cuts])
    after: list[float | None] = []
    for i in range(N):
        last = min(N, i + 1 + FOLLOWING)
        after.append(None if i == N - 1 else (begun[last] - begun[i + 1]) - (without[i] - begun[i]))
    return Fits([begun[i + 1] - begun[i] for i in range(N)], after)
