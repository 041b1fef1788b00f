"""MAUVE (Pillutla et al., 2021) of written texts against people's, on MiniLM features, with a bootstrap.

It falls with the number of texts: only sets of equal size compare, thousands of texts at best. Compare it with the row
of people's other texts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabula.errors import UserError
from fabula.metrics.bootstrap import Interval
from fabula_paper.scores.external import no_stderr

Features = NDArray[np.float32]
FloatArray = NDArray[np.float64]
SCALE = 5.0
"""The constant of MAUVE's authors; so are the 25 points of the curve."""
WEIGHTS = np.linspace(1e-6, 1 - 1e-6, 25)
MAX_BUCKETS = 500


def mauve(written: Features, human: Features, *, draws: int = 500, seed: int = 0) -> Interval:
    """MAUVE of two sets of features [texts, width], with a bootstrap over the texts of both.

    Buckets are found once, on all texts, one for every ten; a draw counts the drawn texts in them. Drawn texts hold
    repetitions, which lowers MAUVE, so the interval is the spread of the draws around the value of all texts.
    """
    if len(written) < 20 or len(human) < 20:
        raise ValueError("MAUVE needs sets of at least 20 texts")
    try:
        from mauve import compute_mauve
    except ImportError as error:
        raise UserError("MAUVE needs mauve-text: pip install fabula-paper") from error
    with no_stderr():  # faiss asks for more texts per bucket than MAUVE's authors take
        result = compute_mauve(
            p_features=np.ascontiguousarray(written, dtype=np.float32),
            q_features=np.ascontiguousarray(human, dtype=np.float32),
            num_buckets=min(MAX_BUCKETS, max(2, round(min(len(written), len(human)) / 10))),
            kmeans_num_redo=3,
            kmeans_max_iter=100,
            mauve_scaling_factor=SCALE,
            seed=seed,
        )
    rng = np.random.default_rng(seed)
    p, q = (np.asarray(shares, dtype=np.float64) for shares in (result.p_hist, result.q_hist))
    drawn_p = rng.multinomial(len(written), p, size=draws) / len(written)
    drawn_q = rng.multinomial(len(human), q, size=draws) / len(human)
    drawn = np.array([area(*pair) for pair in zip(drawn_p, drawn_q, strict=True)])
    value = float(result.mauve)
    low, high = value + np.quantile(drawn, [0.025, 0.975]) - np.median(drawn)
    return Interval(value, max(0.0, float(low)), min(1.0, float(high)), float(drawn.std()), len(written))


def area(p: FloatArray, q: FloatArray) -> float:
    """Under the curve of (exp(-c KL(q | r)), exp(-c KL(p | r))), r between the histograms p and q."""
    from mauve.compute_mauve import compute_area_under_curve, get_divergence_curve_for_multinomials

    x, y = get_divergence_curve_for_multinomials(p, q, WEIGHTS, SCALE).T
    # The curve falls: of points with the same x the higher comes first.
    by_x, by_y = np.lexsort((-y, x)), np.lexsort((-x, y))
    areas = compute_area_under_curve(x[by_x], y[by_x]), compute_area_under_curve(y[by_y], x[by_y])
    return float(sum(areas)) / 2
