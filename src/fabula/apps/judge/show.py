"""A report as text, as CSV and as a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from fabula.apps.judge.judgement import ErrorCounts
from fabula.apps.judge.report import Group, Report
from fabula.apps.judge.statistics import CriticAgreement, Figure


def table(report: Report) -> str:
    """The report for a person to read, with the paper's figures where the systems are the paper's."""
    lines = [
        f"{report.pairs} pairs, {report.wanted} annotators each; {report.finished} have them all",
        f"[] are 95 % bootstrap intervals over pairs ({report.repeats:,} resampled studies, seed {report.seed})"
        if report.repeats
        else "no bootstrap intervals were asked for",
    ]
    for group in report.groups:
        lines += ["", *_group(group)]
    lines += ["", *_annotators(report)]
    if report.machine is not None:
        lines += ["", *_critic(report.machine)]
    lines += ["", *_errors(report.errors, report.paper_errors)]
    return "\n".join(lines)


def _group(group: Group) -> Iterator[str]:
    yield f"{group.name.capitalize()}: {group.annotators} annotators, {group.judgements} judgements of pairs"
    if not group.judgements:
        return
    width = max(8, *(len(row.system) for one in group.comparisons for row in one.rows)) + 2
    yield f"  {'system':<{width}}{'sent. coh. (0-3)':<32}{'best story':<26}ties"
    for one in group.comparisons:
        yield f"  {'-' * (width + 74)}"
        for row in one.rows:
            coherence, best = _number(row.coherence, 2, sd=row.sd), _number(row.best, 1, " %")
            yield f"  {row.system:<{width}}{coherence:<32}{best:<26}{_number(one.ties, 1, ' %')}"
            if (paper := row.paper) is not None:
                coherence, best = f"{paper['mean']:.2f} ± {paper['sd']:.2f}", f"{paper['best']:.1f} %"
                yield f"  {'  paper':<{width}}{coherence:<32}{best:<26}{paper['ties']:.1f} %"
        yield f"  {one.pairs} pairs, {one.judgements} judgements"
    yield ""
    yield f"  agreement (Krippendorff's alpha): ratings, ordinal {_number(group.alpha_ratings, 3)};"
    yield f"    preference, nominal {_number(group.alpha_preference, 3)}"
    yield "  Bradley-Terry strengths (log odds, mean 0; a tie is half a win for each):"
    for strength in group.strengths:
        yield f"    {strength.system:<{width}}{_number(strength.strength, 3)}"
    if any(strength.strength.value is None for strength in group.strengths):
        yield "    (none: a system that never lost, never won or never met the others has no finite strength)"


def _annotators(report: Report) -> Iterator[str]:
    first, median, third = report.times.values()
    if median is None:
        yield "No judgements yet."
        return
    yield f"Time for a pair: median {median:.0f} s, quartiles {first:.0f} and {third:.0f} s"
    yield f"Annotators (failed: fewer than {100 * report.pass_share:.0f} % of their checks passed):"
    width = max(len(one.code) for one in report.annotators) + 2
    for one in report.annotators:
        checks = f"{one.passed} of {one.checks} checks passed" if one.checks else "no checks seen"
        time = "" if one.seconds is None else f", median {one.seconds:.0f} s"
        yield f"  {one.code:<{width}}{one.judgements} pairs{time}, {checks}{'   FAILED' if one.failed else ''}"


def _critic(critic: CriticAgreement) -> Iterator[str]:
    yield f"A machine beside them, counted in no figure above: the critic of {critic.model}, {critic.pairs} pairs"
    yield f"  people's preferences, ties left out, that are the critic's: {_number(critic.agreement, 1, ' %')}"
    yield f"    one person's that are another's: {_number(critic.between_people, 1, ' %')}"
    yield f"  Krippendorff's alpha of preference with it as one more annotator: {_number(critic.alpha_preference, 3)}"
    yield f"  correlation of its values with mean ratings: stories {_number(critic.stories, 3)},"
    yield f"    sentences {_number(critic.sentences, 3)}"


def _errors(errors: list[ErrorCounts], paper: dict[str, tuple[int, int]]) -> Iterator[str]:
    if not errors:
        yield "Error sheet (appendix B): not filled in; open /errors of fabula judge serve"
        return
    yield "Error sheet (appendix B) of the lowest-rated stories:"
    text = "ending not connected {} of {}, mildly off topic {} of {}, ungrammatical {} of {} sentences"
    for one in errors:
        cases = (one.ending, one.stories, one.off_topic, one.stories, one.ungrammatical, one.sentences)
        yield f"  {one.system or 'all systems'}: {text.format(*cases)}"
    yield f"  paper: {text.format(*paper['ending'], *paper['off_topic'], *paper['ungrammatical'])}"


def _number(figure: Figure, digits: int, unit: str = "", sd: float | None = None) -> str:
    if figure.value is None:
        return "none"
    deviation = f" ± {sd:.{digits}f}" if sd is not None else ""
    interval = ""
    if figure.interval is not None:
        interval = f" [{figure.interval[0]:.{digits}f}, {figure.interval[1]:.{digits}f}]"
    return f"{figure.value:.{digits}f}{deviation}{unit}{interval}"


Number = float | int | None
Row = tuple[str, str, str, str, Number, Number, Number, Number]


def as_csv(report: Report) -> str:
    """Every figure in its own line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("group", "comparison", "system", "measure", "value", "low", "high", "paper"))
    writer.writerows(_rows(report))
    return text.getvalue()


def _row(
    measure: str, value: Figure | Number, group: str = "", comparison: str = "", system: str = "", paper: Number = None
) -> Row:
    if not isinstance(value, Figure):
        return group, comparison, system, measure, value, None, None, paper
    return group, comparison, system, measure, value.value, *(value.interval or (None, None)), paper


def _rows(report: Report) -> Iterator[Row]:
    for group in report.groups:
        for one in group.comparisons:
            at = (group.name, " : ".join(one.systems))
            paper: dict[str, float] = {}
            for row in one.rows:
                paper = row.paper or {}
                yield _row("coherence", row.coherence, *at, row.system, paper.get("mean"))
                yield _row("coherence sd", row.sd, *at, row.system, paper.get("sd"))
                yield _row("ratings", row.ratings, *at, row.system)
                yield _row("best story %", row.best, *at, row.system, paper.get("best"))
            yield _row("ties %", one.ties, *at, paper=paper.get("ties"))
            yield _row("pairs", one.pairs, *at)
            yield _row("judgements", one.judgements, *at)
        yield _row("alpha of ratings", group.alpha_ratings, group.name)
        yield _row("alpha of preference", group.alpha_preference, group.name)
        for strength in group.strengths:
            yield _row("Bradley-Terry strength", strength.strength, group.name, system=strength.system)
    for name, seconds in report.times.items():
        yield _row(f"seconds, {name.replace('_', ' ')}", seconds)
    for person in report.annotators:
        yield _row(f"pairs judged by {person.code}", person.judgements)
        yield _row(f"checks passed by {person.code}", person.passed)
        yield _row(f"checks seen by {person.code}", person.checks)
    if (critic := report.machine) is not None:
        yield _row("people's preferences shared by the critic %", critic.agreement, system=critic.model)
        yield _row("people's preferences shared by another person %", critic.between_people)
        yield _row("alpha of preference with the critic", critic.alpha_preference, system=critic.model)
        yield _row("correlation with the critic, stories", critic.stories, system=critic.model)
        yield _row("correlation with the critic, sentences", critic.sentences, system=critic.model)
    for counts in report.errors:
        system = counts.system or "all"
        (ending, stories), (off_topic, _), (ungrammatical, sentences) = report.paper_errors.values()
        yield _row("stories with an error sheet", counts.stories, system=system, paper=stories)
        yield _row("ending not connected", counts.ending, system=system, paper=ending)
        yield _row("mildly off topic", counts.off_topic, system=system, paper=off_topic)
        yield _row("written sentences", counts.sentences, system=system, paper=sentences)
        yield _row("ungrammatical", counts.ungrammatical, system=system, paper=ungrammatical)


def svg(report: Report) -> str:
    """Preferences, coherence and strengths of everyone's judgements, with 95 % intervals."""
    import matplotlib
    from matplotlib.figure import Figure as Drawing

    group = report.groups[0]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fabula"}):
        drawing = Drawing(figsize=(12, 2 + 0.4 * len(group.comparisons)), layout="constrained")
        preference, coherence, strength = drawing.subplots(1, 3)
        preference.set(title="better story, per cent")
        coherence.set(title="coherence (ring: the paper)", xlim=(0, 3))
        strength.set(title="Bradley–Terry strength, log odds")
        for one in group.comparisons:
            first, second = one.rows
            label = f"{first.system} : tie : {second.system}"
            left = 0.0
            for value, colour in ((first.best.value, "C0"), (one.ties.value, "0.7"), (second.best.value, "C1")):
                bars = preference.barh(label, value or 0.0, left=left, color=colour)
                preference.bar_label(bars, fmt="%.0f", label_type="center")
                left += value or 0.0
            for row in one.rows:
                name = f"{row.system} ({' : '.join(one.systems)})"
                _point(coherence, name, row.coherence)
                if row.paper is not None:
                    coherence.plot(row.paper["mean"], name, "o", markersize=10, fillstyle="none", color="C4")
        for system in group.strengths:
            _point(strength, system.system, system.strength)
        text = io.StringIO()
        drawing.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _point(axes: Any, name: str, figure: Figure) -> None:
    if figure.value is not None:
        low, high = figure.interval or (figure.value, figure.value)
        error = [[max(0.0, figure.value - low)], [max(0.0, high - figure.value)]]
        axes.errorbar(figure.value, name, xerr=error, fmt="o", color="C0")
