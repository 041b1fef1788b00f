"""The figures of a judging report against definitions, enumeration and published values."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.report import Counts, Figure, Level, Report, alpha, alpha_figure, report
from fabula.apps.judge.store import Store
from fabula.apps.judge.study import StudySettings, lay_out

# --- alpha -----------------------------------------------------------------------------------------------------------

# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), example C: 4 observers, 12 units, values 1 to 5.
PUBLISHED = [
    [1, 1, 0, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4],
    [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [0, 5, 5, 5], [0, 0, 1, 1], [0, 3, 0, 0],
]  # fmt: skip


def counts_of(units: list[list[int]], values: list[int]) -> Counts:
    return np.asarray([[unit.count(value) for value in values] for unit in units], dtype=np.int64)


@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("ordinal", 0.815)])
def test_alpha_of_the_published_example(level: Level, published: float) -> None:
    found = alpha(counts_of(PUBLISHED, [1, 2, 3, 4, 5]), level)
    assert found is not None
    assert round(found, 3) == published


def enumerated(units: list[list[int]], values: list[int], level: Level) -> float:
    """Alpha by its definition: every ordered pair of answers within a unit against every pair within the study."""
    units = [unit for unit in units if len(unit) > 1]
    everything = [value for unit in units for value in unit]
    often = {value: everything.count(value) for value in values}

    def distance(one: int, other: int) -> float:
        if level == "nominal":
            return float(one != other)
        low, high = min(one, other), max(one, other)
        between = sum(often[value] for value in values if low <= value <= high)
        return float((between - (often[one] + often[other]) / 2) ** 2) if one != other else 0.0

    observed = sum(
        distance(one, other) / (len(unit) - 1) for unit in units for one, other in itertools.permutations(unit, 2)
    ) / len(everything)
    pairs = list(itertools.permutations(range(len(everything)), 2))
    expected = sum(distance(everything[i], everything[j]) for i, j in pairs) / len(pairs)
    return 1 - observed / expected


@pytest.mark.parametrize("level", ["nominal", "ordinal"])
@pytest.mark.parametrize("seed", range(5))
def test_alpha_is_its_definition(level: Level, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [0, 1, 2, 3]
    units = [rng.integers(0, 4, size=rng.integers(1, 5)).tolist() for _ in range(12)]
    found = alpha(counts_of(units, values), level)
    assert found == pytest.approx(enumerated(units, values, level), abs=1e-12)


def test_alpha_is_none_where_it_means_nothing() -> None:
    assert alpha(counts_of([[1], [2], [3]], [1, 2, 3]), "nominal") is None, "nobody judged what another judged"
    assert alpha(counts_of([[2, 2], [2, 2], [1]], [1, 2]), "ordinal") is None, "one value only"
    assert alpha(counts_of([], [1, 2]).reshape(0, 2), "nominal") is None


def test_the_interval_of_alpha_resamples_pairs_and_not_sentences() -> None:
    """Two pairs of ten sentences with equal ratings: a resampled study is one of them, the other, or both."""
    pairs = [counts_of(units * 5, [0, 3]) for units in ([[0, 0], [3, 3]], [[0, 3], [3, 0]])]
    twice = [alpha(np.concatenate([pair, pair]), "nominal") for pair in pairs]
    assert alpha_figure(pairs, "nominal", 400, 0).interval == (twice[1], twice[0])


def test_alpha_has_an_interval_where_nine_tenths_of_the_draws_have_a_value() -> None:
    """Of two pairs, each with a value of its own, half of the draws have one value only."""
    two = [counts_of([[value, value]], [0, 3]) for value in (0, 3)]
    assert alpha_figure(two, "nominal", 100, 0) == Figure(value=1.0)
    assert alpha_figure(two * 5, "nominal", 100, 0).interval == (1, 1)


# --- a whole report --------------------------------------------------------------------------------------------------


def pair(id: str, systems: tuple[str, str]) -> Pair:
    first, second = ((f"Kim found {id}.", f"One {n} {id}.", f"Kim kept {id} {n}.") for n in (0, 1))
    return Pair(id=id, systems=systems, given=(0,), stories=(first, second))


PAIRS = [pair("a", ("SLDS", "LM")), pair("b", ("LM", "SLDS")), pair("c", ("SLDS", "LM"))]
# (pair, annotator, ratings of story 0, of story 1, better, seconds)
ANSWERS = [
    ("a", "ann", (3, 2), (1, 0), 0, 10.0),
    ("a", "bob", (2, 2), (1, 1), 0, 20.0),
    ("b", "ann", (0, 1), (3, 3), 1, 30.0),
    ("b", "bob", (2, 1), (2, 1), None, 40.0),
    ("c", "ann", (1, 1), (2, 2), 1, 50.0),
    ("c", "bob", (3, 3), (0, 0), 0, 60.0),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    settings = StudySettings(annotators=2)
    store = Store(tmp_path / "judge.db")
    store.create_study(lay_out(PAIRS, settings), settings)
    for id, code, first, second, better, seconds in ANSWERS:
        store.add(id, code, [list(first), list(second)], better, seconds)
    return store


@pytest.fixture
def result(store: Store) -> Report:
    return report(store, repeats=200)


def test_the_table_counts_every_answer_once(result: Report) -> None:
    (one,) = result.comparisons
    lm, slds = one.rows
    assert (one.systems, one.pairs, one.judgements) == (("LM", "SLDS"), 3, 6)
    slds_ratings = np.asarray([3, 2, 2, 2, 3, 3, 2, 1, 1, 1, 3, 3])
    lm_ratings = np.asarray([1, 0, 1, 1, 0, 1, 2, 1, 2, 2, 0, 0])
    for row, ratings in ((slds, slds_ratings), (lm, lm_ratings)):
        assert row.coherence.value == pytest.approx(ratings.mean())
        assert row.sd == pytest.approx(ratings.std(ddof=1))
        assert row.ratings == 12
    assert slds.best.value == pytest.approx(100 * 4 / 6)
    assert lm.best.value == pytest.approx(100 / 6)
    assert one.ties.value == pytest.approx(100 / 6)
    assert (result.pairs, result.finished, result.wanted) == (3, 3, 2)
    assert result.seconds == 35.0
    assert [(one.code, one.judgements, one.seconds) for one in result.annotators] == [
        ("ann", 3, 30.0),
        ("bob", 3, 40.0),
    ]


def test_agreement_has_sentences_and_pairs_for_units(result: Report) -> None:
    sentences, preferences = [], []
    for id in "abc":
        (_, _, first, second, better, _), (_, _, first_, second_, better_, _) = (row for row in ANSWERS if row[0] == id)
        sentences += [[one, other] for one, other in zip((*first, *second), (*first_, *second_), strict=True)]
        preferences.append([9 if better is None else better, 9 if better_ is None else better_])
    assert result.alpha_ratings.value == pytest.approx(enumerated(sentences, [0, 1, 2, 3], "ordinal"))
    assert result.alpha_preference.value == pytest.approx(enumerated(preferences, [0, 1, 9], "nominal"))
