"""The critic as one more annotator, marked as a machine and counted in no figure of people's.

It prefers the story that it finds likelier to be a person's. Beside its agreement with people stands that of one person
with another, which is what it can be measured by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fabula.apps.judge.judgement import Judgement
from fabula.apps.judge.pairs import Pair
from fabula.apps.judge.statistics import NEEDED, Figure, Floats, alpha, ratio, resampled
from fabula.metrics.bootstrap import middle

Verdict = tuple[float, Sequence[float]]
"""What a critic says of a story: a value for the whole, and what each line did to it."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How a critic agrees with people."""

    model: str
    pairs: int
    agreement: Figure
    """Per cent of people's preferences, ties left out, that are the critic's."""
    between_people: Figure
    """The same of one person with another."""
    alpha_preference: Figure
    """Krippendorff's alpha with the critic as one more annotator."""
    stories: Figure
    """Pearson's correlation of its value for a story with the story's mean rating, over stories."""
    sentences: Figure
    """The same of what a line did to the story with the line's mean rating, over all lines but the first."""


def machine(
    model: str, critic: Callable[[Sequence[str]], Verdict], judgements: Sequence[Judgement], pairs: dict[str, Pair],
    repeats: int, seed: int,
) -> Machine:  # fmt: skip
    """The critic's view of every pair that somebody judged; attention checks are left out."""
    by_pair: dict[str, list[Judgement]] = {}
    for one in sorted(judgements, key=lambda one: one.pair):
        if not pairs[one.pair].is_check:
            by_pair.setdefault(one.pair, []).append(one)
    rng, votes, rows = np.random.default_rng(seed), [], []
    for id, judged in by_pair.items():
        first, second = (critic(story) for story in pairs[id].stories)
        preferred = None if first[0] == second[0] else int(first[0] < second[0])
        chosen = [one.better for one in judged]
        votes.append([(*chosen, preferred).count(value) for value in (0, 1, None)])
        rows.append(_row([first, second], preferred, chosen, judged))
    totals = np.asarray(rows, dtype=np.float64).reshape(len(rows), 4 + 2 * SUMS)
    again = resampled(totals, repeats, rng) if repeats and rows else None

    def figure(of: Callable[[Floats], Floats]) -> Figure:
        value = float(of(totals.sum(axis=0, keepdims=True))[0])
        known = not np.isnan(value) and again is not None
        return Figure(
            value=None if np.isnan(value) else value,
            interval=middle(of(again), NEEDED) if known and again is not None else None,
        )

    return Machine(
        model=model,
        pairs=len(rows),
        agreement=figure(lambda sums: 100 * ratio(sums[:, 0], sums[:, 1])),
        between_people=figure(lambda sums: 100 * ratio(sums[:, 2], sums[:, 3])),
        alpha_preference=Figure(value=alpha(np.asarray(votes, dtype=np.int64), "nominal") if votes else None),
        stories=figure(lambda sums: _pearson(sums[:, 4 : 4 + SUMS])),
        sentences=figure(lambda sums: _pearson(sums[:, 4 + SUMS :])),
    )


SUMS = 6
"""Columns of `_sums`."""


def _row(
    verdicts: Sequence[Verdict], preferred: int | None, chosen: Sequence[int | None], judged: Sequence[Judgement]
) -> list[float]:
    """A pair's totals: shared preferences, with the critic and between people, then the sums of two correlations."""
    decided = [one for one in chosen if one is not None]
    n = len(decided)
    both = sum(decided.count(story) * (decided.count(story) - 1) for story in (0, 1))
    ratings = [np.asarray([one.ratings[story] for one in judged], dtype=np.float64).mean(axis=0) for story in (0, 1)]
    stories = _sums([whole for whole, _ in verdicts], [float(given.mean()) for given in ratings])
    sentences = _sums([value for _, lines in verdicts for value in lines[1:]], np.concatenate(ratings).tolist())
    shared = decided.count(preferred) if preferred is not None else 0
    return [float(total) for total in (shared, n, both, n * (n - 1), *stories, *sentences)]


def _sums(x: Sequence[float], y: Sequence[float]) -> list[float]:
    """n, sums, sums of squares and of products: what a correlation is made of, and what resampling can add up."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return [float(len(a)), float(a.sum()), float(b.sum()), float(a @ a), float(b @ b), float(a @ b)]


def _pearson(sums: Floats) -> Floats:
    n, x, y, xx, yy, xy = sums.T
    spread = np.clip(n * xx - x**2, 0, None) * np.clip(n * yy - y**2, 0, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(spread > 1e-9 * n**4, (n * xy - x * y) / np.sqrt(spread), np.nan)
    return np.asarray(found, dtype=np.float64)
