"""What can be concluded from judgements: intervals, agreement, strengths.

Ratings of one story are no independent witnesses: they share its text. So what is resampled is stories (pairs), never
single answers, and every figure is computed from totals over pairs, which resampling adds up again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import choix
import krippendorff
import numpy as np
from numpy.typing import NDArray

from fabula.metrics.bootstrap import middle

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Level = Literal["nominal", "ordinal"]

REPEATS = 2000
NEEDED = 0.9
"""The share of resampled studies in which a strength must exist for its interval to be told."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """An estimate with its bootstrap interval, where there is one."""

    value: float | None
    interval: tuple[float, float] | None = None


def resampled(totals: Floats, repeats: int, rng: np.random.Generator) -> Floats:
    """The sum of `totals` (a row for each pair) over as many pairs drawn with replacement, `repeats` times."""
    n = len(totals)
    weights = rng.multinomial(n, np.full(n, 1 / n), size=repeats)
    return np.asarray(weights @ totals, dtype=np.float64)


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Means and shares of totals; nan where nothing was counted."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(denominator > 0, numerator / denominator, np.nan), dtype=np.float64)


def deviation(total: float, squares: float, n: float) -> float:
    """The standard deviation of single ratings from their sum, the sum of their squares and their number."""
    if n < 2:
        return float("nan")
    return float(np.sqrt(max(0.0, (squares - total**2 / n) / (n - 1))))


def alpha(counts: Counts, level: Level) -> float | None:
    """Krippendorff's alpha: 1 full agreement, 0 what random labels give.

    `counts` has for each unit how many people chose each value. None where it is not defined: nobody judged what
    another judged, or only one value was ever chosen by those who did.
    """
    table = counts[counts.sum(axis=1) > 1]
    if np.count_nonzero(table.sum(axis=0)) < 2:
        return None
    return float(krippendorff.alpha(value_counts=table, level_of_measurement=level))


def alpha_interval(
    counts: Counts, pairs: NDArray[np.int64], level: Level, repeats: int, rng: np.random.Generator
) -> tuple[float, float] | None:
    """Of alpha over resampled pairs; `pairs` has for each unit the number, from 0, of the pair it belongs to."""
    found = np.full(repeats, np.nan)
    n = int(pairs.max()) + 1
    for number in range(repeats):
        times = rng.multinomial(n, np.full(n, 1 / n))
        value = alpha(np.repeat(counts, times[pairs], axis=0), level)
        found[number] = np.nan if value is None else value
    return middle(found, NEEDED)


def strengths(wins: Floats) -> Floats | None:
    """Bradley–Terry strengths, mean 0: log odds that i is preferred to j is strength i minus strength j.

    `wins[i, j]` says how often i was preferred to j; a tie counts half a win for each. Maximum likelihood (choix's
    I-LSR). None where there is no maximum: unless each system has beaten each other one directly or by way of others,
    some strength would be infinite.
    """
    if not _all_reach_all(wins > 0):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = choix.ilsr_pairwise_dense(wins, max_iter=10_000)
        except (RuntimeError, ValueError):
            return None
    return np.asarray(found - found.mean(), dtype=np.float64)


def _all_reach_all(edges: NDArray[np.bool_]) -> bool:
    reach = edges | np.eye(len(edges), dtype=bool)
    for _ in range(len(edges).bit_length()):
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    return bool(reach.all())


def strength_intervals(matrices: Callable[[], Floats], repeats: int, systems: int) -> list[tuple[float, float] | None]:
    """Of each strength; `matrices()` gives the wins of one resampled study."""
    found = np.full((repeats, systems), np.nan)
    for number in range(repeats):
        value = strengths(matrices())
        if value is not None:
            found[number] = value
    return [middle(found[:, system], NEEDED) for system in range(systems)]
