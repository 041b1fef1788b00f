"""The paper's claims, each with a verdict that the figures decide: other figures, other words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabula.metrics.bootstrap import Interval, difference
from fabula_paper import calibrated
from fabula_paper.figures import (
    BY_LINES,
    LOOSE,
    METRICS,
    NOT_RUN,
    PAPER_BASELINES,
    PAPER_FAMILY,
    SETTING_NAMES,
    Figure,
    Found,
    cross_fitted,
    widened,
)
from fabula_paper.plan import BY_NAME, LONGER, SETTINGS

FEWER = tuple(name for name in PAPER_FAMILY if name != "slds")
"""The systems with fewer labels."""
HOLDS, FAILS, OPEN, PARTLY = "holds", "does not hold", "cannot be told", "holds in part"


@dataclass(frozen=True)
class Verdict:
    """A claim, what became of it, and the figures behind that."""

    claim: str
    verdict: str
    evidence: tuple[str, ...]


def said(found: Interval | None, unit: str = "", digits: int = 2) -> str:
    if found is None:
        return NOT_RUN
    return f"{found.value:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]{unit}"


TRAINING = ", in one training"
"""Said of a verdict on systems that were trained once: another seed may move a figure by more than the interval."""


def seeded(found: Found, systems: Sequence[str], word: str) -> str:
    """A verdict that rests on one training of some system says so."""
    once = any(len(found.trainings(system)) < 2 for system in systems)
    return word + TRAINING if once and word in (HOLDS, FAILS, PARTLY) else word


def below(found: Interval | None) -> str:
    """Whether a difference is below zero, beyond its interval."""
    if found is None:
        return NOT_RUN
    return HOLDS if found.high < 0 else FAILS if found.low > 0 else OPEN


def together(verdicts: Sequence[str]) -> str:
    """A claim of several parts holds if all do, and fails if one does."""
    for word in (FAILS, NOT_RUN, OPEN):
        if word in verdicts:
            return word
    return HOLDS if verdicts else NOT_RUN


def in_part(verdicts: Sequence[str]) -> str:
    """The same, of a claim that may hold here and fail there: open where most parts are, else it holds in part if it
    holds more often than it fails, and fails if not."""
    whole = together(verdicts)
    if whole not in (FAILS, OPEN) or 2 * verdicts.count(OPEN) > len(verdicts):
        return OPEN if whole == FAILS else whole
    if HOLDS not in verdicts:
        return whole
    return PARTLY if verdicts.count(HOLDS) > verdicts.count(FAILS) else FAILS


def bounded(found: Found, ours: tuple[str, str], theirs: tuple[str, str], gap: Interval | None) -> str:
    """Whether nats by an estimate of ours are below another's. A bound lies above what it bounds by some slack: ours
    above theirs shows nothing until the gap, at the small end of its interval, is larger than our slack, and ours below
    theirs nothing until it is larger than theirs. An exact figure has none."""
    word = below(gap)
    if gap is None or word not in (HOLDS, FAILS):
        return word
    side = theirs if word == HOLDS else ours
    return word if min(abs(gap.low), abs(gap.high)) > found.slack(*side) else OPEN


def slack_told(found: Found, *sides: tuple[str, str]) -> str:
    """What the bounds of a comparison are thought to lack."""
    told = [
        f"the bound of {BY_NAME[system].title} lacks "
        + ("an unknown amount" if math.isinf(lacks) else f"about {lacks:.2f}" if lacks < LOOSE else "far too much")
        for system, estimate in sides
        if (lacks := found.slack(system, estimate)) > 0
    ]
    return f" ({'; '.join(told)})" if told else ""


def perplexity_claims(found: Found) -> list[Verdict]:
    """Nats per story rather than perplexity: S2S counts fewer tokens, so its PPL does not compare."""
    rivals = {"LM": ("lm", "nll"), "S2S": ("s2s", "nll"), "LDS": ("lds", "authors")}
    by_elbo = {**rivals, "LDS": ("lds", "elbo")}
    honest = {"LM": ("lm", "nll"), "S2S, tags paid": ("s2s", "with_tags"), "LDS": ("lds", "iw")}
    longer, longer_honest = (
        {BY_NAME[LONGER[name]].title: (LONGER[name], estimate) for name, estimate in own.values() if name in LONGER}
        for own in (rivals, honest)
    )
    made = []
    for title, ours, others in (
        ("SLDS beats LM, S2S and LDS in perplexity, as the authors' code measures", ("slds", "authors"), rivals),
        ("the same against LM and S2S with more updates", ("slds", "authors"), longer),
        ("SLDS beats LM, S2S and LDS by the ELBO, which the paper's text names", ("slds", "elbo"), by_elbo),
        ("SLDS beats LM, S2S and LDS under an honest likelihood", ("slds", "iw"), honest),
        ("the same, honestly, against LM and S2S with more updates", ("slds", "iw"), longer_honest),
        ("a well-trained SLDS beats a well-trained LM", ("default", "iw"), {"our LM": ("lm-1024", "nll")}),
        ("the paper's SLDS beats a well-trained LM", ("slds", "iw"), {"our LM": ("lm-1024", "nll")}),
    ):
        if ours == ("default", "iw") and calibrated.remeasured(found, "default"):
            made.append(by_calibrated_bound(found, title))
            continue
        differences = {name: found.nll_difference(ours, other) for name, other in others.items()}
        evidence = tuple(
            f"SLDS - {name}: {said(d, ' nats a story')}{slack_told(found, ours, others[name])}"
            for name, d in differences.items()
        )
        word = together([bounded(found, ours, others[name], d) for name, d in differences.items()])
        made.append(Verdict(title, seeded(found, [ours[0], *(name for name, _ in others.values())], word), evidence))
    return made


def by_calibrated_bound(found: Found, title: str) -> Verdict:
    """The shipped SLDS against our LM, where its bound was measured again by a calibrated q."""
    gap, lacks = calibrated.gap(found, "default", "lm-1024"), calibrated.lacks(found, "default")
    word = below(gap)
    if gap is not None and word == FAILS and gap.low <= lacks:
        word = OPEN
    samples = 0 if gap is None else gap.n
    told = f"SLDS - our LM: {said(gap, ' nats a story')} by a calibrated q, {samples} stories measured again"
    old = found.nll_difference(("default", "iw"), ("lm-1024", "nll"))
    evidence = (f"{told} (the bound lacks about {lacks:.2f})", f"by the bound of before: {said(old, ' nats a story')}")
    return Verdict(title, seeded(found, ("default", "lm-1024"), word), evidence)


def supervision_claims(found: Found) -> list[Verdict]:
    made = []
    for title, estimate in (
        ("less supervision lowers perplexity, as the authors' code measures", "authors"),
        ("less supervision lowers an honest perplexity", "iw"),
    ):
        changes = {name: found.nll_difference((name, estimate), ("slds", estimate)) for name in FEWER}
        told = [
            f"{BY_NAME[name].title} - SLDS: {said(change, ' nats a story')}"
            f"{slack_told(found, (name, estimate), ('slds', estimate))}"
            for name, change in changes.items()
        ]
        ppl = [(name, found.ppl(name, estimate)) for name in (*FEWER, "slds")]
        sign = "≤ " if estimate == "iw" else ""
        told.append(
            "PPL: " + ", ".join(f"{BY_NAME[name].title} {sign}{p.value:.2f}" if p else NOT_RUN for name, p in ppl)
        )
        judged = [bounded(found, (name, estimate), ("slds", estimate), change) for name, change in changes.items()]
        made.append(Verdict(title, seeded(found, PAPER_FAMILY, in_part(judged)), tuple(told)))
    full = found.control("slds")
    steps = [apart(found.control(name), full) for name in FEWER]
    told = [
        f"{step}: {BY_NAME[name].title} {ranged(found.control(name))}" for name, step in zip(FEWER, steps, strict=True)
    ]
    word = seeded(found, PAPER_FAMILY, in_part(steps))
    made.append(Verdict("less supervision loses control", word, (f"macro-F1 of SLDS {ranged(full)}", *told)))
    made.append(soft_claim(found))
    return made


def soft_claim(found: Found) -> Verdict:
    """The paper's explanation: the soft Gumbel-Softmax fits better and controls worse than a hard choice would."""
    evidence = []
    verdicts = []
    for name in ("slds-1-hard", "slds-1-summed"):
        title = BY_NAME[name].title
        change = found.nll_difference(("slds-1", "authors"), (name, "authors"))
        soft, other = found.control("slds-1"), found.control(name)
        evidence.append(
            f"soft - {title}: {said(change, ' nats a story')} by the paper's estimate, "
            f"{said(found.nll_difference(('slds-1', 'iw'), (name, 'iw')), ' nats')} honestly; "
            f"control {number(soft)} soft, {number(other)} {title.split(', ')[1]}"
        )
        if name == "slds-1-hard":
            verdicts = [below(change), apart(soft, other)]
    return Verdict(
        "the soft Gumbel-Softmax is why: it fits better and controls worse than hard",
        seeded(found, ("slds-1", "slds-1-hard"), together(verdicts)),
        tuple(evidence),
    )


def number(figure: Figure) -> str:
    return NOT_RUN if figure.ours is None else f"{figure.ours:.{figure.digits}f}"


def ranged(figure: Figure) -> str:
    """A figure with its interval."""
    return number(figure) if figure.low is None else f"{number(figure)} [{figure.low:.1f}, {figure.high:.1f}]"


def apart(smaller: Figure, larger: Figure) -> str:
    """Whether one figure is below another beyond both intervals; what lies within them cannot be told."""
    if smaller.ours is None or larger.ours is None:
        return NOT_RUN
    assert smaller.high is not None
    assert larger.low is not None
    assert smaller.low is not None
    assert larger.high is not None
    if smaller.high < larger.low:
        return HOLDS
    return FAILS if smaller.low > larger.high else OPEN


def gap_of(one: Figure, other: Figure) -> Interval | None:
    """One figure less another; the interval is of both theirs, as if they were independent."""
    if one.ours is None or one.low is None or one.high is None:
        return None
    if other.ours is None or other.low is None or other.high is None:
        return None
    gap = one.ours - other.ours
    low = gap - math.hypot(one.ours - one.low, other.high - other.ours)
    return Interval(gap, low, gap + math.hypot(one.high - one.ours, other.ours - other.low), 0.0, 0)


def as_good(gap: Interval | None) -> str:
    """Whether a figure is no worse than another: even at the low end of their difference not below it."""
    if gap is None:
        return NOT_RUN
    return HOLDS if gap.low >= 0 else FAILS if gap.high < 0 else OPEN


def control_claims(found: Found) -> list[Verdict]:
    made = []
    for judge, title in (
        ("vader", "as VADER judges"),
        ("afinn", "as a lexicon judges that nobody trained on (AFINN)"),
        ("nrc", "as another such lexicon judges (NRC)"),
    ):
        for rival in ("s2s", LONGER["s2s"]):
            name, evidence, verdicts = BY_NAME[rival].title, [], []
            for greedy, how in ((False, "top-k 15"), (True, "greedy")):
                slds, s2s = (found.control(system, judge, greedy) for system in ("slds", rival))
                gap = gap_of(slds, s2s)
                verdicts.append(as_good(gap))
                paper = "; paper: +0.3" if judge == "vader" else ""
                evidence.append(f"{how}: SLDS {number(slds)}, {name} {number(s2s)} ({said(gap, digits=1)}{paper})")
            word = seeded(found, ("slds", rival), in_part(verdicts))
            made.append(Verdict(f"SLDS controls as well as {name}, {title}", word, tuple(evidence)))
    return made


def infilling_claims(found: Found) -> list[Verdict]:
    """The best of the paper's SLDS family against LM, S2S and LDS, by the paper's own protocol and otherwise.

    Who is best is chosen on other stories than those it is then compared on, and it must beat every rival.
    """
    made = []
    given, blank = ("2", "4", "34"), ("12",)
    best, fair = (tuple((name, sampler) for name in PAPER_FAMILY) for sampler in ("gibbs-peek", "gibbs"))
    alone, ours, lds = (("slds", "gibbs-peek"),), (("lm-1024", "rerank"),), ("lds", "gibbs")
    baselines = (*((name, "rerank") for name in PAPER_BASELINES), lds)
    longer = (*((LONGER[name], "rerank") for name in PAPER_BASELINES), lds)
    for title, settings, champions, rivals in (
        ("SLDS wins when the first sentence is given, against LM, S2S and LDS", given, best, baselines),
        ("the same, SLDS with all labels alone", given, alone, baselines),
        ("the same, against LM and S2S with more updates, and LDS", given, best, longer),
        ("the same, none of the family peeking", given, fair, baselines),
        ("the same, none peeking, against LM and S2S with more updates, and LDS", given, fair, longer),
        ("the same, none peeking, against our own LM", given, fair, ours),
        ("the best of the family, peeking, against LM and S2S alone", given, best, baselines[:-1]),
        ("the baselines win on 1st and 2nd", blank, baselines, best),
        ("the same with more updates", blank, longer, best),
    ):
        evidence, verdicts = [], []
        for setting in settings:
            for metric, shown in compared(setting).items():
                gaps = story_differences(found, setting, metric, champions, rivals)
                verdicts.append(together([HOLDS if g.low > 0 else FAILS if g.high < 0 else OPEN for _, _, g in gaps]))
                if gaps:
                    name, rival, gap = min(gaps, key=lambda each: each[2].value)
                    evidence.append(f"{SETTING_NAMES[setting]}, {shown}: {name} - {rival} {said(gap)}")
        counts = ", ".join(f"{verdicts.count(w)} {w}" for w in (HOLDS, OPEN, FAILS, NOT_RUN) if w in verdicts)
        word = seeded(found, [name for name, _ in (*champions, *rivals)], in_part(verdicts))
        made.append(Verdict(title, word, (f"of {len(verdicts)} cells: {counts}", *evidence)))
    return made


Side = Sequence[tuple[str, str]]
"""Systems, each with the sampler that it fills in by."""


def story_differences(
    found: Found, setting: str, metric: str, champions: Side, rivals: Side
) -> list[tuple[str, str, Interval]]:
    """The best of some systems less each of its rivals, paired by story; the best is chosen on the other half. The
    interval is over stories and, where a system has several trainings, over those (of two that were chosen, the wider).
    """
    own, theirs = (
        {
            name: found.each_overlap(name, setting, sampler, metric)
            for name, sampler in side
            if found.overlaps(name, setting, sampler, metric) is not None
        }
        for side in (champions, rivals)
    )
    if not own:
        return []
    names, mine = cross_fitted([(name, each.mean(0)) for name, each in own.items()])
    widest = max((own[name].mean(1) for name in names), key=lambda means: float(np.std(means)))
    title = " or ".join(BY_NAME[name].title for name in names)
    return [
        (
            title,
            BY_NAME[rival].title,
            widened(difference(mine, each.mean(0), draws=found.scale.resamples), [widest, each.mean(1)]),
        )
        for rival, each in theirs.items()
        if each.shape[1] == len(mine)
    ]


def compared(setting: str) -> dict[str, str]:
    """The metrics of a row, ROUGE-L of two sentences as the paper has it: sentences apart."""
    if len(SETTINGS[setting]) == 1:
        return METRICS
    return {
        BY_LINES if m == "rougeL" else m: f"{t}, sentences apart" if m == "rougeL" else t for m, t in METRICS.items()
    }


def with_cuts(found: Found, verdicts: list[Verdict]) -> list[Verdict]:
    """A verdict on systems whose training was cut short says so."""
    cut = {system.title: found.title(system) for system in found.systems if found.title(system) != system.title}
    made = []
    for v in verdicts:
        told = " ".join(v.evidence)
        named = [full for title, full in cut.items() if re.search(rf"{re.escape(title)}(?![0-9])", told)]
        made.append(Verdict(v.claim, v.verdict, (*v.evidence, *([f"beware: {'; '.join(named)}"] if named else []))))
    return made


def claims(found: Found) -> list[Verdict]:
    """The paper's claims, in the order of the issue."""
    made = [
        *perplexity_claims(found),
        *supervision_claims(found),
        *control_claims(found),
        *infilling_claims(found),
    ]
    return with_cuts(found, made)
