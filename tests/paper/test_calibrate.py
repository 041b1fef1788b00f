"""Masked stories restored, and correlations against scipy's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fabula.errors import UserError
from fabula_paper.scores.calibrate import correlate, read_ratings, restore

MASKED = "[FEMALE] did n't like [MALE] 's dog . [FEMALE] wife and i left on friday !he said : \" no . \" it rained ."


def test_a_masked_story_becomes_english() -> None:
    assert restore(MASKED) == [
        "Amy didn't like Tom's dog.",
        "My wife and I left on Friday!",
        'He said: "no."',
        "It rained.",
    ]
    other = restore(MASKED, 1)
    assert other[0] == "Sue didn't like Bob's dog."


def test_ratings_are_shares_of_zeros(tmp_path: Path) -> None:
    file = tmp_path / "ratings.txt"
    file.write_text("7 ||| [NEUTRAL] ran . it rained . ||| 0 0 3 1\n\n8 ||| he slept . ||| 0 0 0 0\n", encoding="utf-8")
    first, second = read_ratings(file)
    assert (first.id, first.rating, second.rating) == ("7", 0.5, 1.0)
    assert len(first.sentences) == 2
    file.write_text("7 ||| he ran .\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1"):
        read_ratings(file)
    with pytest.raises(UserError, match="cannot read"):
        read_ratings(tmp_path / "none.txt")


def test_correlations_are_scipys() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    y = np.round(x + rng.normal(size=80), 0)  # with ties
    found = correlate(x, y, draws=300)
    assert found.pearson.value == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found.spearman.value == pytest.approx(stats.spearmanr(x, y).statistic)
    # Fisher's interval, loosely: the bootstrap's agrees with it to a tenth of its width and a half.
    z, half = np.arctanh(found.pearson.value), 1.96 / np.sqrt(80 - 3)
    assert found.pearson.low == pytest.approx(np.tanh(z - half), abs=0.08)
    assert found.pearson.high == pytest.approx(np.tanh(z + half), abs=0.08)


def test_stories_without_a_figure_are_left_out() -> None:
    found = correlate([1.0, np.nan, 2.0, 3.0], [1.0, 9.0, 2.0, 3.0], draws=50)
    assert found.n == 3
    assert found.pearson.value == pytest.approx(1)
    assert np.isnan(correlate([1.0, 1.0], [0.0, 1.0], draws=5).pearson.value)
