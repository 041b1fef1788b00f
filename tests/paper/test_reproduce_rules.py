"""The rules that decide claims and cells, each on made-up records: slack, seeds, winners, judges."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabula_paper import claims
from fabula_paper.figures import (
    METRICS,
    ROUGE_L_SENTENCES,
    Results,
    cross_fitted,
)
from fabula_paper.plan import FULL
from fabula_paper.records import Records

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


def test_a_bound_without_its_growth_has_a_cautious_slack(records: Records) -> None:
    """Three times the gain from one sample to all; unknown without any growth."""
    likelihood(records, "slds", iw=160.0, elbo=161.0)
    likelihood(records, "s2s", nll=150.0, with_tags=155.0)
    results = Results(records, FULL)
    assert results.slack("slds", "iw") == pytest.approx(3.0)
    assert math.isinf(results.slack("s2s", "with_tags"))
    assert results.slack("s2s", "nll") == 0.0


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


def test_a_score_lies_between_the_anchors_of_its_own_judge(records: Records) -> None:
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
