"""The paper's claims, each with a verdict that the figures decide: other figures, other words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabula.evaluation.bootstrap import Interval, difference
from fabula.reproduce.figures import (
    BY_LINES,
    METRICS,
    NOT_RUN,
    PAPER_BASELINES,
    PAPER_FAMILY,
    SETTING_NAMES,
    Figure,
    Found,
    best_of,
)
from fabula.reproduce.plan import BY_NAME, SETTINGS

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
    """The same, of a claim that may hold here and fail there; where it fails as often as it holds, it fails."""
    whole = together(verdicts)
    if whole not in (FAILS, OPEN) or HOLDS not in verdicts:
        return whole
    return PARTLY if verdicts.count(HOLDS) > verdicts.count(FAILS) else FAILS


def bounded(found: Found, ours: tuple[str, str], difference: Interval | None) -> str:
    """Whether nats by an estimate of ours are below another's; a loose bound can show that they are, not that not."""
    word, (system, estimate) = below(difference), ours
    return OPEN if word == FAILS and estimate == "iw" and found.loose(system) else word


def perplexity_claims(found: Found) -> list[Verdict]:
    """Nats per story rather than perplexity: S2S counts fewer tokens, so its PPL does not compare."""
    rivals = {"LM": ("lm", "nll"), "S2S": ("s2s", "nll"), "LDS": ("lds", "authors")}
    honest = {"LM": ("lm", "nll"), "S2S, tags paid": ("s2s", "with_tags"), "LDS": ("lds", "iw")}
    made = []
    for title, ours, others in (
        ("SLDS beats LM, S2S and LDS in perplexity, as the paper measures", ("slds", "authors"), rivals),
        ("the same under an honest likelihood", ("slds", "iw"), honest),
        ("a well-trained SLDS beats a well-trained LM", ("default", "iw"), {"our LM": ("lm-1024", "nll")}),
        ("the paper's SLDS beats a well-trained LM", ("slds", "iw"), {"our LM": ("lm-1024", "nll")}),
    ):
        differences = {name: found.nll_difference(ours, other) for name, other in others.items()}
        evidence = tuple(f"SLDS - {name}: {said(d, ' nats a story')}" for name, d in differences.items())
        made.append(Verdict(title, together([bounded(found, ours, d) for d in differences.values()]), evidence))
    return made


def supervision_claims(found: Found) -> list[Verdict]:
    made = []
    for title, estimate in (
        ("less supervision lowers perplexity, as the paper measures", "authors"),
        ("less supervision lowers an honest perplexity", "iw"),
    ):
        changes = {name: found.nll_difference((name, estimate), ("slds", estimate)) for name in FEWER}
        loose = {name: found.loose(name) if estimate == "iw" else None for name in FEWER}
        told = [
            f"{BY_NAME[name].title} - SLDS: {said(change, ' nats a story')}"
            + (f", but the bound is loose: {gain:.0f} nats from one sample to all" if (gain := loose[name]) else "")
            for name, change in changes.items()
        ]
        ppl = [(name, found.ppl(name, estimate)) for name in (*FEWER, "slds")]
        sign = "≤ " if estimate == "iw" else ""
        told.append(
            "PPL: " + ", ".join(f"{BY_NAME[name].title} {sign}{p.value:.2f}" if p else NOT_RUN for name, p in ppl)
        )
        judged = [bounded(found, (name, estimate), change) for name, change in changes.items()]
        made.append(Verdict(title, in_part(judged), tuple(told)))
    full = found.control("slds")
    steps = [apart(found.control(name), full) for name in FEWER]
    control = ", ".join(
        f"{BY_NAME[name].title} {figure.ours:.1f}" if figure.ours is not None else f"{BY_NAME[name].title} {NOT_RUN}"
        for name in (*FEWER, "slds")
        for figure in (found.control(name),)
    )
    made.append(Verdict("less supervision loses control", in_part(steps), (f"macro-F1: {control}",)))
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
        together(verdicts),
        tuple(evidence),
    )


def number(figure: Figure) -> str:
    return NOT_RUN if figure.ours is None else f"{figure.ours:.{figure.digits}f}"


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


def control_claims(found: Found) -> list[Verdict]:
    made = []
    for judge, title in (("vader", "as VADER judges"), ("afinn", "as a lexicon judges that nobody trained on")):
        evidence, verdicts = [], []
        for greedy, how in ((False, "top-k 15"), (True, "greedy")):
            slds, s2s = (found.control(name, judge, greedy) for name in ("slds", "s2s"))
            worse = apart(slds, s2s)
            verdicts.append(NOT_RUN if worse == NOT_RUN else FAILS if worse == HOLDS else HOLDS)
            gap = "" if slds.ours is None or s2s.ours is None else f" ({slds.ours - s2s.ours:+.1f}; paper: +0.3)"
            evidence.append(f"{how}: SLDS {number(slds)}, S2S {number(s2s)}{gap}")
        made.append(Verdict(f"SLDS controls as well as S2S, {title}", in_part(verdicts), tuple(evidence)))
    return made


def infilling_claims(found: Found) -> list[Verdict]:
    """The best of the paper's SLDS family against the best of LM and S2S, by the paper's own protocol and otherwise."""
    made = []
    given, blank = ("2", "4", "34"), ("12",)
    peek, fair = "gibbs-peek", "gibbs"
    ours = ("lm-1024",)
    for title, settings, family_wins, sides in (
        ("SLDS wins when the first sentence is given", given, True, (PAPER_FAMILY, peek, PAPER_BASELINES)),
        ("the same, SLDS with all labels alone", given, True, (("slds",), peek, PAPER_BASELINES)),
        ("the same, none of the family peeking", given, True, (PAPER_FAMILY, fair, PAPER_BASELINES)),
        ("the same, none peeking, against our own LM", given, True, (PAPER_FAMILY, fair, ours)),
        ("the baselines win on 1st and 2nd", blank, False, (PAPER_FAMILY, peek, PAPER_BASELINES)),
    ):
        evidence, verdicts = [], []
        for setting in settings:
            for metric, shown in compared(setting).items():
                winner = story_difference(found, setting, metric, *sides)
                if winner is None:
                    verdicts.append(NOT_RUN)
                    continue
                name, rival, gap = winner
                ahead = gap if family_wins else Interval(-gap.value, -gap.high, -gap.low, gap.se, gap.n)
                verdicts.append(HOLDS if ahead.low > 0 else FAILS if ahead.high < 0 else OPEN)
                evidence.append(f"{SETTING_NAMES[setting]}, {shown}: {name} - {rival} {said(gap)}")
        counts = ", ".join(f"{verdicts.count(w)} {w}" for w in (HOLDS, OPEN, FAILS, NOT_RUN) if w in verdicts)
        made.append(Verdict(title, in_part(verdicts), (f"of {len(verdicts)} cells: {counts}", *evidence)))
    return made


def story_difference(
    found: Found, setting: str, metric: str, systems: Sequence[str], sampler: str, rivals: Sequence[str]
) -> tuple[str, str, Interval] | None:
    """Best of some latent systems less best of some baselines, paired by story."""
    ours = best_of([(name, found.overlap(name, setting, sampler, metric)) for name in systems])
    theirs = best_of([(name, found.overlap(name, setting, "rerank", metric)) for name in rivals])
    if ours is None or theirs is None:
        return None
    values = []
    for _, figure in (ours, theirs):
        record = found.get(figure.record)
        assert record is not None
        values.append(record["stories"][metric])
    if len(values[0]) != len(values[1]):
        return None
    gap = difference(values[0], values[1], draws=found.scale.resamples)
    return BY_NAME[ours[0]].title, BY_NAME[theirs[0]].title, gap


def compared(setting: str) -> dict[str, str]:
    """The metrics of a row, ROUGE-L of two sentences as the paper has it: sentences apart."""
    if len(SETTINGS[setting]) == 1:
        return METRICS
    return {
        BY_LINES if m == "rougeL" else m: f"{t}, sentences apart" if m == "rougeL" else t for m, t in METRICS.items()
    }


def with_cuts(found: Found, verdicts: list[Verdict]) -> list[Verdict]:
    """A verdict on systems whose training was cut short says so."""
    cut = [found.title(system) for system in found.systems if found.title(system) != system.title]
    if not cut:
        return verdicts
    note = f"beware: {'; '.join(cut)}"
    return [Verdict(v.claim, v.verdict, (*v.evidence, note)) for v in verdicts]


def claims(found: Found) -> list[Verdict]:
    """The paper's claims, in the order of the issue."""
    made = [
        *perplexity_claims(found),
        *supervision_claims(found),
        *control_claims(found),
        *infilling_claims(found),
    ]
    return with_cuts(found, made)
