"""Bootstrap intervals over pairs hold what they should as often as they say, though ratings of a pair go together."""

import numpy as np

from fabula.apps.judge.report import ratio_figure

STUDIES, PAIRS, RATINGS, REPEATS = 600, 60, 12, 400


def test_intervals_over_pairs_hold_the_mean_95_times_in_100() -> None:
    """600 studies of a known distribution: 60 pairs, 12 ratings each around the pair's own level.

    A percentile interval over 60 pairs covers with about 0.94; then 600 studies fall outside 0.90 to 0.98 with
    probability below 1e-4. Taking the ratings for independent would cover with about 0.5.
    """
    rng = np.random.default_rng(20)
    held = 0
    for study in range(STUDIES):
        level = rng.normal(1.7, 0.8, size=PAIRS)
        ratings = level[:, None] + rng.normal(0, 0.5, size=(PAIRS, RATINGS))
        interval = ratio_figure(ratings.sum(axis=1), np.full(PAIRS, RATINGS), REPEATS, study).interval
        assert interval is not None
        held += interval[0] <= 1.7 <= interval[1]
    assert 0.90 < held / STUDIES < 0.98
