"""The claims (claims.toml), the rule that decides them from the figures, and the table that sums them up.

A claim is a list of comparisons of two systems. A comparison holds if the interval of the difference is on the claim's
side of zero, and does not hold if it is on the other side. A bound counts only beyond its slack. A claim holds if all
its comparisons do, and does not hold if one of them does not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fabula.metrics.bootstrap import Interval, mean
from fabula_paper.figures import NOT_RUN, Figure, Results, cross_fitted, widened
from fabula_paper.plan import BY_NAME, TABLE_SETTINGS, protocol, read_toml
from fabula_paper.tables import SETTING_NAMES, metrics_of

HOLDS, FAILS, INCONCLUSIVE = "holds", "does not hold", "inconclusive"


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
    paper: str
    verdict: str
    marks: str
    """* where some system was trained once, † where patience did not end a training."""
    evidence: tuple[str, ...]
    reason: str
    """The least favourable comparison, or what is missing."""


def shown(interval: Interval, unit: str = "", digits: int = 2) -> str:
    value, low, high = (f"{x:+.{digits}f}" for x in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]{unit}"


def titles(results: Results, *names: str) -> list[str]:
    return [results.title(BY_NAME[name]) for name in names]


def compare_nats(results: Results, ours: str, theirs: str) -> Comparison | None:
    """Nats per story of two system:estimate; not perplexities, because S2S counts fewer tokens."""
    (a, a_estimate), (b, b_estimate) = ours.split(":"), theirs.split(":")
    difference = results.nats_difference((a, a_estimate), (b, b_estimate))
    if difference is None:
        return None
    slacks = {a: results.slack(a, a_estimate), b: results.slack(b, b_estimate)}
    notes = [
        f"slack of {BY_NAME[name].title} " + ("unknown" if math.isinf(lacks) else f"{lacks:.2f}")
        for name, lacks in slacks.items()
        if lacks
    ]
    how = ", authors' estimate" if a_estimate == "authors" else ""
    text = f"{' - '.join(titles(results, a, b))}: {shown(difference, ' nats a story')}{how}"
    trainings = min(len(results.trainings("likelihood", name)) for name in (a, b))
    text += f" ({'; '.join(notes)})" if notes else ""
    gap = replace(difference, value=-difference.value, low=-difference.high, high=-difference.low)
    return Comparison(text, gap, trainings, slacks[b], slacks[a])


def compare_control(results: Results, ours: str, theirs: str) -> Comparison | None:
    """Macro-F1 of two system:lexicon:decoding; the interval treats them as independent."""
    sides = [side.split(":") for side in (ours, theirs)]
    a, b = (results.control(name, lexicon, greedy=how == "greedy") for name, lexicon, how in sides)
    if a.value is None or b.value is None:
        return None
    value, (a_down, a_up), (b_down, b_up) = a.value - b.value, a.errors, b.errors
    gap = Interval(value, value - math.hypot(a_down, b_up), value + math.hypot(a_up, b_down), 0.0, 0)
    first, second = titles(results, sides[0][0], sides[1][0])
    how = f"{sides[0][1].upper()}, {sides[0][2]}"
    text = f"{how}: {first} {a.value:.1f}, {second} {b.value:.1f} ({shown(gap, digits=1)})"
    return Comparison(text, gap, min(len(results.trainings("control", name)) for name, _, _ in sides))


def compare_readers(results: Results, ours: str, theirs: str) -> Comparison | None:
    """How much more often readers chose SLDS than its rival, in percent of the pairs."""
    record = results.get(f"human/{theirs}")
    if record is None:
        return None
    chosen = [100 * np.asarray(record[f"{side}_chosen"]) for side in ("slds", "rival")]
    gap = mean(chosen[0] - chosen[1], draws=results.scale.resamples)
    first, second = titles(results, ours, theirs)
    text = f"{first} best in {chosen[0].mean():.1f} %, {second} in {chosen[1].mean():.1f} % of {record['n']} pairs"
    return Comparison(f"{text} ({shown(gap, digits=1)}), alpha {record['agreement']}", gap)


def compare_overlap(results: Results, ours: str, theirs: str) -> Comparison | None:
    """The best of some system:sampler:setting:metric minus the best of others, paired by story.

    Several are separated by commas. The best of several is chosen on other stories than it is compared on.
    """
    sides, means, trainings = [], [], []
    for side in (ours, theirs):
        parts = [part.split(":") for part in side.split(",")]
        scores = {name: results.overlap_scores(name, setting, how, metric) for name, how, setting, metric in parts}
        ready = {name: array for name, array in scores.items() if array is not None}
        if not ready:
            return None
        names, best = cross_fitted([(name, array.mean(0)) for name, array in ready.items()])
        sides.append((" or ".join(titles(results, *names)), best))
        means.append(max((ready[name].mean(1) for name in names), key=lambda values: float(np.std(values))))
        trainings.append(min(len(ready[name]) for name in names))
    gap = widened(results.difference(sides[0][1], sides[1][1]), means)
    setting, metric = theirs.split(":")[2], theirs.split(":")[3].split(",")[0]
    text = f"{SETTING_NAMES[setting]}, {metrics_of(setting)[metric]}: {sides[0][0]} - {sides[1][0]} {shown(gap)}"
    return Comparison(text, gap, min(trainings))


Compare = Callable[[Results, str, str], Comparison | None]
COMPARE: dict[str, Compare] = {
    "nats": compare_nats, "control": compare_control, "human": compare_readers, "overlap": compare_overlap,
}  # fmt: skip


def all_hold(verdicts: Sequence[str]) -> str:
    """The verdict of a conjunction: one part that does not hold refutes it."""
    return next((word for word in (FAILS, NOT_RUN, INCONCLUSIVE) if word in verdicts), HOLDS) if verdicts else NOT_RUN


def pairs_of(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a claim compares: its pairs, or for each metric of each setting the best of ours with each rival."""
    yield from entry.get("pairs", ())
    for key, ours, theirs in (("settings", "ours", "theirs"), ("reversed_settings", "theirs", "ours")):
        for setting in entry.get(key, ()):
            for metric, rival in itertools.product(metrics_of(setting), entry.get(theirs, ())):
                yield ",".join(f"{side}:{setting}:{metric}" for side in entry[ours]), f"{rival}:{setting}:{metric}"


def decide(results: Results, entry: dict[str, Any]) -> Verdict:
    """The verdict on a claim of claims.toml with all its comparisons as evidence."""
    compare = COMPARE[entry["measure"]]
    made = [compare(results, *pair) for pair in pairs_of(entry)]
    ready = [comparison for comparison in made if comparison is not None]
    word = all_hold([NOT_RUN if comparison is None else comparison.verdict for comparison in made])
    if word == NOT_RUN and any(comparison.verdict != INCONCLUSIVE for comparison in ready):
        word = INCONCLUSIVE
    once = entry["measure"] != "human" and any(comparison.trainings < 2 for comparison in ready)
    marks = ("*" if once else "") + ("†" if any("†" in comparison.text for comparison in ready) else "")
    evidence = [f"{comparison.verdict}: {comparison.text}" for comparison in ready]
    missing = len(made) - len(ready)
    evidence += [f"{NOT_RUN}: {missing} of {len(made)} comparisons"] if missing else []
    beside = [compare(results, *pair) for pair in entry.get("beside", ())]
    evidence += [f"beside it, {c.verdict}: {c.text}" for c in beside if c is not None]
    counted = [c.verdict for c in ready]
    reason = min(ready, key=lambda c: (c.verdict != FAILS, c.gap.value)).text if ready else "no record"
    if len(made) > 5:
        words = ", ".join(f"{counted.count(word)} {word}" for word in (HOLDS, INCONCLUSIVE, FAILS) if word in counted)
        plural = words.replace("holds", "hold").replace("does", "do")
        reason = f"of {len(made)} comparisons {plural}; the least favourable is {reason}"
    return Verdict(entry["title"], entry["paper"], word, marks, tuple(evidence), reason)


def verdicts(results: Results) -> list[Verdict]:
    """The verdict on every claim."""
    return [decide(results, entry) for entry in read_toml("claims")["claims"]]


def finding(results: Results) -> str:
    """What leads the report: the tags that the paper's NLL of SLDS leaves out, priced by our scaffold."""
    record = results.get("likelihood/s2s")
    if record is None:
        return f"What the tags cost: {NOT_RUN}."
    cost = results.mean(np.asarray(record["stories"]["with_tags"]) - np.asarray(record["stories"]["nll"]))
    slds, lds = (read_toml("paper")["perplexity"][name][0] for name in ("slds", "lds"))
    names = {"slds_now": ("slds", "iw"), "lds_now": ("lds", "iw"), "lm_now": ("lm", "nll")}
    ours = {key: results.likelihood(*side, perplexity=False, digits=1) for key, side in names.items()}
    values = {key: NOT_RUN if f.value is None else f.format(f.value) for key, f in ours.items()}
    bound, estimate = ours["slds_now"].value, results.likelihood("slds", "authors", perplexity=False).value
    apart = {"apart": NOT_RUN, "with_apart": NOT_RUN}
    if bound is not None and estimate is not None:
        apart = {"apart": f"{bound - estimate:.2f}", "with_apart": f"{slds + bound - estimate:.1f}"}
    text: str = read_toml("claims")["finding"].strip()
    return text.format(cost=cost, with_tags=slds + cost.value, lds=lds, gap=lds - slds, **values, **apart)


class Line(NamedTuple):
    """A line of the table that sums up: the paper's figures, ours, and how many pairs of systems keep their order."""

    item: str
    paper: str
    ours: str
    verdict: str


def line(results: Results, item: str, cells: dict[str, Figure], sides: dict[str, str], how: Compare, sign: int) -> Line:
    """Some systems by one measure; `sides` are what `how` compares, `sign` is -1 where less is better."""
    words = []
    for a, b in itertools.combinations(cells, 2):
        first, second = cells[a].paper, cells[b].paper
        if first is None or second is None or first == second:
            continue
        made = how(results, *((sides[a], sides[b]) if sign * first > sign * second else (sides[b], sides[a])))
        words.append(NOT_RUN if made is None else made.verdict)
    names = {"as in the paper": HOLDS, "reversed": FAILS, "open": INCONCLUSIVE, NOT_RUN: NOT_RUN}
    verdict = ", ".join(f"{words.count(word)} {title}" for title, word in names.items() if word in words)
    values = [c.text if c.value is None else f"{c.bound.strip()}{c.format(c.value)}" for c in cells.values()]
    head = f"{item}: {', '.join(titles(results, *cells))}"
    return Line(head, "/".join(cell.theirs for cell in cells.values()), "/".join(values), verdict)


def summary(results: Results) -> list[Line]:
    """The paper against ours in one table."""
    four, family = ("slds", "lds", "s2s", "lm"), ("slds-1", "slds-10", "slds-25", "slds-50", "slds")
    lines, printed = [], read_toml("paper")
    for names, honest in itertools.product((four, family), (False, True)):
        cells, sides = {}, {}
        for name in names:
            latent, tags = BY_NAME[name].latent, BY_NAME[name].reads_tags
            estimate = ("iw" if honest else "authors") if latent else "with_tags" if honest and tags else "nll"
            bound, theirs = "≤" if estimate in ("iw", "with_tags") else "", printed["perplexity"][name][0]
            sides[name] = f"{name}:{estimate}"
            more: dict[str, Any] = {"paper": theirs, "bound": bound, "digits": 2}
            cells[name] = results.likelihood(name, estimate, perplexity=False, **more)
        item = "NLL, every term" if honest else "NLL, authors' estimate"
        lines.append(line(results, item, cells, sides, compare_nats, -1))
    for setting in TABLE_SETTINGS:
        samplers = {name: protocol(BY_NAME[name]) for name in four}
        cells = {n: replace(results.overlap(n, setting, how, "rouge1"), digits=1) for n, how in samplers.items()}
        sides = {name: f"{name}:{how}:{setting}:rouge1" for name, how in samplers.items()}
        lines.append(line(results, f"ROUGE-1, {SETTING_NAMES[setting]}", cells, sides, compare_overlap, 1))
    for names in (("slds", "s2s"), family):
        cells, sides = {n: results.control(n) for n in names}, {n: f"{n}:vader:top-k" for n in names}
        lines.append(line(results, "control, macro-F1", cells, sides, compare_control, 1))
    for rival in ("lm", "s2s"):
        best, human = (results.get(f"human/{rival}") or {}).get("best"), printed["human"]
        if best is None:  # the fifth claim says so
            continue
        cells = {
            "slds": Figure(value=best.get("slds"), paper=human[f"slds-vs-{rival}"][2], digits=1),
            rival: Figure(value=best.get("rival"), paper=human[rival][2], digits=1),
        }
        lines.append(line(results, "best story, %", cells, {"slds": "slds", rival: rival}, compare_readers, 1))
    return lines
