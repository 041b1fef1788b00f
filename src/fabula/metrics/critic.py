"""Does a critic agree with people? Its values against the ratings of stories by several people each.

Anything that is chosen (how figures are weighed together) is chosen on one half of the stories and measured on the
other, both ways round, so that every story is measured once by weights that have not seen it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Figures = NDArray[np.float64]


class Agreement(NamedTuple):
    pearson: float
    low: float
    high: float
    """95 % by bootstrap over stories."""
    spearman: float
    n: int


def agreement(values: Figures, ratings: Figures, draws: int = 2000, seed: int = 0) -> Agreement:
    """Of one figure a story with the people's mean rating."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(values), (draws, len(values)))
    drawn = [np.corrcoef(values[rows], ratings[rows])[0, 1] for rows in chosen]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Agreement(_r(values, ratings), float(low), float(high), _r(_ranks(values), _ranks(ratings)), len(values))


def together(features: Figures, ratings: Figures, ridge: float = 1.0, seed: int = 0) -> Figures:
    """Several figures a story as one, by ridge regression: each half of the stories by the other half's weights."""
    order = np.random.default_rng(seed).permutation(len(ratings))
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    found = np.zeros(len(ratings))
    for own, other in (halves, halves[::-1]):
        mean, scale = features[other].mean(0), features[other].std(0) + 1e-9
        X, y = (features[other] - mean) / scale, ratings[other] - ratings[other].mean()
        weights = np.linalg.solve(X.T @ X + ridge * len(other) * np.eye(X.shape[1]), X.T @ y)
        # In the other half's units, so that the halves compare.
        found[own] = (features[own] - mean) / scale @ weights / (X @ weights).std()
    return found


def ceiling(labels: NDArray[np.int64]) -> float:
    """The largest correlation that raters' own agreement allows: the root of the reliability of their mean (Cronbach's
    alpha over raters)."""
    good = (labels == 0).astype(float)
    k = good.shape[1]
    alpha = k / (k - 1) * (1 - good.var(0, ddof=1).sum() / good.sum(1).var(ddof=1))
    return float(np.sqrt(max(alpha, 0.0)))


def _r(a: Figures, b: Figures) -> float:
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(x: Figures) -> Figures:
    """Ranks with ties in the middle."""
    values, place, count = np.unique(x, return_inverse=True, return_counts=True)
    del values
    return (np.cumsum(count) - (count - 1) / 2)[place].astype(np.float64)
