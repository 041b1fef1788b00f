"""How much a bound still lacks, told from its growth. (The calibrated q itself: test_likelihood.py, by enumeration.)"""

import numpy as np
import pytest
import torch

from fabula.metrics.bound import Weighed, slack


def test_slack_is_what_a_power_law_says() -> None:
    """L(M) = 100 + 8 M^-beta by M = 10, 20, 40: the estimate is 8 * 40^-beta, exactly."""
    for beta in (0.3, 0.5, 1.0):
        bounds = [[100 + 8 * samples**-beta] * 3 for samples in (10, 20, 40)]
        assert slack(*bounds) == pytest.approx(8 * 40**-beta, rel=1e-6)


def test_slack_is_unknown_where_growth_does_not_slow_down() -> None:
    assert slack([103.0], [102.0], [101.0]) == np.inf
    assert slack([100.0], [100.0], [100.0]) == 0.0
    # Growth that slows down faster than 1/M is taken for 1/M.
    assert slack([110.0], [100.5], [100.0]) == pytest.approx(0.5)


def test_fewer_samples_are_averaged_over_all_their_groups() -> None:
    log_w = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    weighed = Weighed(log_w, torch.zeros_like(log_w), torch.zeros(1, 1))
    pairs = [np.log((1 + np.e) / 2), np.log((np.e**2 + np.e**3) / 2)]
    assert float(weighed.log_p_by(2)) == pytest.approx(np.mean(pairs), abs=1e-6)
    assert float(weighed.log_p_by(1)) == pytest.approx(1.5)
    assert float(weighed.log_p_by(4)) == pytest.approx(float(weighed.log_p))
