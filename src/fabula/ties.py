"""When two computed figures count as equal.

A log-probability is a sum of many float32 terms, and the order of the sum depends on the processor, on the number of
threads and on a row's place in its batch. A plain `>`, `==`, `max` or `sort` would let the last bits decide. Every
comparison that decides a result uses one of these functions instead: figures that differ by no more than

    RELATIVE * max(|a|, |b|, scale)

are tied, and ties are resolved by a rule that does not depend on the processor: half a win each, or first come first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Figures = float | Sequence[Any] | NDArray[Any]

RELATIVE = 1e-5
"""Ours: about a hundred times the rounding error of a float32, so that a sum of some hundred terms stays within it.
Of a story of 100 nats it is a thousandth of a nat, far below what any sampler or estimator resolves."""


def tied(a: Figures, b: Figures, scale: Figures = 0.0) -> NDArray[np.bool_]:
    """Whether figures are equal up to rounding; `scale` is the size of the terms where a and b are differences."""
    a, b, scale = (np.asarray(figure, dtype=np.float64) for figure in (a, b, scale))
    with np.errstate(invalid="ignore"):
        close = np.abs(a - b) <= RELATIVE * np.maximum(np.maximum(np.abs(a), np.abs(b)), np.abs(scale))
    # Infinities are tied with themselves only; a NaN with nothing.
    return np.where(np.isfinite(a) & np.isfinite(b), close, a == b)


def ranking(scores: Sequence[float]) -> list[int]:
    """Positions from the largest score to the smallest; scores tied with the first of their group keep their order."""
    order = sorted(range(len(scores)), key=lambda place: (math.isnan(scores[place]), -scores[place]))
    ranked: list[int] = []
    group: list[int] = []
    for place in order:
        if group and not math.isclose(scores[group[0]], scores[place], rel_tol=RELATIVE):
            ranked += sorted(group)
            group = []
        group.append(place)
    return ranked + sorted(group)


def first_best(scores: Figures) -> NDArray[np.int64]:
    """Along the last axis, the first position whose score is tied with the largest."""
    figures = np.asarray(scores, dtype=np.float64)
    return np.asarray(tied(figures, figures.max(-1, keepdims=True)).argmax(-1), dtype=np.int64)
