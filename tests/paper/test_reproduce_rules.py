"""The rules that decide claims and cells, each on made-up records: slack, seeds, winners, readers."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabula.errors import UserError
from fabula_paper import claims
from fabula_paper.figures import (
    METRICS,
    ROUGE_L_SENTENCES,
    Results,
    cross_fitted,
)
from fabula_paper.plan import FULL, read_toml
from fabula_paper.readers import put_lines, read_lines, read_ratings
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
    """The verdict on the claim that begins so."""
    (entry,) = (entry for entry in read_toml("claims")["claims"] if entry["title"].startswith(title))
    return claims.decide(Results(records, FULL), entry).verdict


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
    bound(records, "slds", 160.0 + gap, slack)
    likelihood(records, "lm", nll=160.0)
    results = Results(records, FULL)
    assert results.slack("slds", "iw") == pytest.approx(slack)
    made = claims.compare_nats(results, "slds:iw", "lm:nll")
    assert made is not None
    assert made.verdict == word


def test_slack_is_what_a_closer_bound_gains_on_some_stories(records: Records) -> None:
    """By many more samples and what those still lack; by all tag paths exactly; unknown without either."""
    likelihood(records, "slds", iw=160.0, elbo=161.0)
    likelihood(records, "s2s", nll=150.0, with_tags=155.0)
    assert math.isinf(Results(records, FULL).slack("slds", "iw"))
    assert math.isinf(Results(records, FULL).slack("s2s", "with_tags"))
    rows = [3, 1, 8]
    closer = {"iw": 158.0, "iw_half": 158.1, "iw_quarter": 158.3}
    stories = {name: (value + NOISE[rows]).tolist() for name, value in closer.items()}
    records.write("bound/slds", {"system": "slds", "stage": "bound", "rows": rows, "stories": stories})
    exact = {"iw": (154.5 + NOISE[rows]).tolist()}
    records.write("bound/s2s", {"system": "s2s", "stage": "bound", "rows": rows, "stories": exact})
    results = Results(records, FULL)
    assert results.slack("slds", "iw") == pytest.approx(2.0 + 0.1)
    assert results.slack("s2s", "with_tags") == pytest.approx(0.5)
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
    words = claims.compare_overlap(results, "slds:gibbs-peek:2:rouge1", "lm:rerank:2:rouge1")
    for comparison in (nats, words):
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
    assert verdict(records, "The SLDS family fills in best") == claims.FAILS
    alone = claims.compare_overlap(Results(records, FULL), "slds:gibbs-peek:2:rouge1", "lm:rerank:2:rouge1")
    assert alone is not None
    assert alone.verdict != claims.FAILS


def test_a_training_that_patience_did_not_end_is_marked(records: Records) -> None:
    for name, stopped in (("slds", "patience"), ("lds", "time"), ("lm", "patience")):
        records.write(f"train/{name}", {"system": name, "stage": "train", "stopped": stopped})
        likelihood(records, name, **({"nll": 160.0} if name == "lm" else {"authors": 158.0}))
    results = Results(records, FULL)
    made = [claims.compare_nats(results, "slds:authors", rival) for rival in ("lds:authors", "lm:nll")]
    assert [comparison and "†" in comparison.text for comparison in made] == [True, False]


def test_ratings_come_back_as_records(records: Records, tmp_path: Path) -> None:
    """Two readers of four pairs, SLDS on either side: by hand, and a bad line is one line of an error."""
    sheets = tmp_path / "sheets"
    key = {f"p{n}": {"rival": "lm", "story": str(n), "slds": "ab"[n % 2]} for n in range(4)}
    (sheets / "key").mkdir(parents=True)
    (sheets / "key" / "key.json").write_text(json.dumps(key))
    put_lines(sheets / "pairs.jsonl", [{"id": name, "a": ["A."] * 5, "b": ["B."] * 5} for name in key])
    for reader, choices in (("one", "abab"), ("two", "abbt")):
        lines = [
            {"id": f"p{n}", "a": [3 - n % 2 * 2] * 4, "b": [1 + n % 2 * 2] * 4, "better": {"t": "tie"}.get(c, c)}
            for n, c in enumerate(choices)
        ]
        put_lines(sheets / "ratings" / f"{reader}.jsonl", lines)
    assert read_ratings(records, sheets) == ["human/lm"]
    record = records.read("human/lm") or {}
    assert record["coherence"] == {"slds": 3.0, "rival": 1.0}
    assert record["best"] == {"slds": 75.0, "rival": 12.5}
    assert 0 < record["agreement"] < 1
    assert [line["story"] for line in read_lines(sheets / "errors.jsonl")] == [["A."] * 5, ["B."] * 5] * 2
    assert verdict(records, "Readers prefer") == claims.INCONCLUSIVE  # S2S was not read
    put_lines(sheets / "ratings" / "three.jsonl", [{"id": "p0", "a": [4] * 4, "b": [1] * 4, "better": "a"}])
    with pytest.raises(UserError, match="no rating of a pair"):
        read_ratings(records, sheets)
