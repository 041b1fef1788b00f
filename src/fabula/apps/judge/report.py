"""The results of a study: the paper's table with intervals, agreement (Krippendorff's alpha), times and annotators.

Ratings of one story are not independent: they share its text. So pairs are resampled, never single answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Literal

import krippendorff
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabula.apps.judge.store import Judgement, Store
from fabula.apps.judge.study import SCALE
from fabula.errors import UserError
from fabula.metrics.bootstrap import middle, ratio

Counts = NDArray[np.int64]
Level = Literal["nominal", "ordinal"]

REPEATS = 2000
MIN_SHARE = 0.9
"""The share of resampled studies in which alpha must exist for it to have an interval."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """An estimate with its 95 % bootstrap interval, where there is one."""

    value: float | None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class SystemRow:
    """A system's mean rating of sentences but the first, and the per cent of judgements that prefer its story."""

    system: str
    coherence: Figure
    sd: float | None
    ratings: int
    best: Figure


@dataclass(frozen=True)
class Comparison:
    """Two systems' stories side by side; `ties` in per cent of judgements."""

    systems: tuple[str, str]
    pairs: int
    judgements: int
    rows: tuple[SystemRow, SystemRow]
    ties: Figure


@dataclass(frozen=True)
class Annotator:
    """One person, and their median time for a pair in seconds."""

    code: str
    judgements: int
    seconds: float


@dataclass(frozen=True)
class Report:
    """`wanted` annotators judge each pair; `finished` pairs have all of them.

    Krippendorff's alpha is ordinal over sentences for ratings; for preferences it is nominal over pairs, and a tie is
    a third value. `seconds` is the median over judgements of the time for a pair.
    """

    pairs: int
    wanted: int
    finished: int
    repeats: int
    seed: int
    judgements: int
    comparisons: list[Comparison]
    alpha_ratings: Figure
    alpha_preference: Figure
    annotators: list[Annotator]
    seconds: float | None


def report(store: Store, *, repeats: int = REPEATS, seed: int = 0) -> Report:
    """The report of a study as it stands."""
    if not 0 <= repeats <= 100_000:
        raise UserError(f"--bootstrap is 0 to 100,000, not {repeats:,}", field="bootstrap")
    if seed < 0:
        raise UserError(f"--seed is 0 or more, not {seed}", field="seed")
    wanted, pairs = store.study()[1].annotators, {item.pair.id: item.pair for item in store.items()}
    judgements = store.judgements()
    by_pair = _grouped(judgements, "pair")
    compared: dict[tuple[str, str], list[list[Judgement]]] = {}
    ratings, preferences = list[Counts](), list[Counts]()
    for id, answers in by_pair.items():
        first, second = sorted(pairs[id].systems)
        swapped = pairs[id].systems != (first, second)
        compared.setdefault((first, second), []).append([_swap(one) if swapped else one for one in answers])
        ratings.append(value_counts([[*one.ratings[0], *one.ratings[1]] for one in answers], SCALE))
        preferences.append(value_counts([[2 if one.better is None else one.better] for one in answers], range(3)))
    return Report(
        pairs=len(pairs), wanted=wanted, finished=sum(len(answers) >= wanted for answers in by_pair.values()),
        repeats=repeats, seed=seed, judgements=len(judgements),
        comparisons=[_comparison(systems, compared[systems], repeats, seed) for systems in sorted(compared)],
        alpha_ratings=alpha_figure(ratings, "ordinal", repeats, seed),
        alpha_preference=alpha_figure(preferences, "nominal", repeats, seed),
        annotators=[
            Annotator(code, len(given), _median(given) or 0.0)
            for code, given in _grouped(judgements, "annotator").items()
        ],
        seconds=_median(judgements),
    )  # fmt: skip


def _grouped(judgements: Sequence[Judgement], by: str) -> dict[str, list[Judgement]]:
    """Judgements by `pair` or `annotator`, in the order of their names."""
    return {name: [*group] for name, group in groupby(sorted(judgements, key=attrgetter(by)), attrgetter(by))}


def _median(judgements: Sequence[Judgement]) -> float | None:
    return float(np.median([one.seconds for one in judgements])) if judgements else None


def _swap(one: Judgement) -> Judgement:
    """The judgement with the pair's two stories exchanged."""
    return replace(one, ratings=one.ratings[::-1], better=None if one.better is None else 1 - one.better)


def _comparison(
    systems: tuple[str, str], of_pairs: Sequence[Sequence[Judgement]], repeats: int, seed: int
) -> Comparison:
    judgements = [len(answers) for answers in of_pairs]

    def preferred(story: int | None) -> Figure:
        chosen = [sum(one.better == story for one in answers) for answers in of_pairs]
        return ratio_figure(chosen, judgements, repeats, seed, 100.0)

    def row(story: int) -> SystemRow:
        ratings = [[rating for one in answers for rating in one.ratings[story]] for answers in of_pairs]
        coherence = ratio_figure(list(map(sum, ratings)), list(map(len, ratings)), repeats, seed)
        every = np.concatenate(ratings)
        sd = float(np.std(every, ddof=1)) if len(every) > 1 else None
        return SystemRow(systems[story], coherence, sd, len(every), preferred(story))

    return Comparison(systems, len(of_pairs), sum(judgements), (row(0), row(1)), preferred(None))


def table(report: Report) -> str:
    """The report for a person to read."""
    lines = [
        f"{report.pairs} pairs, {report.wanted} annotators each; {report.finished} have them all",
        f"[] are 95 % bootstrap intervals over pairs ({report.repeats:,} resampled studies, seed {report.seed})"
        if report.repeats
        else "no bootstrap intervals were asked for",
    ]
    return "\n".join([*lines, "", *_figures(report)])


def _figures(report: Report) -> Iterator[str]:
    if not report.judgements:
        yield "No judgements yet."
        return
    yield f"{len(report.annotators)} annotators, {report.judgements} judgements of pairs"
    width = max(8, *(len(row.system) for one in report.comparisons for row in one.rows)) + 2
    yield f"  {'system':<{width}}{'sent. coh. (0-3)':<32}{'best story':<26}ties"
    for one in report.comparisons:
        yield f"  {'-' * (width + 74)}"
        for row in one.rows:
            coherence, best = _number(row.coherence, 2, sd=row.sd), _number(row.best, 1, " %")
            yield f"  {row.system:<{width}}{coherence:<32}{best:<26}{_number(one.ties, 1, ' %')}"
        yield f"  {one.pairs} pairs, {one.judgements} judgements"
    yield ""
    yield f"  agreement (Krippendorff's alpha): ratings, ordinal {_number(report.alpha_ratings, 3)};"
    yield f"    preference, nominal {_number(report.alpha_preference, 3)}"
    yield f"  time for a pair: median {report.seconds:.0f} s"
    for person in report.annotators:
        yield f"    {person.code}: {person.judgements} pairs, median {person.seconds:.0f} s"


def _number(figure: Figure, digits: int, unit: str = "", sd: float | None = None) -> str:
    if figure.value is None:
        return "none"
    deviation = f" ± {sd:.{digits}f}" if sd is not None else ""
    interval = ""
    if figure.interval is not None:
        interval = f" [{figure.interval[0]:.{digits}f}, {figure.interval[1]:.{digits}f}]"
    return f"{figure.value:.{digits}f}{deviation}{unit}{interval}"


def ratio_figure(numerators: ArrayLike, denominators: ArrayLike, repeats: int, seed: int, scale: float = 1.0) -> Figure:
    """The ratio of two sums over pairs; every pair counts something."""
    figure = ratio(scale * np.asarray(numerators), denominators, draws=repeats, seed=seed)
    return Figure(value=figure.value, interval=(figure.low, figure.high) if repeats else None)


def value_counts(answers: ArrayLike, values: Sequence[int]) -> Counts:
    """For each unit (a column of `answers`) how many annotators (rows) chose each value."""
    return np.asarray((np.asarray(answers)[:, :, None] == np.asarray(values)).sum(axis=0), dtype=np.int64)


def alpha(counts: Counts, level: Level) -> float | None:
    """Krippendorff's alpha of `value_counts`: 1 is full agreement, 0 that of random labels.

    None where it is not defined: no unit has two annotators, or those who share units chose one value only.
    """
    shared = counts[counts.sum(axis=1) > 1]
    if np.count_nonzero(shared.sum(axis=0)) < 2:
        return None
    return float(krippendorff.alpha(value_counts=shared, level_of_measurement=level))


def alpha_figure(counts: Sequence[Counts], level: Level, repeats: int, seed: int) -> Figure:
    """Alpha over all units; `counts` has the units of each pair, which are resampled together."""
    value = alpha(np.concatenate(counts), level) if counts else None
    if value is None:
        return Figure(value=None)
    rows = np.random.default_rng(seed).integers(len(counts), size=(repeats, len(counts)))
    drawn = [alpha(np.concatenate([counts[pair] for pair in row]), level) for row in rows]
    return Figure(value=value, interval=middle(np.asarray(drawn, dtype=np.float64), MIN_SHARE))
