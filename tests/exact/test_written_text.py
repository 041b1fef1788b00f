"""What is done to written sentences on their way to the reader, and what is said of them."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabula.cli.show import verdict
from fabula.results import Reasons
from fabula.sampling import text


def test_the_examples_run() -> None:
    assert doctest.testmod(text).attempted > 1
    assert not doctest.testmod(text).failed


@given(st.text(alphabet='ab ".,', max_size=30))
def test_quotation_marks_come_in_pairs_and_words_stay(sentence: str) -> None:
    found = text.close_quotes(sentence)
    assert found.count('"') % 2 == 0
    assert found.replace('"', "").split() == sentence.replace('"', "").split() or sentence.count('"') % 2


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (-2.0, 1.0, "follows from what came before and leads to what follows"),
        (-3.0, 0.0, "could follow from what came before and neither helps nor hinders what follows"),
        (-6.0, -1.0, "comes as a surprise after what came before and does not lead to what follows"),
    ],
)
def test_a_verdict_in_words(before: float, after: float, said: str) -> None:
    reasons = Reasons("He ran.", (), -1.0, -5.0, before, after, None, None)
    assert verdict(reasons, first=False, last=False) == said
    assert verdict(reasons, first=True, last=True) == ""
