"""Bootstrap intervals over stories.

Stories are drawn with replacement; every figure of a draw is computed from the same stories, so that differences
between systems on the same stories are paired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabula.ties import tied

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
DRAWS = 1000
LEVEL = 0.95
"""Of every interval."""


@dataclass(frozen=True)
class Interval:
    """A figure with its bootstrap percentiles and standard error."""

    value: float
    low: float
    high: float
    se: float
    n: int

    def to_json(self, digits: int = 4) -> dict[str, Any]:
        figures = {name: round(getattr(self, name), digits) for name in ("value", "low", "high", "se")}
        return {name: (figure if np.isfinite(figure) else None) for name, figure in figures.items()} | {"n": self.n}


def bootstrap(statistic: Callable[[IntArray], FloatArray], n: int, *, draws: int = DRAWS, seed: int = 0) -> Interval:
    """Of any figure: `statistic` takes rows of indices into the n stories and returns a figure for each row."""
    if n == 0:
        return Interval(np.nan, np.nan, np.nan, np.nan, 0)
    value, drawn = float(statistic(np.arange(n)[None])[0]), np.asarray(statistic(_rows(n, draws, seed)))
    interval = middle(drawn)
    if interval is None:
        return Interval(value, np.nan, np.nan, np.nan, n)
    return Interval(value, *interval, float(drawn[np.isfinite(drawn)].std()), n)


@lru_cache(maxsize=4)
def _rows(n: int, draws: int, seed: int) -> IntArray:
    """The drawn stories, kept because a report asks for the same ones hundreds of times."""
    return np.random.default_rng(seed).integers(n, size=(draws, n))


def mean(values: ArrayLike, *, draws: int = DRAWS, seed: int = 0) -> Interval:
    """The mean over stories."""
    figures = np.asarray(values, dtype=np.float64)
    return bootstrap(lambda rows: figures[rows].mean(1), len(figures), draws=draws, seed=seed)


def ratio(
    numerators: ArrayLike,
    denominators: ArrayLike,
    *,
    transform: Callable[[FloatArray], FloatArray] = lambda figure: figure,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """sum / sum over stories; with `transform` np.exp, and nats over tokens, a corpus's perplexity."""
    top, bottom = (np.asarray(values, dtype=np.float64) for values in (numerators, denominators))
    if top.shape != bottom.shape:
        raise ValueError(f"{len(top)} numerators for {len(bottom)} denominators")

    def statistic(rows: IntArray) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return transform(top[rows].sum(1) / bottom[rows].sum(1))

    return bootstrap(statistic, len(top), draws=draws, seed=seed)


def difference(ours: ArrayLike, theirs: ArrayLike, *, draws: int = DRAWS, seed: int = 0) -> Interval:
    """mean(ours) - mean(theirs), story i of both drawn together. Figures equal up to rounding differ by 0: otherwise
    the last bits of two identical systems could lie all on one side of it."""
    a, b = (np.asarray(values, dtype=np.float64) for values in (ours, theirs))
    if a.shape != b.shape:
        raise ValueError(f"pairs of {len(a)} and {len(b)} stories")
    return mean(np.where(tied(a, b), 0.0, a - b), draws=draws, seed=seed)


def middle(drawn: FloatArray, needed: float = 0.0) -> tuple[float, float] | None:
    """The middle 95 % of a figure over draws; None where fewer than a share `needed` of them, or none, has a value."""
    finite = drawn[np.isfinite(drawn)]  # a draw without a single case (0 / 0) has no value
    if len(finite) < max(1.0, needed * len(drawn)):
        return None
    low, high = np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
