"""A calibrated q(Z | X) for the importance-weighted bound, and an estimate of how much the bound still lacks.

Training leaves phi_i too sure of Z: the weights w_m = p(X, Z_m) / q(Z_m | X) then vary more than they need, and the
bound is loose. One factor of phi's precision in q, for the whole model, is fitted on validation stories by the bound
itself. Any q gives a bound, and p(X, Z), the model, is untouched.

Slack: what the bound still lacks of log p(X). If it falls with the samples as c M^-beta, two doublings give it:

    g_1 = L(M/2) - L(M/4),   g_2 = L(M) - L(M/2),   2^beta = g_1 / g_2,   slack(M) = g_2 / (2^beta - 1)

It depends on the samples only: a mode of p(Z | X) that q never visits is in no estimate.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from fabula.metrics.bound import independent_draws, weigh
from fabula.models.batch import StoryDataset
from fabula.models.protocol import Model
from fabula.ties import first_best

PRECISIONS = tuple(2.0 ** (-step / 2) for step in range(10))
"""Tried in this order: 1, .71, .5, … .044."""
WORSE = 2
"""Precisions in a row that must be worse than the best before the search ends."""
FEWEST = 4
"""Samples of which a quarter and a half can be taken."""
SLOWEST = 1.1
"""The least 2^beta, for a slack of at most ten times what the last doubling gained."""
TWO_POINTS = 3.0
"""Where only the bounds by one sample and by all are known: as if the slack fell as slowly as M^-0.1 (M = 20)."""


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
    return second / (min(2.0, max(SLOWEST, first / second)) - 1) if second > 0 else 0.0


def slack_of_two(one: ArrayLike, whole: ArrayLike) -> float:
    """The same where only the negative bounds by one sample and by all are known: a cautious multiple of the gain."""
    return TWO_POINTS * max(0.0, float(np.mean(np.asarray(one, dtype=np.float64) - np.asarray(whole))))
