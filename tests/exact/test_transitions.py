"""The scaffold's counts against counting by hand."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabula.corpus.transitions import Transitions
from small import stories_of

K = 3
_STORIES = st.lists(
    st.lists(st.one_of(st.none(), st.integers(0, K - 1)), min_size=1, max_size=6), min_size=1, max_size=8
)


def _count(stories: list[list[int | None]], smoothing: float = 0.1) -> Transitions:
    told = stories_of([[[] for _ in story] for story in stories], tags=stories)
    return Transitions.count(np.asarray(told.tags), np.asarray(told.story_offsets), K, smoothing)


@given(_STORIES)
def test_counts_are_those_of_a_plain_loop(stories: list[list[int | None]]) -> None:
    """Sentences without a tag contribute nothing, and no pair crosses from one story into the next."""
    initial, following = np.zeros(K), np.zeros((K, K))
    for story in stories:
        if story[0] is not None:
            initial[story[0]] += 1
        for before, after in pairwise(story):
            if before is not None and after is not None:
                following[before, after] += 1
    counted = _count(stories)
    np.testing.assert_array_equal(counted.initial, initial)
    np.testing.assert_array_equal(counted.following, following)


def test_probabilities_by_hand() -> None:
    counted = _count([[0, 1, 1], [0, None, 2], [2, 1]], smoothing=0.5)
    np.testing.assert_allclose(counted.p_initial, np.array([2.5, 0.5, 1.5]) / 4.5, rtol=1e-15)
    np.testing.assert_allclose(
        counted.p_next[0], np.array([0.5, 1.5, 0.5]) / 2.5, rtol=1e-15
    )  # rows: the previous state
    np.testing.assert_allclose(counted.p_next[1], np.array([0.5, 1.5, 0.5]) / 2.5, rtol=1e-15)
    np.testing.assert_allclose(counted.p_next[2], np.array([0.5, 1.5, 0.5]) / 2.5, rtol=1e-15)
    assert _count([[0, 2]], smoothing=1.0).p_next[0].tolist() == [0.25, 0.25, 0.5]
