"""The state space: product index and arcs, there and back."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabula.corpus.states import Factor, StateSpace
from fabula.errors import UserError

SENTIMENT = Factor("sentiment", ("negative", "neutral", "positive"))
EMOTION = Factor("emotion", ("joy", "fear", "none", "neutral"))
BOTH = StateSpace((SENTIMENT, EMOTION))
ONE = StateSpace((SENTIMENT,))


def space_of(sizes: list[int]) -> StateSpace:
    return StateSpace(tuple(Factor(f"factor{f}", tuple(f"label{f}{v}" for v in range(n))) for f, n in enumerate(sizes)))


some_sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(sizes=some_sizes)
def test_states_number_the_product_in_order(sizes: list[int]) -> None:
    """Against the enumeration of the product: the last factor varies fastest."""
    space = space_of(sizes)
    rows = list(itertools.product(*(range(n) for n in space.sizes)))
    assert len(rows) == space.K
    assert space.number(rows).tolist() == list(range(space.K))
    assert space.values(np.arange(space.K)).tolist() == [list(row) for row in rows]
    assert space.values([[0, -1]]).tolist() == [[[0] * len(space.sizes), [-1] * len(space.sizes)]]
    assert StateSpace.from_record(space.to_record()) == space


@settings(max_examples=60)
@given(data=st.data(), sizes=some_sizes)
def test_an_arc_is_read_back_from_its_labels(data: st.DataObject, sizes: list[int]) -> None:
    space = space_of(sizes)
    row = st.tuples(*(st.integers(-1, n - 1) for n in space.sizes))
    arc = tuple(data.draw(st.lists(row, min_size=1, max_size=6)))
    assert space.parse([space.label(values) for values in arc]) == arc
    named = {factor.name: [space.factors[f].labels[v[f]] if v[f] >= 0 else None for v in arc]
             for f, factor in enumerate(space.factors)}  # fmt: skip
    assert space.parse(named) == arc
    every = space.values(np.arange(space.K))
    for values, allowed in zip(arc, space.allowed(arc), strict=True):
        agree = [all(w in (-1, v) for w, v in zip(values, state, strict=True)) for state in every.tolist()]
        assert allowed.tolist() == agree


@given(sizes=some_sizes)
def test_partly_given_states_have_numbers_of_their_own(sizes: list[int]) -> None:
    """Every row of values has its number and comes back; whole states keep theirs, and an arc's states give it back."""
    space = space_of(sizes)
    rows = list(itertools.product(*(range(-1, n) for n in space.sizes)))
    numbers = space.number(rows)
    assert len(set(numbers.tolist())) == len(rows)
    assert space.values(numbers).tolist() == [list(row) for row in rows]
    for row, number in zip(rows, numbers.tolist(), strict=True):
        if min(row) >= 0:
            assert number == np.ravel_multi_index(row, space.sizes)
        assert (number == -1) == (max(row) < 0)
    said = [[v if n > 1 else -1 for v, n in zip(row, space.sizes, strict=True)] for row in rows]
    assert space.common(space.allowed(rows)).tolist() == said


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("+ ? -", [(2, -1), (-1, -1), (0, -1)]),
        ("+?-", [(2, -1), (-1, -1), (0, -1)]),
        ("sentiment=+,?,-", [(2, -1), (-1, -1), (0, -1)]),
        ("emotion=joy,?,fear", [(-1, 0), (-1, -1), (-1, 1)]),
        ("sentiment=+?- emotion=joy,?,Fear", [(2, 0), (-1, -1), (0, 1)]),
        ("+ ? -; emotion=joy,?,fear", [(2, 0), (-1, -1), (0, 1)]),
        ("positive/joy ?/fear -/?", [(2, 0), (-1, 1), (0, -1)]),
        ("+ joy neutral", [(2, -1), (-1, 0), (1, -1)]),  # a label of both belongs to the first
        ("emotion = neutral ?", [(-1, 3), (-1, -1)]),
    ],
)
def test_arcs_as_people_write_them(text: str, values: list[tuple[int, int]]) -> None:
    assert BOTH.parse(text) == tuple(values)


@pytest.mark.parametrize(
    ("arc", "says"),
    [
        ("mood=+,?", "unknown factor 'mood' in the arc; this model has sentiment, emotion"),
        ("emotion=+,?", "unknown tag '+' in the arc; this model knows joy, fear, none, neutral, . and ? (free)"),
        ("+ ?; emotion=joy", "2 of the first and 1 of emotion"),
        ("+ ?; sentiment=-,?", "gives sentence 1 two tags of sentiment"),
        ([1, 2], "an arc is a text or a list of texts"),
        ({"emotion": 3}, "an arc is a text or a list of texts"),
    ],
)
def test_a_wrong_arc_is_explained(arc: object, says: str) -> None:
    with pytest.raises(UserError) as error:
        BOTH.parse(arc)
    assert says in str(error.value)
    assert error.value.field == "arc"


@pytest.mark.parametrize(
    "factors",
    [(), (SENTIMENT, SENTIMENT), (Factor("a", ()),), (Factor("a", ("x", "x")),), (Factor("a", ("x/y",)), EMOTION)],
)
def test_a_space_that_could_not_be_read_back_is_refused(factors: tuple[Factor, ...]) -> None:
    with pytest.raises(UserError, match=r"factors|label"):
        StateSpace(factors)
