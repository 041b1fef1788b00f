"""The rules that decide claims and cells, each on made-up records: slack, seeds, winners, judges."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabula.metrics.bootstrap import Interval
from fabula_paper import claims
from fabula_paper.figures import (
    METRICS,
    NOT_RUN,
    ROUGE_L_SENTENCES,
    Results,
    calibrated_bound,
    cross_fitted,
    paper,
    widened,
)
from fabula_paper.plan import BY_NAME, FULL, SYSTEMS, TABLE_SETTINGS
from fabula_paper.records import Records
from fabula_paper.tables import all_tables

STORIES = 40
NOISE = np.random.default_rng(0).normal(size=STORIES)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


def likelihood(records: Records, system: str, **values: float) -> None:
    stories = {name: (value + NOISE).tolist() for name, value in values.items()}
    record = {"system": system, "stage": "likelihood", "tokens": [50] * STORIES, "stories": stories, "latent": {}}
    records.write(f"likelihood/{system}", record)


def bound(records: Records, system: str, value: float, slack: float) -> None:
    """A bound that lacks `slack` and falls as 1/M: by half of the samples it lacks twice that, by a quarter four."""
    fewer = {"iw_half": value + slack, "iw_quarter": value + 3 * slack, "elbo": value + 200 * slack}
    likelihood(records, system, iw=value, **fewer)


def overlap(
    records: Records, system: str, sampler: str, scores: Any, settings: tuple[str, ...] = ("2", "4", "34")
) -> None:
    values = np.broadcast_to(np.asarray(scores, dtype=np.float64), (STORIES,))
    for setting in settings:
        stories = {metric: values.tolist() for metric in (*METRICS, ROUGE_L_SENTENCES)}
        records.write(
            f"overlap/{system}.{setting}.{sampler}", {"system": system, "stage": "overlap", "stories": stories}
        )


def control(records: Records, system: str, f1: float) -> None:
    own = {
        "f1": [f1],
        "mean": f1,
        "spread": 0.1,
        "greedy": f1,
        "interval": [f1 - 1, f1 + 1],
        "greedy_interval": [f1, f1],
    }
    record = {"system": system, "stage": "control", "n": 9, "vader": own, "afinn": own, "nrc": own}
    records.write(f"control/{system}", record)


def middle(records: Records, name: str, log_p: float, nats: float, seconds: float, smollm: float) -> None:
    """Look-ahead by the judge, story perplexity, look-ahead by SmolLM2, and time."""
    system, noise = name.partition(".")[0], NOISE
    records.write(f"lookahead/{name}", {"system": system, "stage": "lookahead", "stories": (log_p + noise).tolist()})
    whole = 100 * nats + noise
    stories = {"nats": whole.tolist(), "tokens": [100] * STORIES, "written_nats": (whole + smollm).tolist()}
    surprise = {"system": system, "stage": "surprise", "ppl": math.exp(nats), "stories": stories}
    records.write(f"surprise/{name}", surprise)
    speed = {"seconds_one_story": seconds, "seconds_a_story_together": seconds, "device": "cpu"}
    records.write(f"speed/{name}", {"system": system, "stage": "speed", **speed})


def verdict(records: Records, title: str) -> str:
    """The verdict on a claim, without the note that some system was trained once."""
    (claim,) = (claim for claim in claims.read_claims() if claim.title == title)
    return claims.decide(Results(records, FULL), claim).verdict.removesuffix(claims.ONE_TRAINING)


@pytest.mark.parametrize(
    ("gap", "slack", "word"),
    [
        (+1.0, 0.2, claims.FAILS),  # above the exact figure by more than the bound can lack
        (+1.0, 1.5, claims.INCONCLUSIVE),  # the bound lacks more than the gap
        (-1.0, 1.5, claims.HOLDS),  # an upper bound below an exact figure needs no slack
    ],
)
def test_a_bound_counts_against_a_model_only_beyond_its_slack(
    records: Records, gap: float, slack: float, word: str
) -> None:
    bound(records, "default", 160.0 + gap, slack)
    likelihood(records, "lm-1024", nll=160.0)
    assert Results(records, FULL).slack("default", "iw") == pytest.approx(slack)
    assert verdict(records, "a well-trained SLDS beats a well-trained LM") == word


def test_a_bound_counts_for_a_model_only_beyond_the_rivals_slack() -> None:
    """A gap of 1 that may be 0.2 by chance is not beyond a slack of 0.5."""
    wide, narrow = (Interval(1.0, 1.0 - half, 1.0 + half, 0.4, STORIES) for half in (0.8, 0.4))
    assert claims.Comparison("", wide, slack_for=0.5).verdict == claims.INCONCLUSIVE
    assert claims.Comparison("", narrow, slack_for=0.5).verdict == claims.HOLDS
    assert claims.Comparison("", claims.negated(wide), slack_against=0.5).verdict == claims.INCONCLUSIVE
    assert claims.Comparison("", claims.negated(narrow), slack_against=0.5).verdict == claims.FAILS


def test_a_bound_without_its_growth_has_a_cautious_slack(records: Records) -> None:
    """Three times the gain from one sample to all; unknown without any growth."""
    likelihood(records, "slds", iw=160.0, elbo=161.0)
    likelihood(records, "s2s", nll=150.0, with_tags=155.0)
    results = Results(records, FULL)
    assert results.slack("slds", "iw") == pytest.approx(3.0)
    assert math.isinf(results.slack("s2s", "with_tags"))
    assert results.slack("s2s", "nll") == 0.0


@pytest.mark.parametrize(("saved", "word"), [(1.0, claims.FAILS), (2.9, claims.INCONCLUSIVE), (5.0, claims.HOLDS)])
def test_a_bound_measured_again_on_some_stories_decides(records: Records, saved: float, word: str) -> None:
    """The old bound is 3 nats above the LM; the new one saves so much on every fourth story and lacks 0.3."""
    rows = list(range(0, STORIES, 4))
    likelihood(records, "default", iw=163.0, elbo=170.0)
    likelihood(records, "lm-1024", nll=160.0)
    new = 163.0 - saved + NOISE[rows]
    stories = {name: (new + more).tolist() for name, more in (("iw", 0.0), ("iw_half", 0.3), ("iw_quarter", 0.9))}
    records.write("bound/default", {"system": "default", "stage": "bound", "rows": rows, "n": 10, "stories": stories})
    measured = calibrated_bound(Results(records, FULL), "default", "lm-1024")
    assert measured is not None
    assert (measured[0].value, measured[1]) == pytest.approx((3.0 - saved, 0.3), abs=1e-6)
    assert verdict(records, "a well-trained SLDS beats a well-trained LM") == word


@pytest.mark.parametrize(("slds", "word"), [(150.0, claims.HOLDS), (160.0, claims.INCONCLUSIVE), (170.0, claims.FAILS)])
def test_one_rival_that_wins_refutes_a_claim_of_all(records: Records, slds: float, word: str) -> None:
    likelihood(records, "slds", authors=slds)
    likelihood(records, "lm", nll=165.0)
    likelihood(records, "s2s", nll=165.0)
    title = "SLDS beats LM, S2S and LDS in perplexity, by the authors' estimate"
    assert verdict(records, title) == (NOT_RUN if slds < 165.0 else word)
    likelihood(records, "lds", authors=160.0)
    assert verdict(records, title) == word


@pytest.mark.parametrize(("spread", "word"), [(0.05, claims.HOLDS), (3.0, claims.INCONCLUSIVE)])
def test_trainings_widen_the_interval(records: Records, spread: float, word: str) -> None:
    """SLDS is 2 nats and 2 points better in the mean of three trainings: beyond a small spread, not a large one."""
    for n, seed in enumerate(("", "-seed1", "-seed2")):
        likelihood(records, f"slds{seed}", authors=158.0 + (n - 1) * spread)
        likelihood(records, f"lm{seed}", nll=160.0 - (n - 1) * spread)
        overlap(records, f"slds{seed}", "gibbs-peek", 20.0 + (n - 1) * spread + NOISE / 9)
        overlap(records, f"lm{seed}", "rerank", 18.0 + (n - 1) * spread + NOISE / 9)
    results = Results(records, FULL)
    nats = claims.compare_nats(results, "slds:authors", "lm:nll")
    part = claims.Part("overlap/2/rouge1", ("slds:gibbs-peek",), ("lm:rerank",))
    for comparison in (nats, *claims.compare_overlap(results, part)):
        assert comparison is not None
        assert comparison.gap.value == pytest.approx(2.0, abs=1e-6)
        assert (comparison.verdict, comparison.trainings) == (word, 3)


def test_the_widening_is_students_interval() -> None:
    gap = widened(Interval(1.0, 0.7, 1.4, 0.1, 9), [np.array([1.0, 2.0, 3.0]), np.array([5.0])])
    extra = 4.30 * 1.0 / math.sqrt(3)
    assert gap.low == pytest.approx(1 - math.hypot(0.3, extra))
    assert gap.high == pytest.approx(1 + math.hypot(0.4, extra))


def test_a_winner_is_chosen_on_other_stories_than_it_is_judged_on(records: Records) -> None:
    """SLDS is lucky on the even stories, SLDS-1 on the odd: each has a mean of 5, the LM has 3, and neither wins."""
    even = np.where(np.arange(STORIES) % 2 == 0, 10.0, 0.0)
    names, values = cross_fitted([("even", even), ("odd", 10.0 - even), ("steady", np.full(STORIES, 4.0))])
    assert (set(names), values.tolist()) == ({"even", "odd"}, [0.0] * STORIES)
    assert cross_fitted([("poor", np.zeros(STORIES)), ("good", np.ones(STORIES))])[0] == ["good"]
    overlap(records, "slds", "gibbs-peek", even)
    overlap(records, "slds-1", "gibbs-peek", 10.0 - even)
    overlap(records, "lm", "rerank", 3.0)
    family = "the SLDS family wins when the first sentence is given, against LM, S2S and LDS"
    assert verdict(records, family) == claims.FAILS
    assert verdict(records, family.replace("the SLDS family", "SLDS with all labels")) != claims.FAILS


@pytest.mark.parametrize(("few", "word"), [(50.0, claims.HOLDS), (95.5, claims.INCONCLUSIVE), (99.0, claims.FAILS)])
def test_control_is_decided_by_the_difference(records: Records, few: float, word: str) -> None:
    control(records, "slds", 96.5)
    for name in ("slds-1", "slds-10", "slds-25", "slds-50"):
        control(records, name, few)
    assert verdict(records, "less supervision loses control") == word


def test_most_cells_inconclusive_leave_a_claim_inconclusive() -> None:
    holds, fails, unsure = [claims.HOLDS], [claims.FAILS], [claims.INCONCLUSIVE]
    assert claims.in_part(holds + 9 * unsure + 2 * fails) == claims.INCONCLUSIVE
    assert claims.in_part(6 * holds + 6 * unsure) == claims.PARTLY
    assert claims.in_part(holds + unsure + 2 * fails) == claims.FAILS
    assert claims.in_part(2 * fails + unsure) == claims.FAILS
    assert claims.in_part([]) == NOT_RUN


@pytest.mark.parametrize(
    ("log_p", "nats", "seconds", "smollm", "word"),
    [
        (-25.0, 2.9, 1.0, -25.0, claims.HOLDS),
        (-27.0, 2.9, 1.0, -25.0, claims.INCONCLUSIVE),
        (-29.0, 2.9, 1.0, -25.0, claims.FAILS),
        (-25.0, 3.1, 1.0, -25.0, claims.FAILS),
        (-25.0, 2.9, 3.0, -25.0, claims.FAILS),
        (-25.0, 2.9, 1.0, -30.0, claims.FAILS),  # a judge outside the family must agree
    ],
)
def test_bridge_must_win_by_every_measure(
    records: Records, log_p: float, nats: float, seconds: float, smollm: float, word: str
) -> None:
    middle(records, "slds.gibbs", -27.0, 3.0, 2.0, -27.0)
    middle(records, "lm.rerank", -28.0, 3.5, 2.0, -28.0)
    middle(records, "lm.rerank-few", -29.0, 3.5, 2.0, -29.0)
    middle(records, "slds.bridge", log_p, nats, seconds, smollm)
    assert verdict(records, "bridge with SLDS beats gibbs and LM on look-ahead, story perplexity and time") == word


def test_two_judges_are_never_compared(records: Records) -> None:
    """Each score lies between the anchors of its own judge; a comparison across judges is not run."""
    for judge, weights in (("judge", "poor"), ("judge-long", "good")):
        records.write(f"train/{judge}", {"system": judge, "stage": "train", "weights": weights, "stopped": "epochs"})
    for name, weights, value in (
        ("human", "poor", 3.0), ("plain", "poor", 1.0), ("slds.bridge", "poor", 2.0),
        ("human.long", "good", 9.0), ("plain.long", "good", 5.0), ("default.bridge", "good", 6.0),
    ):  # fmt: skip
        record = {"system": name.partition(".")[0], "stage": "lookahead", "weights": weights}
        records.write(f"lookahead/{name}", record | {"stories": (value + NOISE / 9).tolist()})
    results = Results(records, FULL)
    scores = [results.lookahead_score(name) for name in ("slds.bridge", "default.bridge")]
    assert [score and score.value for score in scores] == pytest.approx([0.5, 0.25])
    across = claims.Part("look-ahead", ("slds.bridge",), ("default.bridge",))
    assert claims.decide(results, claims.Claim("", (across,))).verdict == NOT_RUN


def test_a_cell_is_the_mean_over_trainings(records: Records) -> None:
    """Perplexities 50, 60 and 90 by their nats, and ROUGE 1, 2 and 6; the deviation stands beside the mean."""
    for name, ppl, rouge in (("lm", 50.0, 1.0), ("lm-seed1", 60.0, 2.0), ("lm-seed2", 90.0, 6.0)):
        stories = {"nll": [50 * math.log(ppl)] * STORIES}
        record = {"system": name, "stage": "likelihood", "tokens": [50] * STORIES, "stories": stories, "latent": {}}
        records.write(f"likelihood/{name}", record)
        overlap(records, name, "rerank", rouge)
    results = Results(records, FULL)
    ppl_cell, rouge_cell = results.likelihood("lm", "nll"), results.overlap("lm", "2", "rerank", "rouge1")
    assert ppl_cell.value == pytest.approx((50 * 60 * 90) ** (1 / 3))
    assert ppl_cell.spread == pytest.approx(np.std([50, 60, 90], ddof=1))
    assert (rouge_cell.value, rouge_cell.spread) == pytest.approx((3.0, np.std([1, 2, 6], ddof=1)))


@pytest.mark.parametrize(("stories_by", "value"), [("Perl", 20.0), ("Python", 20.4)])
def test_stories_by_another_program_are_shifted_to_the_papers(records: Records, stories_by: str, value: float) -> None:
    scores = (20.0 + NOISE - NOISE.mean()).tolist()
    record = {"system": "lm", "stage": "overlap", "by": "Perl", "stories_by": stories_by, "rouge1": 20.4, "meteor": 7.0}
    records.write("overlap/lm.2.rerank", record | {"stories": {"rouge1": scores, "meteor": scores}})
    results = Results(records, FULL)
    assert results.overlap("lm", "2", "rerank", "rouge1").value == pytest.approx(value)
    assert results.overlap("lm", "2", "rerank", "meteor").value == pytest.approx(20.0)


def test_without_records_every_cell_of_the_paper_is_there_and_ours_is_not_run(records: Records) -> None:
    """Eight systems, four settings, four metrics, as printed."""
    results = Results(records, FULL)
    tables = {table.title: table for table in all_tables(results)}
    infilling = [table for title, table in tables.items() if title.startswith("Infilling: ")]
    for table, setting in zip(infilling, TABLE_SETTINGS, strict=True):
        first = {row.lead[0]: [figure.paper for figure in row.figures[:4]] for row in reversed(table.rows)}
        for system in (s for s in SYSTEMS if s.paper):
            assert first[system.title] == paper()["infilling"][setting][system.name]
    printed = {row.lead[0]: [figure.paper for figure in row.figures[:2]] for row in tables["Perplexity"].rows}
    assert printed == {BY_NAME[name].title: values for name, values in paper()["perplexity"].items()}
    assert {figure.value for table in tables.values() for row in table.rows for figure in row.figures} == {None}
    assert {verdict.verdict for verdict in claims.verdicts(results)} == {NOT_RUN}
    overlap(records, "slds", "gibbs-peek", 20.0)
    cell = Results(records, FULL).overlap("slds", "2", "gibbs-peek", "rouge1")
    assert (cell.theirs, cell.ours, cell.difference) == ("17.60", "20.00 [20.00, 20.00]", "+2.40")
