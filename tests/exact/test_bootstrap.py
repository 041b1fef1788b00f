"""Bootstraps against what the central limit says, and the cases where nothing is left to draw."""

import math

import numpy as np
import pytest

from fabula.metrics.bootstrap import difference, mean, ratio


def test_the_mean_has_its_standard_error() -> None:
    """Of the sample, n in the denominator; 4,000 draws leave an error of 1.1 % on it, five of which are let pass."""
    values = np.random.default_rng(0).normal(3, 2, size=400)
    found = mean(values, draws=4000)
    assert found.value == pytest.approx(values.mean())
    assert found.se == pytest.approx(values.std() / math.sqrt(400), rel=0.056)
    assert found.low == pytest.approx(found.value - 1.96 * found.se, abs=0.1 * found.se + 0.02)
    assert found.low < found.value < found.high


def test_a_ratio_is_of_sums_not_a_mean_of_ratios() -> None:
    found = ratio([1.0, 3.0], [1.0, 1000.0])
    assert found.value == pytest.approx(4 / 1001)
    perplexity = ratio([math.log(8) * 2, math.log(2)], [2.0, 1.0], transform=np.exp)
    assert perplexity.value == pytest.approx(math.exp((2 * math.log(8) + math.log(2)) / 3))


def test_draws_without_a_case_are_left_out() -> None:
    """Half of the draws of two stories, one without cases, could be 0 / 0 only if both were that one."""
    found = ratio([1.0, 0.0], [2.0, 0.0])
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    assert math.isnan(ratio([0.0], [0.0]).value)
    assert math.isnan(mean([]).value)


def test_pairs_cancel_what_stories_have_in_common() -> None:
    common = np.random.default_rng(1).normal(0, 100, size=200)
    paired = difference(common + 1, common)
    assert paired.value == pytest.approx(1)
    assert paired.se == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="pairs of 2 and 3"):
        difference([1.0, 2.0], [1.0, 2.0, 3.0])
