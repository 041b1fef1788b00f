"""log p(X) of whole stories: exact without latents, else the importance-weighted bound. The one estimator of it.

    w_m = p(X | Z_m) [sum_S p(S) p(Z_m | S)] / q(Z_m | X),      Z_1, ..., Z_M ~ q(Z | X)
    ELBO = E[log w]  <=  E[log 1/M sum_m w_m]  <=  log p(X)

The random numbers come from the caller (`Draws`); the stories are processed in pieces that fit into memory.

Training leaves phi_i too sure of Z, and the bound is loose. One factor of phi's precision in q, for the whole model, is
fitted on validation stories by the bound itself. Any q gives a bound, and p(X, Z), the model, is untouched.

Slack: what the bound still lacks of log p(X). If it falls with the samples as c M^-beta, two doublings give it:

    g_1 = L(M/2) - L(M/4),   g_2 = L(M) - L(M/2),   2^beta = g_1 / g_2,   slack(M) = g_2 / (2^beta - 1)

Where the gains do not shrink, it is unknown (infinite). A mode of p(Z | X) that q never visits is in no estimate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from fabula.corpus.states import UNKNOWN
from fabula.metrics.record import log_mean_exp
from fabula.models.batch import Batch, StoryDataset
from fabula.models.protocol import Model
from fabula.models.slds import SLDS
from fabula.ties import first_best
from fabula.training.losses.elbo import gumbel_softmax

WORDS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 17}
"""Words of all rows of a piece: at 1,024 units, states and gates of a few hundred MiB on the CPU."""
MATRICES_AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 28}
"""Numbers in the matrices of a piece's chains, which the smoothing posterior needs."""

PRECISIONS = tuple(2.0 ** (-step / 2) for step in range(10))
"""Tried in this order: 1, .71, .5, … .044."""
WORSE = 2
"""Precisions in a row that must be worse than the best before the search ends."""
FEWEST = 4
"""Samples of which a quarter and a half can be taken."""


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

    `precision` multiplies that of every phi_i in q(Z | X): any q gives a bound (`fit_precision` chooses it).
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


@torch.no_grad()
def fit_precision(
    model: Model, dataset: StoryDataset, posterior: str, *, stories: int = 48, samples: int = 8, seed: int = 0
) -> float:
    """The factor of phi's precision with the best bound on some validation stories, all by the same draws."""
    if model.latent is None:
        return 1.0
    model.eval()
    batch = dataset.batch(np.random.default_rng(seed).permutation(len(dataset))[:stories])
    generator = torch.Generator(dataset.device).manual_seed(seed)
    draws = independent_draws(model, batch, samples, posterior, generator)
    bounds: list[float] = []
    for precision in PRECISIONS:
        bounds.append(float(weigh(model, batch, draws, posterior, precision).log_p.mean()))
        if len(bounds) - 1 - int(first_best(bounds)) >= WORSE:
            break
    return float(round(PRECISIONS[int(first_best(bounds))], 4))


def slack(quarter: ArrayLike, half: ArrayLike, whole: ArrayLike) -> float:
    """Nats a story that a bound by M samples lacks, from each story's negative bound by M/4, M/2 and M of them."""
    means = [float(np.asarray(values, dtype=np.float64).mean()) for values in (quarter, half, whole)]
    first, second = means[0] - means[1], means[1] - means[2]
    if second <= 0:
        return 0.0
    return second / (min(2.0, first / second) - 1) if first > second else math.inf


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
