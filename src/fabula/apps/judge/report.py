"""The results of a study: the paper's table with intervals, agreement, strengths, times, annotators and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fabula.apps.judge import statistics
from fabula.apps.judge.judgement import SCALE, ErrorCounts, Judgement, count_errors
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.statistics import REPEATS, CriticAgreement, Figure, Floats, Strength, Verdict, ratio_figure
from fabula.apps.judge.store import Store
from fabula.errors import UserError

PASS_SHARE = 0.75
"""Of an annotator's checks: whoever guesses left or right passes 3 of 4 with probability 0.31, 6 of 8 with 0.14."""


PAPER = {
    ("LM", "SLDS"): (
        {"mean": 1.68, "sd": 1.01, "best": 35.0, "ties": 13.7},
        {"mean": 1.89, "sd": 0.96, "best": 51.3, "ties": 13.7},
    ),
    ("S2S", "SLDS"): (
        {"mean": 1.67, "sd": 1.00, "best": 35.1, "ties": 13.0},
        {"mean": 1.87, "sd": 0.97, "best": 51.9, "ties": 13.0},
    ),
}
"""Table 3: mean and standard deviation of ratings, best story and ties in per cent."""
PAPER_ERRORS = {"ending": (16, 20), "off_topic": (14, 20), "ungrammatical": (9, 60)}
"""Appendix B: cases, and out of how many."""


@dataclass(frozen=True)
class SystemRow:
    """A system's mean rating of sentences but the first, and the per cent of judgements that prefer its story."""

    system: str
    coherence: Figure
    sd: float | None
    ratings: int
    best: Figure
    paper: dict[str, float] | None


@dataclass(frozen=True)
class Comparison:
    """Two systems' stories side by side; `ties` in per cent of judgements."""

    systems: tuple[str, str]
    pairs: int
    judgements: int
    rows: tuple[SystemRow, SystemRow]
    ties: Figure


@dataclass(frozen=True)
class Group:
    """The figures over some of the annotators.

    Krippendorff's alpha is ordinal over sentences for ratings; for preferences it is nominal over pairs, and a tie is
    a third value.
    """

    name: str
    annotators: int
    judgements: int
    comparisons: list[Comparison]
    alpha_ratings: Figure
    alpha_preference: Figure
    strengths: list[Strength]


@dataclass(frozen=True)
class Annotator:
    """One person's checks (`failed`: too few were passed) and median time for a pair in seconds."""

    code: str
    judgements: int
    checks: int
    passed: int
    failed: bool
    seconds: float | None


@dataclass(frozen=True)
class Report:
    """`wanted` annotators judge each pair; `finished` pairs have all of them. `machine` is the critic.

    `times` has the quartiles over judgements of the seconds for a pair.
    """

    pairs: int
    wanted: int
    finished: int
    pass_share: float
    repeats: int
    seed: int
    groups: list[Group]
    annotators: list[Annotator]
    times: dict[str, float | None]
    errors: list[ErrorCounts]
    paper_errors: dict[str, tuple[int, int]]
    machine: CriticAgreement | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def report(
    store: Store, *, pass_share: float = PASS_SHARE, repeats: int = REPEATS, seed: int = 0,
    critic: tuple[str, Callable[[Sequence[str]], Verdict]] | None = None,
) -> Report:  # fmt: skip
    """The report of a study as it stands; `critic` is a model's name and its verdict on a story."""
    if not 0 <= pass_share <= 1:
        raise UserError(f"--pass-share is between 0 and 1, not {pass_share}", field="pass_share")
    if not 0 <= repeats <= 100_000:
        raise UserError(f"--bootstrap is 0 to 100,000, not {repeats:,}", field="bootstrap")
    if seed < 0:
        raise UserError(f"--seed is 0 or more, not {seed}", field="seed")
    wanted = store.settings().annotators
    pairs = {item.pair.id: item.pair for item in store.items()}
    everything, _ = store.judgements()
    judgements = [one for one in everything if not pairs[one.pair].is_check]
    annotators = _annotators(everything, pairs, pass_share)
    failed = {one.code for one in annotators if one.failed}
    groups = [_group("everyone", judgements, pairs, repeats, seed)]
    if failed:
        passed = [one for one in judgements if one.annotator not in failed]
        groups.append(_group("without those who failed", passed, pairs, repeats, seed))
    finished = sum(people >= wanted for people in Counter(one.pair for one in judgements).values())
    errors = count_errors(list(pairs.values()), judgements, store.error_sheets())
    machine = critic and statistics.critic_agreement(*critic, _by_pair(judgements), pairs, repeats, seed)
    return Report(
        pairs=sum(not pair.is_check for pair in pairs.values()), wanted=wanted, finished=finished, groups=groups,
        annotators=annotators, times=_quartiles([one.seconds for one in judgements]), errors=errors,
        paper_errors=PAPER_ERRORS, machine=machine, pass_share=pass_share, repeats=repeats, seed=seed,
    )  # fmt: skip


def _by_pair(judgements: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    by_pair: dict[str, list[Judgement]] = {}
    for one in sorted(judgements, key=lambda one: one.pair):
        by_pair.setdefault(one.pair, []).append(one)
    return by_pair


def _annotators(judgements: Sequence[Judgement], pairs: dict[str, Pair], pass_share: float) -> list[Annotator]:
    """A check is passed by preferring its better story; a tie does not pass it."""
    annotators = []
    for code in sorted({one.annotator for one in judgements}):
        answers = [one for one in judgements if one.annotator == code]
        checks = [one for one in answers if pairs[one.pair].is_check]
        passed = sum(one.better == pairs[one.pair].better for one in checks)
        failed = bool(checks) and passed < pass_share * len(checks)
        seconds = _quartiles([one.seconds for one in answers if not pairs[one.pair].is_check])["median"]
        annotators.append(Annotator(code, len(answers) - len(checks), len(checks), passed, failed, seconds))
    return annotators


def _quartiles(seconds: Sequence[float]) -> dict[str, float | None]:
    values = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist() if seconds else [None] * 3
    return dict(zip(("first_quartile", "median", "third_quartile"), values, strict=True))


def _group(name: str, judgements: Sequence[Judgement], pairs: dict[str, Pair], repeats: int, seed: int) -> Group:
    rng = np.random.default_rng(seed)
    by_pair = _by_pair(judgements)
    compared: dict[tuple[str, str], list[list[Judgement]]] = {}
    for id, answers in by_pair.items():
        first, second = sorted(pairs[id].systems or ())
        swapped = pairs[id].systems != (first, second)
        compared.setdefault((first, second), []).append([_swap(one) if swapped else one for one in answers])
    totals = {systems: _totals(of_pairs) for systems, of_pairs in compared.items()}
    wins = {systems: sums[:, [BEST, 3 + BEST]] + sums[:, [TIES]] / 2 for systems, sums in totals.items()}
    units = [[[*one.ratings[0], *one.ratings[1]] for one in answers] for answers in by_pair.values()]
    ratings = [statistics.value_counts(unit, SCALE) for unit in units]
    preferences = [
        statistics.value_counts([[2 if one.better is None else one.better] for one in answers], range(3))
        for answers in by_pair.values()
    ]
    people = len({one.annotator for one in judgements})
    comparisons = [_comparison(one, compared[one], totals[one], repeats, rng) for one in sorted(compared)]
    alpha_ratings = statistics.alpha_figure(ratings, "ordinal", repeats, rng)
    alpha_preference = statistics.alpha_figure(preferences, "nominal", repeats, rng)
    strengths = statistics.strengths_of_systems(wins, repeats, rng)
    return Group(name, people, len(judgements), comparisons, alpha_ratings, alpha_preference, strengths)


def _swap(one: Judgement) -> Judgement:
    """The judgement with the pair's two stories exchanged."""
    return replace(one, ratings=one.ratings[::-1], better=None if one.better is None else 1 - one.better)


SUM, NUMBER, BEST = range(3)
"""Columns of a system's totals for a pair; the other system's follow, then judgements and ties."""
JUDGEMENTS, TIES = 6, 7


def _totals(of_pairs: Sequence[Sequence[Judgement]]) -> Floats:
    rows = []
    for answers in of_pairs:
        row: list[int] = []
        for story in (0, 1):
            ratings = [rating for one in answers for rating in one.ratings[story]]
            row += [sum(ratings), len(ratings), sum(one.better == story for one in answers)]
        rows.append([*row, len(answers), sum(one.better is None for one in answers)])
    return np.asarray(rows, dtype=np.float64)


def _comparison(
    systems: tuple[str, str],
    of_pairs: Sequence[Sequence[Judgement]],
    totals: Floats,
    repeats: int,
    rng: np.random.Generator,
) -> Comparison:
    draws = statistics.resample(len(totals), repeats, rng)
    paper = PAPER.get((systems[0].upper(), systems[1].upper()), (None, None))

    def row(story: int) -> SystemRow:
        ratings = [rating for answers in of_pairs for one in answers for rating in one.ratings[story]]
        coherence = ratio_figure(totals, draws, 3 * story + SUM, 3 * story + NUMBER)
        sd = float(np.std(ratings, ddof=1)) if len(ratings) > 1 else None
        best = ratio_figure(totals, draws, 3 * story + BEST, JUDGEMENTS, 100.0)
        return SystemRow(systems[story], coherence, sd, len(ratings), best, paper[story])

    ties = ratio_figure(totals, draws, TIES, JUDGEMENTS, 100.0)
    return Comparison(systems, len(of_pairs), sum(map(len, of_pairs)), (row(0), row(1)), ties)
