"""MAUVE on MiniLM features: how alike two sets of texts are as a whole, 1 for indistinguishable, near 0 for far apart.

Not comparable with published figures, whose features are GPT-2's. It depends on how many texts there are, so only sets
of equal size compare, thousands of texts at best; the row to read it against is people's other texts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabula.errors import UserError
from fabula.metrics.bootstrap import Interval
from fabula_paper.scores.quiet import no_stderr

Features = NDArray[np.float32]
FloatArray = NDArray[np.float64]
SCALE = 5.0
"""The constant of MAUVE's authors; so are the 25 points of the curve."""
WEIGHTS = np.linspace(1e-6, 1 - 1e-6, 25)
MAX_BUCKETS = 500


def mauve(written: Features, human: Features, *, draws: int = 500, seed: int = 0) -> Interval:
    """MAUVE of two sets of features [texts, width], with a bootstrap over the texts of both.

    Buckets are found once, on all texts, one for every ten; a draw counts the drawn texts in them. Drawn texts hold
    repetitions, which lowers MAUVE, so the interval is the spread of the draws laid around the figure itself.
    """
    if len(written) < 20 or len(human) < 20:
        raise ValueError("MAUVE needs sets of at least 20 texts")
    try:
        from mauve import compute_mauve
    except ImportError as error:
        raise UserError("MAUVE needs mauve-text: pip install 'fabula-stories[eval]'") from error
    with no_stderr():  # faiss would like more texts for a bucket than MAUVE's authors take
        found = compute_mauve(
            p_features=np.ascontiguousarray(written, dtype=np.float32),
            q_features=np.ascontiguousarray(human, dtype=np.float32),
            num_buckets=min(MAX_BUCKETS, max(2, round(min(len(written), len(human)) / 10))),
            kmeans_num_redo=3,
            kmeans_max_iter=100,
            mauve_scaling_factor=SCALE,
            seed=seed,
        )
    rng = np.random.default_rng(seed)
    p, q = (np.asarray(share, dtype=np.float64) for share in (found.p_hist, found.q_hist))
    drawn = area(
        rng.multinomial(len(written), p, size=draws) / len(written),
        rng.multinomial(len(human), q, size=draws) / len(human),
    )
    value = float(found.mauve)
    low, high = value + np.quantile(drawn, [0.025, 0.975]) - np.median(drawn)
    return Interval(value, max(0.0, float(low)), min(1.0, float(high)), float(drawn.std()), len(written))


def area(p: FloatArray, q: FloatArray) -> FloatArray:
    """Under the curve of (exp(-c KL(q | r)), exp(-c KL(p | r))), r between p and q; rows are pairs of histograms."""
    curve = np.zeros((len(p), len(WEIGHTS) + 2, 2))
    curve[:, 0], curve[:, -1] = (1.0, 0.0), (0.0, 1.0)
    for point, weight in enumerate(WEIGHTS, start=1):
        r = weight * p + (1 - weight) * q
        curve[:, point, 0], curve[:, point, 1] = np.exp(-SCALE * _kl(q, r)), np.exp(-SCALE * _kl(p, r))
    return 0.5 * (_under(curve[..., 0], curve[..., 1]) + _under(curve[..., 1], curve[..., 0]))


def _kl(p: FloatArray, r: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / r), 0.0)
    found: FloatArray = terms.sum(1)
    return found


def _under(x: FloatArray, y: FloatArray) -> FloatArray:
    # The curve falls: of points with the same x the higher comes first.
    order = np.lexsort((-y, x), axis=1)
    x, y = np.take_along_axis(x, order, 1), np.take_along_axis(y, order, 1)
    found: FloatArray = (np.diff(x, axis=1) * (y[:, 1:] + y[:, :-1]) / 2).sum(1)
    return found
