"""How a sentence fits its story: how probable it is after the sentences before it, and what it adds to later ones.

    before_i = log p(X_1..i) - log p(X_1..i-1)
    after_i  = log p(X_i+1..j | X_1..i) - log p(X_i+1..j | X_1..i-1),     the second with sentence i cut out

Both come from one pass of a particle filter along the story, and one along what follows each cut. The second starts
from the particles of the first, so the noise of what they share cancels. Without latents the figures are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fabula.metrics.record import log_mean_exp
from fabula.models.protocol import Model
from fabula.models.recognition import Evidence
from fabula.models.slds import SLDS
from fabula.sampling.batch import InfillBatch, evidence
from fabula.statespace.diagnostics import effective_size, systematic
from fabula.statespace.gaussian import Potential

FOLLOWING = 4
"""At most so many sentences after a cut are read: further ones hardly depend on it, and all would be N^2 / 2."""


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
    """log p(S_i | Z_1..i)."""
    log_w: Float[Tensor, "story sample"]
    """Of mean 1 in every story."""
    log_p: Float[Tensor, " story"]
    """log p of the sentences read so far."""

    def rows(self, rows: Int[Tensor, " rows"]) -> Particles:
        """Other particles of the same stories; the weights stay."""
        z, message = (None if t is None else t[rows] for t in (self.z, self.message))
        return self._replace(state=self.state.select(rows), z=z, message=message)

    def first(self, stories: int) -> Particles:
        """The first of the stories."""
        rows = torch.arange(stories * self.log_w.shape[1], device=self.log_w.device)
        return self.rows(rows)._replace(log_w=self.log_w[:stories], log_p=self.log_p[:stories])

    def join(self, other: Particles) -> Particles:
        z = None if self.z is None or other.z is None else torch.cat([self.z, other.z])
        message = None if self.message is None or other.message is None else torch.cat([self.message, other.message])
        log_w, log_p = torch.cat([self.log_w, other.log_w]), torch.cat([self.log_p, other.log_p])
        return Particles(self.state.join(other.state), z, message, log_w, log_p)


class Filter:
    """A particle filter over one story, with the random numbers that all its passes share."""

    def __init__(self, model: Model, blanks: InfillBatch, samples: int, generator: torch.Generator) -> None:
        assert model.decoder is not None, "a sentence's fit is read by a sentence decoder"
        self.model, self.decoder, self.X, self.lengths = model, model.decoder, blanks.X[0], blanks.lengths[0]
        self.N = len(self.lengths)
        self.M = samples if model.has_latent else 1
        if model.latent is not None:
            self.evidence: Evidence = evidence(model.latent, blanks.X, blanks.lengths)
            self.noise = torch.randn(self.N, self.M, model.D, generator=generator, device=blanks.device)
        self.uniform = torch.rand(self.N, generator=generator, device=blanks.device)

    def read(self, at: Particles | None, sentences: Sequence[int]) -> Particles:
        """Story g over sentence `sentences[g]`; None stands before the first sentence of every story."""
        latent = self.model.latent
        rows = torch.tensor(list(sentences), device=self.X.device).repeat_interleave(self.M)
        z = message = None
        log_w: Tensor = torch.zeros(len(rows), device=self.X.device)
        if latent is not None:
            z, message, log_w = self._move(latent, at, rows, sentences)
        state = self.decoder.start(len(rows), z) if at is None else at.state
        state = self.decoder.begin_sentence(state, None)
        state, log_p_words = self.decoder.read(state, self.X[rows], self.lengths[rows], z)
        log_w = (log_w + log_p_words).view(-1, self.M)
        log_p = log_w.new_zeros(len(log_w))
        if at is not None:
            log_w, log_p = log_w + at.log_w, at.log_p
        mean = log_mean_exp(log_w, 1)
        return self._resampled(Particles(state, z, message, log_w - mean.unsqueeze(1), log_p + mean), sentences)

    def _move(
        self, model: SLDS, at: Particles | None, rows: Int[Tensor, " rows"], sentences: Sequence[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Z_i from q(Z_i | Z_i-1, X_i) ∝ p(Z_i | Z_i-1, q(S_i)) phi_i(Z_i): the draw, p(S_i | Z), log p - log q."""
        phi = Potential(self.evidence.phi.mean[0, rows], self.evidence.phi.precision[0, rows])
        z_prev = torch.zeros_like(phi.mean) if at is None or at.z is None else at.z
        q = model.dynamics(z_prev, self.evidence.log_q_S[0, rows].exp()).times(phi)
        z = q.rsample(self.noise[list(sentences)].flatten(0, 1))
        if at is None or at.message is None:
            prior = model.scaffold.initial()
        else:
            prior = (at.message.unsqueeze(-1) + model.scaffold.transition()).logsumexp(1)
        message = prior + model.dynamics.log_prob_each(z_prev, z)
        log_p_z = message.logsumexp(1)
        return z, message - log_p_z.unsqueeze(1), log_p_z - q.log_prob(z)

    def _resampled(self, at: Particles, sentences: Sequence[int]) -> Particles:
        """Stories whose effective sample size is below a half of the particles are resampled."""
        poor = effective_size(at.log_w) < self.M / 2
        if not poor.any():
            return at
        parents = systematic(at.log_w, self.uniform[list(sentences)])
        stay = torch.arange(at.log_w.numel(), device=poor.device).view_as(at.log_w)
        rows = torch.where(poor.unsqueeze(1), stay[:, :1] + parents, stay).flatten()
        return at.rows(rows)._replace(log_w=at.log_w.masked_fill(poor.unsqueeze(1), 0.0))


def fits(model: Model, blanks: InfillBatch, samples: int, generator: torch.Generator) -> Fits:
    """Every sentence of the one story of a batch."""
    story = Filter(model, blanks, samples, generator)
    N = story.N
    along: list[Particles] = []
    for i in range(N):
        along.append(story.read(along[-1] if along else None, [i]))
    log_p = [0.0, *(float(at.log_p) for at in along)]
    # What follows each cut, all cuts side by side. Cut i goes on at i + lag, so the last cuts end first.
    without = [0.0] * N
    for lag in range(1, min(FOLLOWING, N - 1) + 1):
        if lag == 1:
            at = story.read(None, [1])
            if N > 2:
                at = at.join(story.read(reduce(Particles.join, along[: N - 2]), range(2, N)))
        else:
            at = story.read(at.first(N - lag), range(lag, N))
        without[: N - lag] = at.log_p.tolist()
    after: list[float | None] = [None] * N
    for i in range(N - 1):
        last = min(N, i + 1 + FOLLOWING)
        after[i] = (log_p[last] - log_p[i + 1]) - (without[i] - log_p[i])
    return Fits([log_p[i + 1] - log_p[i] for i in range(N)], after)
