"""What is done to written sentences on their way to the reader."""

import doctest

from hypothesis import given
from hypothesis import strategies as st

from fabula.sampling import text


def test_the_examples_run() -> None:
    assert doctest.testmod(text).attempted > 1
    assert not doctest.testmod(text).failed


@given(st.text(alphabet='ab ".,', max_size=30))
def test_quotation_marks_come_in_pairs_and_words_stay(sentence: str) -> None:
    closed = text.close_quotes(sentence)
    assert closed.count('"') % 2 == 0
    assert closed.replace('"', "").split() == sentence.replace('"', "").split() or sentence.count('"') % 2
