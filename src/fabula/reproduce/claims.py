"""The paper's claims, each with a verdict that the figures decide: other figures, other words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabula.evaluation.bootstrap import Interval, difference
from fabula.reproduce.plan import BY_NAME, SETTINGS
from fabula.reproduce.tables import (
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
    """The same, of a claim that may hold here and fail there."""
    whole = together(verdicts)
    return PARTLY if whole == FAILS and HOLDS in verdicts else whole


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
        made.append(Verdict(title, together([below(d) for d in differences.values()]), evidence))
    return made


def supervision_claims(found: Found) -> list[Verdict]:
    made = []
    for title, estimate in (
        ("less supervision lowers perplexity, as the paper measures", "authors"),
        ("less supervision lowers an honest perplexity", "iw"),
    ):
        fewer = ("slds-1", "slds-10", "slds-25", "slds-50")
        changes = {name: found.nll_difference((name, estimate), ("slds", estimate)) for name in fewer}
        told = [f"{BY_NAME[name].title} - SLDS: {said(change, ' nats a story')}" for name, change in changes.items()]
        ppl = [(name, found.ppl(name, estimate)) for name in (*fewer, "slds")]
        told.append("PPL: " + ", ".join(f"{BY_NAME[name].title} {p.value:.2f}" if p else NOT_RUN for name, p in ppl))
        made.append(Verdict(title, in_part([below(change) for change in changes.values()]), tuple(told)))
    few, full = found.control("slds-1"), found.control("slds")
    control = ", ".join(
        f"{BY_NAME[name].title} {figure.ours:.1f}" if figure.ours is not None else f"{BY_NAME[name].title} {NOT_RUN}"
        for name in ("slds-1", "slds-10", "slds-25", "slds-50", "slds")
        for figure in (found.control(name),)
    )
    made.append(Verdict("less supervision loses control", apart(few, full), (f"macro-F1: {control}",)))
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
    pairs = [(name, found.ppl(name, "authors"), found.ppl(name, "iw")) for name in PAPER_FAMILY]
    hidden = [f"{BY_NAME[n].title} {soft.value:.1f} and {hard.value:.1f}" for n, soft, hard in pairs if soft and hard]
    if hidden:
        evidence.append(
            f"PPL with a soft S, as the paper measures, and with one that is committed to: {', '.join(hidden)}"
        )
    return Verdict(
        "the soft Gumbel-Softmax is why: it fits better and controls worse than hard",
        together(verdicts),
        tuple(evidence),
    )


def number(figure: Figure) -> str:
    return NOT_RUN if figure.ours is None else f"{figure.ours:.{figure.digits}f}"


def apart(smaller: Figure, larger: Figure) -> str:
    """Whether one figure is below another beyond both intervals."""
    if smaller.ours is None or larger.ours is None:
        return NOT_RUN
    assert smaller.high is not None
    assert larger.low is not None
    assert smaller.low is not None
    assert larger.high is not None
    if smaller.high < larger.low:
        return HOLDS
    return FAILS if smaller.low > larger.high or smaller.ours >= larger.ours else OPEN


def control_claims(found: Found) -> list[Verdict]:
    made = []
    for judge, title in (("vader", "as VADER judges"), ("afinn", "as a lexicon judges that nobody trained on")):
        slds, s2s = found.control("slds", judge), found.control("s2s", judge)
        worse = apart(slds, s2s)
        verdict = NOT_RUN if worse == NOT_RUN else FAILS if worse == HOLDS else HOLDS
        gap = "" if slds.ours is None or s2s.ours is None else f" (paper: +0.3; ours {slds.ours - s2s.ours:+.1f})"
        told = f"SLDS {number(slds)}, S2S {number(s2s)}{gap if judge == 'vader' else ''}"
        made.append(Verdict(f"SLDS controls as well as S2S, {title}", verdict, (told,)))
    return made


def infilling_claims(found: Found) -> list[Verdict]:
    """The best of the paper's SLDS family against the best of LM and S2S, each by the paper's own protocol."""
    made = []
    for title, settings, family_wins in (
        ("SLDS wins when the first sentence is given", ("2", "4", "34"), True),
        ("the baselines win on 1st and 2nd", ("12",), False),
    ):
        evidence, verdicts = [], []
        for setting in settings:
            for metric, shown in compared(setting).items():
                winner = story_difference(found, setting, metric)
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


def story_difference(found: Found, setting: str, metric: str) -> tuple[str, str, Interval] | None:
    """Best of the family less best of the baselines, paired by story."""
    ours = best_of([(name, found.overlap(name, setting, "gibbs-peek", metric)) for name in PAPER_FAMILY])
    theirs = best_of([(name, found.overlap(name, setting, "rerank", metric)) for name in PAPER_BASELINES])
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
