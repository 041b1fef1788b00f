"""Bootstrap intervals, Krippendorff's alpha, and how a critic agrees with people.

Ratings of one story are not independent: they share its text. So pairs are resampled, never single answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import krippendorff
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fabula.apps.judge.judgement import Judgement
from fabula.apps.judge.pairs import Pair
from fabula.metrics.bootstrap import middle

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Level = Literal["nominal", "ordinal"]
Verdict = tuple[float, Sequence[float]]
"""A critic's value for a story, and what each sentence contributes to it."""

REPEATS = 2000
MIN_SHARE = 0.9
"""The share of resampled studies in which a figure must exist for it to have an interval."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """An estimate with its 95 % bootstrap interval, where there is one."""

    value: float | None
    interval: tuple[float, float] | None = None


def resample(pairs: int, repeats: int, rng: np.random.Generator) -> Counts:
    """How often each pair is drawn (with replacement) in each of `repeats` resampled studies."""
    if not pairs:
        return np.zeros((repeats, 0), dtype=np.int64)
    return np.asarray(rng.multinomial(pairs, np.full(pairs, 1 / pairs), size=repeats), dtype=np.int64)


def ratio_figure(totals: Floats, draws: Counts, numerator: int, denominator: int, scale: float = 1.0) -> Figure:
    """The ratio of two columns' sums over pairs; None where nothing was counted."""

    def ratio(sums: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(sums[:, numerator] / sums[:, denominator] * scale, dtype=np.float64)

    return _figure(float(ratio(totals.sum(axis=0, keepdims=True))[0]), ratio(draws @ totals))


def _figure(value: float, drawn: Floats) -> Figure:
    return Figure(value=None if np.isnan(value) else value, interval=middle(drawn, MIN_SHARE))


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


def alpha_figure(counts: Sequence[Counts], level: Level, repeats: int, rng: np.random.Generator) -> Figure:
    """Alpha over all units; `counts` has the units of each pair, which are resampled together."""
    value = alpha(np.concatenate(counts), level) if counts else None
    if value is None:
        return Figure(value=None)
    pair = np.repeat(np.arange(len(counts)), [len(units) for units in counts])
    everything = np.concatenate(counts)
    drawn = [alpha(np.repeat(everything, times[pair], axis=0), level) for times in resample(len(counts), repeats, rng)]
    return _figure(value, np.asarray(drawn, dtype=np.float64))


@dataclass(frozen=True, kw_only=True)
class CriticAgreement:
    """How a critic, which prefers the story that it finds likelier to be a person's, agrees with people."""

    model: str
    pairs: int
    agreement: Figure
    """Per cent of people's preferences, without ties, that are the critic's."""
    between_people: Figure
    """The same for one person and another."""
    alpha_preference: Figure
    """Krippendorff's alpha with the critic as one more annotator."""
    stories: Figure
    """Pearson's correlation, over stories, of the critic's value with the mean rating."""
    sentences: Figure
    """Pearson's correlation, over sentences but the first, of the contribution with the mean rating."""


def critic_agreement(
    model: str, critic: Callable[[Sequence[str]], Verdict], judged: Mapping[str, Sequence[Judgement]],
    pairs: Mapping[str, Pair], repeats: int, seed: int,
) -> CriticAgreement:  # fmt: skip
    """The critic compared with the judgements of every pair."""
    totals, votes = [], []
    stories: list[tuple[int, float, float]] = []  # (pair, value, mean rating)
    sentences: list[tuple[int, float, float]] = []
    for number, (id, answers) in enumerate(judged.items()):
        verdicts = [critic(story) for story in pairs[id].stories]
        (first, _), (second, _) = verdicts
        preferred = None if first == second else int(first < second)
        better = [one.better for one in answers]
        decided = [story for story in better if story is not None]
        same = sum(decided.count(story) * (decided.count(story) - 1) for story in (0, 1))
        totals.append([decided.count(preferred or 0) if preferred is not None else 0, len(decided)])
        totals[-1] += [same, len(decided) * (len(decided) - 1)]
        votes.append(value_counts([[2 if story is None else story] for story in (*better, preferred)], (0, 1, 2)))
        for story, (value, contributions) in enumerate(verdicts):
            ratings = np.mean([one.ratings[story] for one in answers], axis=0)
            stories.append((number, value, float(ratings.mean())))
            sentences += [(number, *both) for both in zip(contributions[1:], ratings.tolist(), strict=True)]
    draws = resample(len(totals), repeats, np.random.default_rng(seed))
    sums = np.asarray(totals, dtype=np.float64).reshape(-1, 4)
    return CriticAgreement(
        model=model,
        pairs=len(totals),
        agreement=ratio_figure(sums, draws, 0, 1, 100.0),
        between_people=ratio_figure(sums, draws, 2, 3, 100.0),
        alpha_preference=Figure(value=alpha(np.concatenate(votes), "nominal") if votes else None),
        stories=_correlation_figure(stories, draws),
        sentences=_correlation_figure(sentences, draws),
    )


def _correlation_figure(rows: Sequence[tuple[int, float, float]], draws: Counts) -> Figure:
    """Pearson's correlation over rows (pair, x, y), with an interval over resampled pairs."""
    if not rows:
        return Figure(value=None)
    pair, x, y = np.asarray(rows).T
    owners = pair.astype(np.int64)

    def pearson(weights: Counts) -> float:
        used = weights > 0
        if min(np.ptp(x[used]), np.ptp(y[used])) < 1e-9:
            return float("nan")
        (xx, xy), (_, yy) = np.cov(x, y, fweights=weights)
        return float(xy / np.sqrt(xx * yy))

    drawn = np.asarray([pearson(times[owners]) for times in draws], dtype=np.float64)
    return _figure(pearson(np.ones_like(owners)), drawn)
