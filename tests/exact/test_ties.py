"""The last bits of a figure decide nothing: who wins, who ranks first, whether a bar is met, whether systems differ."""

import math

import numpy as np
import pytest
import torch

from fabula.metrics.bootstrap import difference
from fabula.sampling.names import stand_ins
from fabula.sampling.samples import SampledStories, best_stories
from fabula.statespace.diagnostics import split_r_hat
from fabula.ties import first_best, ranking, tied
from fabula_paper.figures import cross_fitted

BIT = 2**-23
"""The relative spacing of float32: the least that two orders of one sum can differ by."""


def test_tied_is_relative_to_the_figures_or_to_their_scale() -> None:
    assert tied([-100.0, -100.0, 0.0], [-100.0 - 1e-4, -100.1, 1e-9]).tolist() == [True, False, False]
    assert tied(0.0, 1e-4, scale=-100.0)
    assert not tied(0.0, 1e-2, scale=-100.0)
    assert tied([-math.inf, -math.inf, math.nan], [-math.inf, -1.0, math.nan]).tolist() == [True, False, False]


def test_ranking_keeps_the_order_of_ties_and_sorts_the_rest() -> None:
    scores = [-3.0 * (1 + BIT), -3.0, -1.0, -math.inf, -3.0 * (1 - BIT), math.nan, -2.0]
    assert ranking(scores) == [2, 6, 0, 1, 4, 3, 5]
    assert first_best([[-3.0 * (1 + BIT), -3.0, -4.0], [-4.0, -3.0, -3.0]]).tolist() == [0, 1]
    assert ranking([]) == []


def test_a_chain_of_small_steps_is_no_single_tie() -> None:
    """Neighbours are tied each time, yet the last is far from the first: groups end where the first one's ties do."""
    scores = [1.0 + 0.8e-5 * n for n in range(10)]
    assert ranking(scores) == [8, 9, 6, 7, 4, 5, 2, 3, 0, 1]


def rounds(scores: list[list[float]]) -> list[SampledStories]:
    """One story; every sample's only word is its number."""
    made, number = [], 0
    for score in scores:
        X = torch.arange(number, number + len(score)).view(-1, 1, 1)
        number += len(score)
        ones = torch.ones(len(score), 1)
        made.append(SampledStories(X, ones.long(), ones.long(), -ones, torch.tensor(score), torch.zeros(len(score))))
    return made


@pytest.mark.parametrize("bit", [-BIT, 0.0, BIT])
def test_candidates_that_differ_by_a_bit_keep_their_order(bit: float) -> None:
    drawn = rounds([[-50.0, -40.0, -40.0 * (1 + bit)], [-40.0 * (1 - 2 * bit), -30.0, -30.0 * (1 + bit)]])
    ranked = [int(story.X) for story in best_stories(drawn, 0, torch.ones(1, 1, dtype=torch.bool), 6)]
    assert ranked == [4, 5, 1, 2, 3, 0]


def test_names_figures_and_endings_that_differ_by_a_bit() -> None:
    chosen = stand_ins([([["Zorblax", "ran"]], ["Zorblax"])], ["Tom", "Bob"], lambda tried: [-9.0 * (1 + BIT), -9.0])
    assert chosen == [{"Zorblax": "Tom"}]
    names, _ = cross_fitted([("a", np.full(4, 17.6)), ("b", np.full(4, 17.6 * (1 + BIT))), ("c", np.full(4, 3.0))])
    assert names == ["a"]


def test_two_runs_of_one_system_do_not_differ() -> None:
    """Every story off by a bit in the same direction: without the tolerance the interval would exclude 0."""
    theirs = np.linspace(-120, -80, 50)
    gap = difference(theirs * (1 - BIT), theirs, draws=100)
    assert (gap.value, gap.low, gap.high) == (0, 0, 0)
    assert difference(theirs + 0.5, theirs, draws=100).low > 0.49


def test_a_coordinate_that_only_rounding_moves_has_mixed() -> None:
    draws = torch.full((3, 8, 1), 0.7)
    draws[1] *= 1 + BIT
    assert split_r_hat(draws).item() == 1
