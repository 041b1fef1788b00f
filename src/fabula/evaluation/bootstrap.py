"""How far a figure might be off: seeded bootstraps over stories, batched in numpy.

Stories are drawn with replacement; every figure of a draw is computed from the same stories, so that differences
between systems on the same stories are paired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabula.ties import tied

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
DRAWS = 1000
PIECE = 4_000_000
"""Drawn indices held at a time."""


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


def bootstrap(
    statistic: Callable[[IntArray], FloatArray], n: int, *, draws: int = DRAWS, seed: int = 0, level: float = 0.95
) -> Interval:
    """Of any figure: `statistic` takes rows of indices into the n stories and returns a figure for each row."""
    if n == 0:
        return Interval(float("nan"), float("nan"), float("nan"), float("nan"), 0)
    value = float(statistic(np.arange(n)[None])[0])
    rng = np.random.default_rng(seed)
    piece = max(1, PIECE // n)
    parts = [
        np.asarray(statistic(rng.integers(n, size=(min(piece, draws - start), n))), dtype=np.float64)
        for start in range(0, draws, piece)
    ]
    return _interval(value, np.concatenate(parts), n, level)


def mean(values: ArrayLike, *, draws: int = DRAWS, seed: int = 0, level: float = 0.95) -> Interval:
    """The mean over stories."""
    figures = np.asarray(values, dtype=np.float64)
    return bootstrap(lambda rows: figures[rows].mean(1), len(figures), draws=draws, seed=seed, level=level)


def ratio(
    numerators: ArrayLike,
    denominators: ArrayLike,
    *,
    transform: Callable[[FloatArray], FloatArray] = lambda figure: figure,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """sum / sum over stories; with `transform` np.exp, and nats over tokens, a corpus's perplexity."""
    top, bottom = (np.asarray(values, dtype=np.float64) for values in (numerators, denominators))
    if top.shape != bottom.shape:
        raise ValueError(f"{len(top)} numerators for {len(bottom)} denominators")

    def statistic(rows: IntArray) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return transform(top[rows].sum(1) / bottom[rows].sum(1))

    return bootstrap(statistic, len(top), draws=draws, seed=seed, level=level)


def difference(
    ours: ArrayLike, theirs: ArrayLike, *, paired: bool = True, draws: int = DRAWS, seed: int = 0, level: float = 0.95
) -> Interval:
    """mean(ours) - mean(theirs); paired, story i of both is drawn together, and two figures equal up to rounding
    differ by 0: otherwise the last bits of two identical systems could lie all on one side of it."""
    a, b = (np.asarray(values, dtype=np.float64) for values in (ours, theirs))
    if paired:
        if a.shape != b.shape:
            raise ValueError(f"pairs of {len(a)} and {len(b)} stories")
        return mean(np.where(tied(a, b), 0.0, a - b), draws=draws, seed=seed, level=level)
    if len(a) == 0 or len(b) == 0:
        return Interval(float("nan"), float("nan"), float("nan"), float("nan"), 0)
    of_a, of_b = _means(a, draws, seed), _means(b, draws, seed + 1)
    return _interval(float(a.mean() - b.mean()), of_a - of_b, len(a) + len(b), level)


def _means(values: FloatArray, draws: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    piece = max(1, PIECE // len(values))
    return np.concatenate(
        [
            values[rng.integers(len(values), size=(min(piece, draws - start), len(values)))].mean(1)
            for start in range(0, draws, piece)
        ]
    )


def _interval(value: float, drawn: FloatArray, n: int, level: float) -> Interval:
    # A draw without a single case (0 / 0) says nothing.
    finite = drawn[np.isfinite(drawn)]
    if not len(finite):
        return Interval(value, float("nan"), float("nan"), float("nan"), n)
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high), float(finite.std()), n)
