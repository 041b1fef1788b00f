"""The figures of a judging report against definitions, enumeration, published values and a direct optimum."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.optimize import minimize

from fabula.apps.judge.judgement import ErrorSheet, lowest_stories
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.report import Report, report
from fabula.apps.judge.show import as_csv, svg, table
from fabula.apps.judge.statistics import Counts, Floats, Level, alpha, alpha_figure, ratio_figure, resample, strengths
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
    assert alpha_figure(pairs, "nominal", 400, np.random.default_rng(0)).interval == (twice[1], twice[0])


# --- Bradley–Terry ---------------------------------------------------------------------------------------------------


def optimum(wins: Floats) -> Floats:
    """The strengths of greatest likelihood, by a general optimiser."""

    def loss(strength: Floats) -> float:
        apart = strength[:, None] - strength[None, :]
        return float(np.sum(wins * np.logaddexp(0, -apart)))

    found = minimize(loss, np.zeros(len(wins)), method="BFGS", options={"gtol": 1e-10}).x
    return np.asarray(found - found.mean())


@pytest.mark.parametrize("seed", range(4))
def test_strengths_are_the_optimum(seed: int) -> None:
    """Of four systems that have not all met, with half wins from ties."""
    rng = np.random.default_rng(seed)
    wins = rng.integers(1, 40, size=(4, 4)) / 2
    np.fill_diagonal(wins, 0)
    wins[0, 3] = wins[3, 0] = 0
    found = strengths(wins)
    assert found is not None
    np.testing.assert_allclose(found, optimum(wins), atol=2e-5)


def test_two_systems_are_as_strong_as_the_log_odds() -> None:
    found = strengths(np.asarray([[0.0, 51.3 + 13.7 / 2], [35.0 + 13.7 / 2, 0.0]]))
    assert found is not None
    assert found[0] - found[1] == pytest.approx(math.log(58.15 / 41.85), abs=1e-9)
    assert found.sum() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "wins",
    [
        [[0, 5], [0, 0]],
        [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
        [[0, 1, 1], [1, 0, 1], [0, 0, 0]],
    ],
    ids=["never lost", "never met", "never won"],
)
def test_without_a_maximum_there_is_no_strength(wins: list[list[int]]) -> None:
    assert strengths(np.asarray(wins, dtype=np.float64)) is None


# --- intervals -------------------------------------------------------------------------------------------------------


def test_resampling_draws_as_many_pairs_with_replacement() -> None:
    drawn = resample(3, 500, np.random.default_rng(0))
    assert (drawn.sum(axis=1) == 3).all()
    # Each of the 27 draws is as likely: all three once in 6 of them, one thing three times in 3. 5 standard errors.
    share = (drawn == 1).all(axis=1).mean(), (drawn == 3).any(axis=1).mean()
    assert share == pytest.approx((6 / 27, 3 / 27), abs=5 * math.sqrt(0.25 / 500))


def test_a_figure_has_an_interval_where_nine_tenths_of_the_draws_have_a_value() -> None:
    totals = np.asarray([[1.0, 1.0], [0.0, 0.0]])
    draws = np.asarray([[2, 0]] * 90 + [[0, 2]] * 10)
    assert ratio_figure(totals, draws, 0, 1).interval == (1, 1)
    assert ratio_figure(totals, draws[1:], 0, 1).interval is None
    assert ratio_figure(totals[1:], draws[:, 1:], 0, 1).value is None


# --- a whole report --------------------------------------------------------------------------------------------------


def pair(id: str, systems: tuple[str, str], better: int | None = None) -> Pair:
    stories = [(f"Kim found {id}.", f"One {n} {id}.", f"Kim kept {id}.") for n in (0, 1)]
    return Pair(
        id=id,
        systems=systems if better is None else None,
        given=(0, 2),
        stories=(stories[0], stories[1]),
        better=better,
    )


PAIRS = [
    pair("a", ("SLDS", "LM")),
    pair("b", ("LM", "SLDS")),
    pair("c", ("SLDS", "LM")),
    pair("x", ("", ""), better=1),
    pair("y", ("", ""), better=0),
]
# (pair, annotator, ratings of story 0, of story 1, better, seconds)
ANSWERS = [
    ("a", "ann", (3, 2), (1, 0), 0, 10.0),
    ("a", "bob", (2, 2), (1, 1), 0, 20.0),
    ("b", "ann", (0, 1), (3, 3), 1, 30.0),
    ("b", "bob", (2, 1), (2, 1), None, 40.0),
    ("c", "ann", (1, 1), (2, 2), 1, 50.0),
    ("c", "bob", (3, 3), (0, 0), 0, 60.0),
    ("x", "ann", (0, 0), (3, 3), 1, 5.0),
    ("y", "ann", (3, 3), (0, 0), 0, 5.0),
    ("x", "bob", (2, 2), (2, 2), None, 5.0),
    ("y", "bob", (3, 3), (0, 0), 0, 5.0),
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
def found(store: Store) -> Report:
    return report(store, repeats=200)


def test_the_table_counts_every_answer_once(found: Report) -> None:
    group = found.groups[0]
    (one,) = group.comparisons
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
    assert slds.paper is not None
    assert (slds.paper["mean"], slds.paper["best"]) == (1.89, 51.3)
    assert (found.pairs, found.finished, found.wanted) == (3, 3, 2)


def test_strengths_count_a_tie_as_half_a_win_for_each(found: Report) -> None:
    lm, slds = (one.strength.value for one in found.groups[0].strengths)
    assert lm is not None
    assert slds is not None
    assert slds - lm == pytest.approx(math.log(4.5 / 1.5), abs=1e-6)


def test_agreement_has_sentences_and_pairs_for_units(found: Report) -> None:
    sentences, preferences = [], []
    for id in "abc":
        (_, _, first, second, better, _), (_, _, first_, second_, better_, _) = (row for row in ANSWERS if row[0] == id)
        sentences += [[one, other] for one, other in zip((*first, *second), (*first_, *second_), strict=True)]
        preferences.append([9 if better is None else better, 9 if better_ is None else better_])
    group = found.groups[0]
    assert group.alpha_ratings.value == pytest.approx(enumerated(sentences, [0, 1, 2, 3], "ordinal"))
    assert group.alpha_preference.value == pytest.approx(enumerated(preferences, [0, 1, 9], "nominal"))


def test_whoever_fails_the_checks_is_named_and_left_out_of_the_second_table(found: Report) -> None:
    """Bob's tie passes no check: one of two is less than three quarters. Checks are in no figure."""
    ann, bob = found.annotators
    assert (ann.code, ann.judgements, ann.checks, ann.passed, ann.failed) == ("ann", 3, 2, 2, False)
    assert (bob.code, bob.judgements, bob.checks, bob.passed, bob.failed) == ("bob", 3, 2, 1, True)
    everyone, rest = found.groups
    assert (everyone.judgements, rest.judgements, rest.annotators) == (6, 3, 1)
    assert rest.comparisons[0].rows[1].best.value == pytest.approx(100 * 2 / 3)
    assert rest.alpha_ratings.value is None


def test_a_lower_bar_fails_nobody(store: Store) -> None:
    lenient = report(store, pass_share=0.5, repeats=0)
    assert [one.failed for one in lenient.annotators] == [False, False]
    assert len(lenient.groups) == 1


def test_times_are_of_pairs(found: Report) -> None:
    times = found.times
    assert (times.first_quartile, times.median, times.third_quartile) == (22.5, 35.0, 47.5)
    assert [one.seconds for one in found.annotators] == [30.0, 40.0]


def test_the_same_seed_gives_the_same_report(store: Store) -> None:
    one, again, other = (report(store, repeats=100, seed=seed) for seed in (4, 4, 5))
    assert json.dumps(one.to_json()) == json.dumps(again.to_json())
    assert one.groups[0].comparisons != other.groups[0].comparisons
    assert "interval" in json.dumps(one.to_json())


def test_the_lowest_are_the_lowest(store: Store) -> None:
    judgements, _ = store.judgements()
    lowest = lowest_stories(PAIRS, judgements, system=None)
    means = {("a", 1): 0.75, ("b", 0): 1.0, ("c", 1): 1.0, ("c", 0): 2.0, ("a", 0): 2.25, ("b", 1): 2.25}
    assert {(pair.id, story): mean for pair, story, mean in lowest} == means
    assert [mean for _, _, mean in lowest] == sorted(means.values())
    of_lm = lowest_stories(PAIRS, judgements, system="LM", number=2)
    assert [(pair.id, story) for pair, story, _ in of_lm] == [("a", 1), ("b", 0)]


def test_the_error_sheet_is_counted_for_all_and_for_each_system(store: Store) -> None:
    for id, story, ending, off_topic, wrong in [
        ("a", 1, True, False, True),
        ("b", 0, True, True, False),
        ("c", 0, False, True, True),
    ]:
        store.keep_errors(ErrorSheet(pair=id, story=story, ending=ending, off_topic=off_topic, ungrammatical=(wrong,)))
    counts = {
        one.system: (one.stories, one.ending, one.off_topic, one.ungrammatical, one.sentences)
        for one in report(store, repeats=0).errors
    }
    assert counts == {None: (3, 2, 2, 2, 3), "LM": (2, 2, 1, 1, 2), "SLDS": (1, 0, 1, 1, 1)}


def test_the_table_and_the_csv_say_what_the_report_says(found: Report) -> None:
    shown = table(found)
    assert "66.7 %" in shown
    assert "51.3 %" in shown
    assert "bob  3 pairs, median 40 s, 1 of 2 checks passed   FAILED" in shown
    lines = as_csv(found).splitlines()
    best = [line.split(",") for line in lines if "everyone,LM : SLDS,SLDS,best story %" in line]
    assert float(best[0][4]) == pytest.approx(100 * 4 / 6)
    assert best[0][7] == "51.3"


def test_the_picture_is_well_formed_and_names_the_systems(found: Report) -> None:
    picture = svg(found)
    ElementTree.fromstring(picture)
    assert "LM : tie : SLDS" in picture
    assert picture == svg(found)


def test_a_study_without_answers_has_a_report(tmp_path: Path) -> None:
    store = Store(tmp_path / "empty.db")
    store.create_study(lay_out(PAIRS, StudySettings()), StudySettings())
    empty = report(store)
    assert empty.groups[0].judgements == 0
    assert "No judgements yet" in table(empty)
    ElementTree.fromstring(svg(empty))


def test_one_judgement_is_enough_for_a_report(tmp_path: Path) -> None:
    store = Store(tmp_path / "one.db")
    store.create_study(lay_out(PAIRS, StudySettings()), StudySettings())
    store.add("a", "ann", [[3, 3], [0, 0]], 0, 4.0)
    one = report(store, repeats=50).groups[0]
    assert one.comparisons[0].rows[1].best.value == 100
    assert one.strengths[0].strength.value is None
    assert one.alpha_ratings.value is None
