"""Bootstrap intervals and Krippendorff's alpha.

Ratings of one story are not independent: they share its text. So pairs are resampled, never single answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import krippendorff
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabula.metrics.bootstrap import middle

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Level = Literal["nominal", "ordinal"]

REPEATS = 2000
MIN_SHARE = 0.9
"""The share of resampled studies in which a figure must exist for it to have an interval."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """An estimate with its 95 % bootstrap interval, where there is one."""

    value: float | None
    interval: tuple[float, float] | None = None


def resample(pairs: int, repeats: int, rng: np.random.Generator) -> Counts:
    """How often each pair is drawn (with replacement) in each of `repeats` resampled studies."""
    if not pairs:
        return np.zeros((repeats, 0), dtype=np.int64)
    return np.asarray(rng.multinomial(pairs, np.full(pairs, 1 / pairs), size=repeats), dtype=np.int64)


def ratio_figure(totals: Floats, draws: Counts, numerator: int, denominator: int, scale: float = 1.0) -> Figure:
    """The ratio of two columns' sums over pairs; None where nothing was counted."""

    def ratio(sums: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(sums[:, numerator] / sums[:, denominator] * scale, dtype=np.float64)

    return _figure(float(ratio(totals.sum(axis=0, keepdims=True))[0]), ratio(draws @ totals))


def _figure(value: float, drawn: Floats) -> Figure:
    return Figure(value=None if np.isnan(value) else value, interval=middle(drawn, MIN_SHARE))


def value_counts(answers: ArrayLike, values: Sequence[int]) -> Counts:
    """For each unit (a column of `answers`) how many annotators (rows) chose each value."""
    return np.asarray((np.asarray(answers)[:, :, None] == np.asarray(values)).sum(axis=0), dtype=np.int64)


def alpha(counts: Counts, level: Level) -> float | None:
    """Krippendorff's alpha of `value_counts`: 1 is full agreement, 0 that of random labels.

    None where it is not defined: no unit has two annotators, or those who share units chose one value only.
    """
    shared = counts[counts.sum(axis=1) > 1]
    if np.count_nonzero(shared.sum(axis=0)) < 2:
        return None
    return float(krippendorff.alpha(value_counts=shared, level_of_measurement=level))


def alpha_figure(counts: Sequence[Counts], level: Level, repeats: int, rng: np.random.Generator) -> Figure:
    """Alpha over all units; `counts` has the units of each pair, which are resampled together."""
    value = alpha(np.concatenate(counts), level) if counts else None
    if value is None:
        return Figure(value=None)
    pair = np.repeat(np.arange(len(counts)), [len(units) for units in counts])
    everything = np.concatenate(counts)
    drawn = [alpha(np.repeat(everything, times[pair], axis=0), level) for times in resample(len(counts), repeats, rng)]
    return _figure(value, np.asarray(drawn, dtype=np.float64))
