"""MAUVE: its area against the library's own, the same set against itself, sets far apart, an honest spread."""

from __future__ import annotations

import numpy as np
import pytest

from fabula_paper.scores.mauve import Features, area, mauve


def features(n: int, shift: float, seed: int) -> Features:
    rows = np.random.default_rng(seed).standard_normal((n, 8), dtype=np.float32)
    rows[:, 0] += shift
    return rows


def test_the_area_is_the_librarys() -> None:
    from mauve.compute_mauve import compute_mauve

    p, q = features(100, 0.0, 0), features(100, 0.7, 1)
    found = compute_mauve(p_features=p, q_features=q, num_buckets=10, kmeans_num_redo=1, kmeans_max_iter=20)
    assert area(found.p_hist, found.q_hist) == pytest.approx(found.mauve)
    same = np.full(4, 0.25)
    assert area(same, same) == pytest.approx(1)
    assert area(np.array([1.0, 0.0]), np.array([0.0, 1.0])) < 0.05


def test_near_sets_are_alike_and_far_ones_are_not() -> None:
    human = features(200, 0.0, 0)
    itself, near, far = (mauve(other, human) for other in (human, features(200, 0.0, 1), features(200, 4.0, 2)))
    assert itself.value == pytest.approx(1)
    assert near.value > 0.8 > 0.1 > far.value
    assert near.low < near.value < near.high <= 1
    assert mauve(features(200, 0.0, 1), human) == near  # the same seed
    with pytest.raises(ValueError, match="at least 20"):
        mauve(human[:5], human)
