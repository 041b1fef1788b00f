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

from fabula.metrics.bootstrap import middle, ratio

Counts = NDArray[np.int64]
Level = Literal["nominal", "ordinal"]

REPEATS = 2000
MIN_SHARE = 0.9
"""The share of resampled studies in which alpha must exist for it to have an interval."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """An estimate with its 95 % bootstrap interval, where there is one."""

    value: float | None
    interval: tuple[float, float] | None = None


def ratio_figure(numerators: ArrayLike, denominators: ArrayLike, repeats: int, seed: int, scale: float = 1.0) -> Figure:
    """The ratio of two sums over pairs; every pair counts something."""
    figure = ratio(scale * np.asarray(numerators), denominators, draws=repeats, seed=seed)
    return Figure(value=figure.value, interval=(figure.low, figure.high) if repeats else None)


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


def alpha_figure(counts: Sequence[Counts], level: Level, repeats: int, seed: int) -> Figure:
    """Alpha over all units; `counts` has the units of each pair, which are resampled together."""
    value = alpha(np.concatenate(counts), level) if counts else None
    if value is None:
        return Figure(value=None)
    rows = np.random.default_rng(seed).integers(len(counts), size=(repeats, len(counts)))
    drawn = [alpha(np.concatenate([counts[pair] for pair in row]), level) for row in rows]
    return Figure(value=value, interval=middle(np.asarray(drawn, dtype=np.float64), MIN_SHARE))
