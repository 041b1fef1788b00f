"""The claims (claims.toml), and the rule that decides them from the figures.

A claim has parts, and a part compares systems by one measure. A comparison holds if the interval of the difference is
on the claim's side of zero, and does not hold if it is on the other side. A bound counts only beyond its slack.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from fabula.metrics.bootstrap import Interval
from fabula_paper.figures import NOT_RUN, FloatArray, Results, calibrated_bound, cross_fitted, widened
from fabula_paper.plan import BY_NAME
from fabula_paper.tables import EXACT_RIVALS, SETTING_NAMES, metrics_of

HOLDS, FAILS, INCONCLUSIVE, PARTLY = "holds", "does not hold", "inconclusive", "holds in part"
ONE_TRAINING = ", in one training"
"""Added to a verdict that rests on one training of some system: another seed may move a figure beyond its interval."""


@dataclass(frozen=True)
class Part:
    """`ours` is better than every one of `theirs` by a measure; of several `ours` the best counts."""

    measure: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    title: str
    parts: tuple[Part, ...]
    every: bool = True
    """Whether one part that does not hold refutes the claim; otherwise the claim may hold in part."""


@dataclass(frozen=True)
class Comparison:
    text: str
    gap: Interval
    """Positive values support the claim."""
    trainings: int = 1
    """Trainings of the system that has fewest."""
    slack_for: float = 0.0
    """What the rival's bound lacks: the gap must be larger before the claim holds."""
    slack_against: float = 0.0

    @property
    def verdict(self) -> str:
        if self.gap.low > max(0.0, self.slack_for):
            return HOLDS
        return FAILS if self.gap.high < min(0.0, -self.slack_against) else INCONCLUSIVE


@dataclass(frozen=True)
class Verdict:
    claim: str
    verdict: str
    evidence: tuple[str, ...]


def shown(interval: Interval, unit: str = "", digits: int = 2) -> str:
    value, low, high = (f"{x:+.{digits}f}" for x in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]{unit}"


def negated(interval: Interval) -> Interval:
    return replace(interval, value=-interval.value, low=-interval.high, high=-interval.low)


def compare_nats(results: Results, ours: str, theirs: str) -> Comparison | None:
    """Nats per story of two system:estimate; not perplexities, because S2S counts fewer tokens."""
    (a, a_estimate), (b, b_estimate) = ours.split(":"), theirs.split(":")
    title = f"{BY_NAME[a].title} - {BY_NAME[b].title}"
    measured_again = calibrated_bound(results, a, b) if a_estimate == "iw" and EXACT_RIVALS.get(a) == b else None
    if measured_again is not None:
        gap, lacks = measured_again
        text = f"{title}: {shown(gap, ' nats a story')} by a calibrated q on {gap.n} stories (slack {lacks:.2f})"
        return Comparison(text, negated(gap), slack_against=lacks)
    difference = results.nats_difference((a, a_estimate), (b, b_estimate))
    if difference is None:
        return None
    slacks = {a: results.slack(a, a_estimate), b: results.slack(b, b_estimate)}
    notes = [
        f"slack of {BY_NAME[name].title} " + ("unknown" if math.isinf(lacks) else f"{lacks:.2f}")
        for name, lacks in slacks.items()
        if lacks
    ]
    text = f"{title}: {shown(difference, ' nats a story')}" + (f" ({'; '.join(notes)})" if notes else "")
    trainings = min(len(results.trainings("likelihood", name)) for name in (a, b))
    return Comparison(text, negated(difference), trainings, slacks[b], slacks[a])


def compare_control(results: Results, ours: str, theirs: str) -> Comparison | None:
    """Macro-F1 of two system:lexicon:decoding; the interval treats them as independent."""
    sides = [side.split(":") for side in (ours, theirs)]
    figures = [results.control(name, lexicon, greedy=how == "greedy") for name, lexicon, how in sides]
    values = [(f.value, f.low, f.high) for f in figures]
    if values[0][0] is None or values[1][0] is None:
        return None
    (a, a_low, a_high), (b, b_low, b_high) = ([float(x or 0.0) for x in triple] for triple in values)
    gap = Interval(a - b, a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low), 0.0, 0)
    titles = [f"{BY_NAME[name].title} {value:.1f}" for (name, _, _), (value, _, _) in zip(sides, values, strict=True)]
    text = f"{sides[0][1].upper()}, {sides[0][2]}: {titles[0]}, {titles[1]} ({shown(gap, digits=1)})"
    return Comparison(text, gap, min(len(results.trainings("control", name)) for name, _, _ in sides))


COMPARE = {"nats": compare_nats, "control": compare_control}


def compare_overlap(results: Results, part: Part) -> list[Comparison]:
    """The best of some system:sampler minus each rival, paired by story. The best is chosen on other stories."""
    _, setting, metric = part.measure.split("/")

    def scores(sides: tuple[str, ...]) -> dict[str, FloatArray]:
        pairs = [side.split(":") for side in sides]
        arrays = {name: results.overlap_scores(name, setting, sampler, metric) for name, sampler in pairs}
        return {name: array for name, array in arrays.items() if array is not None}

    ours, theirs = scores(part.ours), scores(part.theirs)
    if not ours:
        return []
    names, best = cross_fitted([(name, array.mean(0)) for name, array in ours.items()])
    widest = max((ours[name].mean(1) for name in names), key=lambda means: float(np.std(means)))
    label = f"{SETTING_NAMES[setting]}, {metrics_of(setting)[metric]}"
    comparisons = []
    for rival, array in theirs.items():
        if array.shape[1] == len(best):
            gap = widened(results.difference(best, array.mean(0)), [widest, array.mean(1)])
            title = f"{' or '.join(BY_NAME[name].title for name in names)} - {BY_NAME[rival].title}"
            trainings = min(len(array), *(len(ours[name]) for name in names))
            comparisons.append(Comparison(f"{label}: {title} {shown(gap)}", gap, trainings))
    return comparisons


def all_hold(verdicts: Sequence[str]) -> str:
    """The verdict of a conjunction: one part that does not hold refutes it."""
    return next((word for word in (FAILS, NOT_RUN, INCONCLUSIVE) if word in verdicts), HOLDS) if verdicts else NOT_RUN


def in_part(verdicts: Sequence[str]) -> str:
    """The verdict of a claim of many cells: inconclusive if most cells are, else by the majority of the others."""
    whole = all_hold(verdicts)
    if whole in (HOLDS, NOT_RUN):
        return whole
    if 2 * verdicts.count(INCONCLUSIVE) > len(verdicts):
        return INCONCLUSIVE
    if HOLDS not in verdicts:
        return whole
    return PARTLY if verdicts.count(HOLDS) > verdicts.count(FAILS) else FAILS


def decide(results: Results, claim: Claim) -> Verdict:
    """The verdict on a claim, with the least favourable comparison of each part as evidence."""
    verdicts, evidence, trainings, systems = [], [], [], set[str]()
    for part in claim.parts:
        systems |= {side.split(":")[0].split(".")[0] for side in (*part.ours, *part.theirs)}
        if part.measure.startswith("overlap/"):
            comparisons = compare_overlap(results, part)
        else:
            pairs = [COMPARE[part.measure](results, part.ours[0], rival) for rival in part.theirs]
            comparisons = [pair for pair in pairs if pair is not None]
        verdicts.append(all_hold([comparison.verdict for comparison in comparisons]))
        if comparisons:
            worst = min(comparisons, key=lambda comparison: comparison.gap.value)
            evidence.append(f"{verdicts[-1]}: {worst.text}")
            trainings += [comparison.trainings for comparison in comparisons]
        else:
            evidence.append(f"{NOT_RUN}: {part.measure}, {part.ours[0]} against {', '.join(part.theirs)}")
    word = all_hold(verdicts) if claim.every else in_part(verdicts)
    if word in (HOLDS, FAILS, PARTLY) and min(trainings) < 2:
        word += ONE_TRAINING
    if len(verdicts) > 4:
        counted = [f"{verdicts.count(w)} {w}" for w in (HOLDS, INCONCLUSIVE, FAILS, NOT_RUN) if w in verdicts]
        evidence.insert(0, f"of {len(verdicts)}: {', '.join(counted)}")
    cut = [results.title(BY_NAME[s]) for s in sorted(systems & set(BY_NAME)) if "(cut" in results.title(BY_NAME[s])]
    return Verdict(claim.title, word, (*evidence, *(f"beware: {title}" for title in cut)))


@cache
def claims_file() -> dict[str, Any]:
    """claims.toml: the claims and the limits."""
    return tomllib.loads((resources.files("fabula_paper") / "claims.toml").read_text(encoding="utf-8"))


def read_claims() -> list[Claim]:
    """Every claim with its parts."""
    claims = []
    for entry in claims_file()["claims"]:
        parts: list[Part] = []
        for setting in entry.get("settings", ()):
            sides = tuple(entry["ours"]), tuple(entry["theirs"])
            parts += [Part(f"overlap/{setting}/{metric}", *sides) for metric in metrics_of(setting)]
        for ours, theirs, *other in entry.get("pairs", ()):
            parts.append(Part((*other, entry["measure"])[0], (ours,), (theirs,)))
        claims.append(Claim(entry["title"], tuple(parts), entry.get("every", True)))
    return claims


def verdicts(results: Results) -> list[Verdict]:
    """The verdict on every claim."""
    return [decide(results, claim) for claim in read_claims()]
