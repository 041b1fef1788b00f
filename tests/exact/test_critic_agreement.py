"""Agreement with raters: known correlations, nothing learnt from the half that is measured, the ceiling by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fabula.metrics.critic import agreement, ceiling, together


def test_a_known_correlation() -> None:
    x = np.arange(40.0)
    found = agreement(x, 2 * x + 1)
    assert found.pearson == pytest.approx(1.0)
    assert found.spearman == pytest.approx(1.0)
    assert found.low == pytest.approx(1.0)
    assert agreement(x, -x).pearson == pytest.approx(-1.0)
    ties = agreement(np.array([1.0, 1.0, 2.0, 2.0]), np.array([0.0, 0.0, 5.0, 5.0]))
    assert ties.spearman == pytest.approx(1.0)


def test_noise_that_is_fitted_does_not_agree() -> None:
    """Forty figures that know nothing: fitted and measured on the same stories they would reach r = .4; across halves
    they stay near 0 (the standard error is .05; a false alarm below 1e-4)."""
    rng = np.random.default_rng(1)
    features, ratings = rng.normal(size=(400, 40)), rng.normal(size=400)
    assert abs(agreement(together(features, ratings, ridge=1e-3), ratings, draws=10).pearson) < 0.2
    signal = features.copy()
    signal[:, 3] = ratings + 0.3 * rng.normal(size=400)
    assert agreement(together(signal, ratings, ridge=1e-3), ratings, draws=10).pearson > 0.8


def test_the_ceiling() -> None:
    """Raters who always agree allow 1; two raters whose labels correlate by 1/2 have a reliability of 2/3."""
    same = np.array([[0, 0, 0], [1, 1, 1], [0, 0, 0], [2, 2, 2]])
    assert ceiling(same) == pytest.approx(1.0)
    a = np.array([0, 0, 0, 1, 1, 1, 0, 1])
    b = np.array([0, 0, 1, 1, 1, 0, 0, 1])
    assert ceiling(np.stack([a, b], 1)) == pytest.approx(np.sqrt(2 / 3))
