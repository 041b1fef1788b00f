"""What the judgements of a study say: the paper's table with intervals, agreement, strengths, time, people, errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from fabula.apps.judge.judgement import HIGHEST, LOWEST, Judgement
from fabula.apps.judge.lowest import Errors, count_errors
from fabula.apps.judge.machine import Machine, Verdict, machine
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.statistics import (
    NEEDED,
    REPEATS,
    Figure,
    Floats,
    Level,
    alpha,
    alpha_interval,
    deviation,
    ratio,
    resampled,
    strength_intervals,
    strengths,
)
from fabula.apps.judge.store import Store
from fabula.errors import UserError
from fabula.metrics.bootstrap import middle
from fabula_paper.paper import paper


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A system's row in the paper's table: mean and deviation of ratings, best story and ties in per cent."""

    mean: float
    sd: float
    best: float
    ties: float


def _paper_row(name: str, ties: float) -> PaperRow:
    mean, sd, best = paper()["human"][name]
    return PaperRow(mean=mean, sd=sd, best=best, ties=ties)


PAPER = {
    (rival.upper(), "SLDS"): (_paper_row(rival, ties), _paper_row(f"slds-vs-{rival}", ties))
    for rival, ties in zip(("lm", "s2s"), paper()["human"]["ties"], strict=True)
}
PAPER_ERRORS = dict(zip(("ending", "off_topic", "ungrammatical"), map(tuple, paper()["errors"].values()), strict=True))
"""Appendix B: so many of so many."""


@dataclass(frozen=True, kw_only=True)
class SystemRow:
    """One line of the paper's table."""

    system: str
    coherence: Figure
    """Mean rating of every sentence but the first."""
    sd: float | None
    """Of single ratings."""
    ratings: int
    best: Figure
    """Per cent of judgements that prefer this system's story."""
    paper: PaperRow | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two systems' stories side by side."""

    systems: tuple[str, str]
    pairs: int
    judgements: int
    rows: tuple[SystemRow, SystemRow]
    ties: Figure
    """Per cent."""


@dataclass(frozen=True, kw_only=True)
class Strength:
    """A system's Bradley–Terry strength among all systems of the study."""

    system: str
    strength: Figure


@dataclass(frozen=True, kw_only=True)
class Group:
    """The figures over some of the annotators."""

    name: Literal["everyone", "without those who failed"]
    annotators: int
    judgements: int
    comparisons: list[Comparison]
    alpha_ratings: Figure
    """Krippendorff's, ordinal; units are sentences."""
    alpha_preference: Figure
    """Krippendorff's, nominal with the tie as a third value; units are pairs."""
    strengths: list[Strength]


@dataclass(frozen=True, kw_only=True)
class Annotator:
    """How one person did."""

    code: str
    judgements: int
    checks: int
    passed: int
    failed: bool
    """Whether too few of the checks were passed."""
    seconds: float | None
    """Median time for a pair."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds for a pair: quartiles over judgements."""

    first_quartile: float | None
    median: float | None
    third_quartile: float | None


@dataclass(frozen=True, kw_only=True)
class Report:
    pairs: int
    wanted: int
    """Annotators for each pair."""
    finished: int
    """Pairs that have them all."""
    pass_share: float
    repeats: int
    seed: int
    groups: list[Group]
    annotators: list[Annotator]
    times: Times
    errors: list[Errors]
    paper_errors: dict[str, tuple[int, int]]
    machine: Machine | None = None
    """The critic beside people, where it was asked."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


PASS_SHARE = 0.75
"""Of an annotator's checks: whoever guesses left or right passes 3 of 4 with probability 0.31, 6 of 8 with 0.14."""


def report(
    store: Store, *, pass_share: float = PASS_SHARE, repeats: int = REPEATS, seed: int = 0,
    critic: tuple[str, Callable[[Sequence[str]], Verdict]] | None = None,
) -> Report:  # fmt: skip
    """The report of a study as it stands; `critic`: a model's name and its verdict on a story."""
    if not 0 <= pass_share <= 1:
        raise UserError(f"--pass-share is between 0 and 1, not {pass_share}", field="pass_share")
    if not 0 <= repeats <= 100_000:
        raise UserError(f"--bootstrap is 0 to 100,000, not {repeats:,}", field="bootstrap")
    if seed < 0:
        raise UserError(f"--seed is 0 or more, not {seed}", field="seed")
    settings, items = store.settings(), store.items()
    pairs = {item.pair.id: item.pair for item in items}
    everything, _ = store.judgements()
    proper = [one for one in everything if not pairs[one.pair].is_check]
    annotators = _annotators(everything, pairs, pass_share)
    failed = {one.code for one in annotators if one.failed}
    groups = [_group("everyone", proper, pairs, repeats, seed)]
    if failed:
        kept = [one for one in proper if one.annotator not in failed]
        groups.append(_group("without those who failed", kept, pairs, repeats, seed))
    people = Counter(one.pair for one in proper)
    return Report(
        pairs=sum(not pair.is_check for pair in pairs.values()),
        wanted=settings.annotators,
        finished=sum(count >= settings.annotators for count in people.values()),
        pass_share=pass_share,
        repeats=repeats,
        seed=seed,
        groups=groups,
        annotators=annotators,
        times=_times([one.seconds for one in proper]),
        errors=count_errors(list(pairs.values()), proper, store.error_sheets()),
        paper_errors=PAPER_ERRORS,
        machine=None if critic is None else machine(*critic, proper, pairs, repeats, seed),
    )


# --- people ----------------------------------------------------------------------------------------------------------


def _annotators(judgements: Sequence[Judgement], pairs: dict[str, Pair], pass_share: float) -> list[Annotator]:
    """A check is passed by preferring its better story; a tie does not pass it."""
    found = []
    for code in sorted({one.annotator for one in judgements}):
        mine = [one for one in judgements if one.annotator == code]
        checks = [one for one in mine if pairs[one.pair].is_check]
        passed = sum(one.better == pairs[one.pair].better for one in checks)
        found.append(
            Annotator(
                code=code,
                judgements=len(mine) - len(checks),
                checks=len(checks),
                passed=passed,
                failed=bool(checks) and passed < pass_share * len(checks),
                seconds=_times([one.seconds for one in mine if not pairs[one.pair].is_check]).median,
            )
        )
    return found


def _times(seconds: Sequence[float]) -> Times:
    if not seconds:
        return Times(first_quartile=None, median=None, third_quartile=None)
    low, middle, high = (float(value) for value in np.quantile(np.asarray(seconds), [0.25, 0.5, 0.75]))
    return Times(first_quartile=low, median=middle, third_quartile=high)


# --- figures ---------------------------------------------------------------------------------------------------------

SUM, SQUARES, NUMBER, BEST = range(4)
"""Columns of a system's totals for a pair; the other system's follow, then judgements and ties."""
JUDGEMENTS, TIES = 8, 9


def _group(
    name: Literal["everyone", "without those who failed"],
    judgements: Sequence[Judgement],
    pairs: dict[str, Pair],
    repeats: int,
    seed: int,
) -> Group:
    rng = np.random.default_rng(seed)
    by_pair: dict[str, list[Judgement]] = {}
    for one in sorted(judgements, key=lambda one: one.pair):
        by_pair.setdefault(one.pair, []).append(one)
    totals = _totals(by_pair, pairs)
    ratings, preferences = _units(by_pair, pairs)

    def agreement(units: list[list[list[int]]], level: Level) -> Figure:
        counts = np.asarray([unit for of_pair in units for unit in of_pair], dtype=np.int64)
        owners = np.asarray([number for number, of_pair in enumerate(units) for _ in of_pair], dtype=np.int64)
        value = alpha(counts, level) if len(counts) else None
        known = value is not None and repeats > 0
        return Figure(value=value, interval=alpha_interval(counts, owners, level, repeats, rng) if known else None)

    return Group(
        name=name,
        annotators=len({one.annotator for one in judgements}),
        judgements=len(judgements),
        comparisons=[_comparison(systems, rows, repeats, rng) for systems, rows in sorted(totals.items())],
        alpha_ratings=agreement(ratings, "ordinal"),
        alpha_preference=agreement(preferences, "nominal"),
        strengths=_strengths(totals, repeats, rng),
    )


def _totals(by_pair: dict[str, list[Judgement]], pairs: dict[str, Pair]) -> dict[tuple[str, str], Floats]:
    """For each comparison a row of totals for each pair, systems in the order of their names."""
    rows: dict[tuple[str, str], list[list[float]]] = {}
    for id, judged in by_pair.items():
        systems = pairs[id].systems
        assert systems is not None
        order = sorted((0, 1), key=lambda story: systems[story])
        row: list[float] = []
        for story in order:
            given = [rating for one in judged for rating in one.ratings[story]]
            best = sum(one.better == story for one in judged)
            row += [sum(given), sum(rating**2 for rating in given), len(given), best]
        row += [len(judged), sum(one.better is None for one in judged)]
        rows.setdefault((systems[order[0]], systems[order[1]]), []).append(row)
    return {systems: np.asarray(of, dtype=np.float64) for systems, of in rows.items()}


def _units(
    by_pair: dict[str, list[Judgement]], pairs: dict[str, Pair]
) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
    """For each pair its units of agreement with the counts of values: its sentences by rating, itself by preference."""
    ratings: list[list[list[int]]] = []
    preferences: list[list[list[int]]] = []
    for judged in by_pair.values():
        sentences = [
            [one.ratings[story][place] for one in judged]
            for story in (0, 1)
            for place in range(len(judged[0].ratings[story]))
        ]
        scale = range(LOWEST, HIGHEST + 1)
        ratings.append([[given.count(value) for value in scale] for given in sentences])
        chosen = [one.better for one in judged]
        preferences.append([[chosen.count(value) for value in (0, 1, None)]])
    return ratings, preferences


def _comparison(systems: tuple[str, str], rows: Floats, repeats: int, rng: np.random.Generator) -> Comparison:
    total = rows.sum(axis=0)
    again = resampled(rows, repeats, rng)
    paper = PAPER.get((systems[0].upper(), systems[1].upper()))

    def figure(top: int, bottom: int, scale: float = 1.0) -> Figure:
        value = float(ratio(total[[top]], total[[bottom]])[0]) * scale
        return Figure(
            value=None if np.isnan(value) else value,
            interval=middle(ratio(again[:, top], again[:, bottom]) * scale, NEEDED) if repeats else None,
        )

    def row(place: int) -> SystemRow:
        at = 4 * place
        sd = deviation(total[at + SUM], total[at + SQUARES], total[at + NUMBER])
        return SystemRow(
            system=systems[place],
            coherence=figure(at + SUM, at + NUMBER),
            sd=None if np.isnan(sd) else sd,
            ratings=int(total[at + NUMBER]),
            best=figure(at + BEST, JUDGEMENTS, 100.0),
            paper=None if paper is None else paper[place],
        )

    return Comparison(
        systems=systems,
        pairs=len(rows),
        judgements=int(total[JUDGEMENTS]),
        rows=(row(0), row(1)),
        ties=figure(TIES, JUDGEMENTS, 100.0),
    )


def _strengths(totals: dict[tuple[str, str], Floats], repeats: int, rng: np.random.Generator) -> list[Strength]:
    """Over every comparison of the study at once; pairs are resampled within their comparison."""
    names = sorted({name for systems in totals for name in systems})
    place = {name: number for number, name in enumerate(names)}

    def matrix(sums: dict[tuple[str, str], Floats]) -> Floats:
        wins = np.zeros((len(names), len(names)))
        for (one, other), total in sums.items():
            wins[place[one], place[other]] += total[BEST] + total[TIES] / 2
            wins[place[other], place[one]] += total[4 + BEST] + total[TIES] / 2
        return wins

    found = strengths(matrix({systems: rows.sum(axis=0) for systems, rows in totals.items()})) if names else None
    if found is None:
        return [Strength(system=name, strength=Figure(value=None)) for name in names]
    again = {systems: resampled(rows, repeats, rng) for systems, rows in totals.items()}
    turn = iter(range(repeats))

    def drawn() -> Floats:
        number = next(turn)
        return matrix({systems: rows[number] for systems, rows in again.items()})

    intervals = strength_intervals(drawn, repeats, len(names)) if repeats else [None] * len(names)
    return [
        Strength(system=name, strength=Figure(value=float(found[place[name]]), interval=intervals[place[name]]))
        for name in names
    ]
