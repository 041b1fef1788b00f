"""log p(X) of whole stories: exact without latents, else the importance-weighted bound. The one estimator of it.

    w_m = p(X | Z_m) [sum_S p(S) p(Z_m | S)] / q(Z_m | X),      Z_1, ..., Z_M ~ q(Z | X)
    ELBO = E[log w]  <=  E[log 1/M sum_m w_m]  <=  log p(X)

The random numbers come from the caller (`Draws`); the stories are processed in pieces that fit into memory.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.metrics.record import log_mean_exp
from fabula.models.batch import Batch
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.training.losses.elbo import gumbel_softmax

WORDS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 17}
"""Words of all rows of a piece: at 1,024 units, states and gates of a few hundred MiB on the CPU."""
MATRICES_AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 28}
"""Numbers in the matrices of a piece's chains, which the smoothing posterior needs."""


class Draws(NamedTuple):
    """The random numbers behind the draws of Z; of one story where all stories share them."""

    normal: Float[Tensor, "story sample sent latent"]
    uniform: Float[Tensor, "story sample sent"] | None
    """For the posterior `switching`, which draws states too."""


class Weighed(NamedTuple):
    """The parts of the importance weights of stories; without latents there is one exact sample."""

    log_p_X: Float[Tensor, "story sample"]
    """log p(X | Z_m)."""
    kl_Z: Float[Tensor, "story sample"]
    """log q(Z_m | X) - log p(Z_m), S summed out."""
    log_p_words: Float[Tensor, "story token"]
    """log p of each token given those before it and Z, the mean over the draws; 0 at `<pad>`."""

    @property
    def log_w(self) -> Float[Tensor, "story sample"]:
        return self.log_p_X - self.kl_Z

    @property
    def log_p(self) -> Float[Tensor, " story"]:
        """log p(X), or its importance-weighted lower bound."""
        return log_mean_exp(self.log_w, 1)

    def log_p_by(self, samples: int) -> Float[Tensor, " story"]:
        """The bound by fewer samples: its mean over all groups of that size."""
        whole = self.log_w.shape[1] // samples * samples
        return log_mean_exp(self.log_w[:, :whole].unflatten(1, (-1, samples)), 2).mean(1)

    @property
    def elbo(self) -> Float[Tensor, " story"]:
        return self.log_w.mean(1)


def independent_draws(
    model: Model, batch: Batch, samples: int, posterior: str, generator: torch.Generator
) -> Draws | None:
    """Different random numbers for every story; None for a model without latents, which needs none."""
    latent = model.latent
    if latent is None:
        return None
    normal, uniform = [], []
    for _ in range(samples):
        if posterior == "switching":
            uniform.append(torch.rand(batch.lengths.shape, generator=generator, device=batch.lengths.device))
        normal.append(latent.noise_for(batch, generator))
    return Draws(torch.stack(normal, 1), torch.stack(uniform, 1) if uniform else None)


def shared_draws(model: Model, batch: Batch, samples: int, generator: torch.Generator) -> Draws | None:
    """The same random numbers for all stories, so that the noise cancels where two similar ones are compared."""
    if not model.has_latent:
        return None
    N, device = batch.lengths.shape[1], batch.tokens.device
    normal = torch.randn(1, samples, N, model.D, generator=generator, device=device)
    return Draws(normal, torch.rand(1, samples, N, generator=generator, device=device))


def weigh(model: Model, batch: Batch, draws: Draws | None, posterior: str, precision: float = 1.0) -> Weighed:
    """The stories of a batch; `draws` and `posterior` say how a model with latents draws Z.

    `precision` multiplies that of every phi_i in q(Z | X): any q gives a bound (`metrics/proposal.py` fits it).
    """
    latent = model.latent
    if latent is None:
        log_p_words = torch.cat([model.log_p_words(batch.rows(rows)) for rows in _pieces(batch, 1, 1)])
        log_p_X = log_p_words.double().sum(1, keepdim=True)
        return Weighed(log_p_X, torch.zeros_like(log_p_X), log_p_words)
    assert draws is not None, "a model with latents is weighed by draws of Z"
    n, samples = len(batch.tokens), draws.normal.shape[1]
    normal = draws.normal.expand(n, *draws.normal.shape[1:])
    uniform = None if draws.uniform is None else draws.uniform.expand(n, *draws.uniform.shape[1:])
    evidence = latent.evidence(batch).tempered(precision)
    log_p_X, kl_Z = (torch.zeros(n * samples, dtype=torch.float64, device=batch.tokens.device) for _ in range(2))
    log_p_words = normal.new_zeros(batch.tokens.shape)
    matrix = 6 * batch.lengths.shape[1] * model.D**2 if posterior == "smoothing" else 1
    for rows in _pieces(batch, samples, matrix):
        story, draw = rows // samples, rows % samples
        piece = batch.rows(story)
        numbers = normal[story, draw], None if uniform is None else uniform[story, draw]
        drawn = latent.draw_posterior(evidence.rows(story), piece.present, *numbers, posterior)
        words = model.log_p_words(piece, drawn.Z)
        log_p_Z = latent.log_p_Z(drawn.Z, piece, torch.full_like(piece.S, UNKNOWN))
        log_p_X[rows], kl_Z[rows] = words.double().sum(1), drawn.log_q.double() - log_p_Z.double()
        log_p_words.index_add_(0, story, (words / samples).to(log_p_words.dtype))
    return Weighed(log_p_X.view(n, samples), kl_Z.view(n, samples), log_p_words)


def authors_estimate(model: SLDS, batch: Batch, generator: torch.Generator) -> Float[Tensor, " story"]:
    """The authors' estimate of log p(X): one draw under a soft sample of S, neither exact nor a bound."""
    evidence = model.evidence(batch)
    soft = gumbel_softmax(evidence.log_q_S, 1.0, False, generator)
    drawn = model.draw_filtering(evidence, soft, batch.present, model.noise_for(batch, generator))
    return (model.log_p_X(batch, drawn.Z).sum(-1) - drawn.kl).double()


def _pieces(batch: Batch, samples: int, matrix: int) -> tuple[Tensor, ...]:
    """The rows of stories x samples, cut where words or matrices would be too many."""
    device = batch.tokens.device
    rows = torch.arange(len(batch.tokens) * samples, device=device)
    words, matrices = (limit[device.type] for limit in (WORDS_AT_ONCE, MATRICES_AT_ONCE))
    return torch.split(rows, max(1, min(words // batch.tokens.shape[1], matrices // matrix)))
