"""A report for people and for spreadsheets: as a table, as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import NamedTuple

from fabula.apps.judge.lowest import Errors
from fabula.apps.judge.machine import Machine
from fabula.apps.judge.report import Group, Report
from fabula.apps.judge.statistics import Figure


class NoPaper(NamedTuple):
    """In the place of the paper's figures where it has none."""

    mean: None = None
    sd: None = None
    best: None = None
    ties: None = None


Row = tuple[str, str, str, str, float | int | None, float | None, float | None, float | int | None]
NO_PAPER = NoPaper()
COLUMNS = ("group", "comparison", "system", "measure", "value", "low", "high", "paper")


def table(report: Report) -> str:
    """The report for a person to read, the paper's figures beside ours where the systems are the paper's."""
    lines = [
        f"{report.pairs} pairs, {report.wanted} annotators each; {report.finished} have them all",
        f"[] are 95 % bootstrap intervals over pairs ({report.repeats:,} resampled studies, seed {report.seed})"
        if report.repeats
        else "no bootstrap intervals were asked for",
    ]
    for group in report.groups:
        lines += ["", *_group(group)]
    lines += ["", *_people(report)]
    if report.machine is not None:
        lines += ["", *_machine(report.machine)]
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
            yield (
                f"  {row.system:<{width}}{_number(row.coherence, 2, row.sd):<32}"
                f"{_number(row.best, 1, unit=' %'):<26}{_number(one.ties, 1, unit=' %')}"
            )
            if row.paper is not None:
                told = f"{row.paper.mean:.2f} ± {row.paper.sd:.2f}"
                yield f"  {'  paper':<{width}}{told:<32}{f'{row.paper.best:.1f} %':<26}{row.paper.ties:.1f} %"
        yield f"  {one.pairs} pairs, {one.judgements} judgements"
    yield ""
    yield f"  agreement (Krippendorff's alpha): ratings, ordinal {_number(group.alpha_ratings, 3)};"
    yield f"    preference, nominal {_number(group.alpha_preference, 3)}"
    yield "  Bradley-Terry strengths (log odds, mean 0; a tie is half a win for each):"
    for strength in group.strengths:
        yield f"    {strength.system:<{width}}{_number(strength.strength, 3)}"
    if any(strength.strength.value is None for strength in group.strengths):
        yield "    (none: a system that never lost, never won or never met the others has no finite strength)"


def _people(report: Report) -> Iterator[str]:
    times = report.times
    if times.median is None:
        yield "No judgements yet."
        return
    yield (
        f"Time for a pair: median {times.median:.0f} s, quartiles {times.first_quartile:.0f} and "
        f"{times.third_quartile:.0f} s"
    )
    yield f"Annotators (failed: fewer than {100 * report.pass_share:.0f} % of their checks passed):"
    width = max(len(one.code) for one in report.annotators) + 2
    for one in report.annotators:
        checks = f"{one.passed} of {one.checks} checks passed" if one.checks else "no checks seen"
        median = "" if one.seconds is None else f", median {one.seconds:.0f} s"
        yield f"  {one.code:<{width}}{one.judgements} pairs{median}, {checks}{'   FAILED' if one.failed else ''}"


def _machine(machine: Machine) -> Iterator[str]:
    yield f"A machine beside them, counted in no figure above: the critic of {machine.model}, {machine.pairs} pairs"
    yield f"  people's preferences, ties left out, that are the critic's: {_number(machine.agreement, 1, unit=' %')}"
    yield f"    one person's that are another's: {_number(machine.between_people, 1, unit=' %')}"
    yield f"  Krippendorff's alpha of preference with it as one more annotator: {_number(machine.alpha_preference, 3)}"
    yield f"  correlation of its values with mean ratings: stories {_number(machine.stories, 3)},"
    yield f"    sentences {_number(machine.sentences, 3)}"


def _errors(errors: list[Errors], paper: dict[str, tuple[int, int]]) -> Iterator[str]:
    if not errors:
        yield "Error sheet (appendix B): not filled in; open /errors of fabula judge serve"
        return
    yield "Error sheet (appendix B) of the lowest-rated stories:"
    for one in errors:
        yield (
            f"  {one.system or 'all systems'}: ending not connected {one.ending} of {one.stories}, mildly off topic "
            f"{one.off_topic} of {one.stories}, ungrammatical {one.ungrammatical} of {one.sentences} sentences"
        )
    yield (
        f"  paper: ending not connected {paper['ending'][0]} of {paper['ending'][1]}, mildly off topic "
        f"{paper['off_topic'][0]} of {paper['off_topic'][1]}, ungrammatical {paper['ungrammatical'][0]} of "
        f"{paper['ungrammatical'][1]} sentences"
    )


def _number(figure: Figure, digits: int, sd: float | None = None, unit: str = "") -> str:
    if figure.value is None:
        return "none"
    spread = f" ± {sd:.{digits}f}" if sd is not None else ""
    told = f"{figure.value:.{digits}f}{spread}{unit}"
    if figure.interval is None:
        return told
    low, high = figure.interval
    return f"{told} [{low:.{digits}f}, {high:.{digits}f}]"


def as_csv(report: Report) -> str:
    """Every figure in a line of its own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(report))
    return out.getvalue()


def rows(report: Report) -> Iterator[Row]:
    def line(
        figure: Figure,
        measure: str,
        group: str = "",
        comparison: str = "",
        system: str = "",
        paper: float | None = None,
    ) -> Row:
        low, high = figure.interval or (None, None)
        return group, comparison, system, measure, figure.value, low, high, paper

    def plain(value: float | int | None, *names: str, paper: float | int | None = None) -> Row:
        group, comparison, system, measure = names
        return group, comparison, system, measure, value, None, None, paper

    for group in report.groups:
        for one in group.comparisons:
            name = " : ".join(one.systems)
            at = {"group": group.name, "comparison": name}
            for row in one.rows:
                paper = row.paper or NO_PAPER
                yield line(row.coherence, "coherence", **at, system=row.system, paper=paper.mean)
                yield plain(row.sd, group.name, name, row.system, "coherence sd", paper=paper.sd)
                yield plain(row.ratings, group.name, name, row.system, "ratings")
                yield line(row.best, "best story %", **at, system=row.system, paper=paper.best)
            yield line(one.ties, "ties %", **at, paper=(one.rows[0].paper or NO_PAPER).ties)
            yield plain(one.pairs, group.name, name, "", "pairs")
            yield plain(one.judgements, group.name, name, "", "judgements")
        yield line(group.alpha_ratings, "alpha of ratings", group.name)
        yield line(group.alpha_preference, "alpha of preference", group.name)
        for strength in group.strengths:
            yield line(strength.strength, "Bradley-Terry strength", group.name, system=strength.system)
    times = report.times
    yield plain(times.first_quartile, "", "", "", "seconds, first quartile")
    yield plain(times.median, "", "", "", "seconds, median")
    yield plain(times.third_quartile, "", "", "", "seconds, third quartile")
    for person in report.annotators:
        yield plain(person.judgements, "", "", "", f"pairs judged by {person.code}")
        yield plain(person.passed, "", "", "", f"checks passed by {person.code}")
        yield plain(person.checks, "", "", "", f"checks seen by {person.code}")
    if report.machine is not None:
        critic = report.machine
        yield line(critic.agreement, "people's preferences shared by the critic %", system=critic.model)
        yield line(critic.between_people, "people's preferences shared by another person %")
        yield line(critic.alpha_preference, "alpha of preference with the critic", system=critic.model)
        yield line(critic.stories, "correlation with the critic, stories", system=critic.model)
        yield line(critic.sentences, "correlation with the critic, sentences", system=critic.model)
    paper_errors = report.paper_errors
    for errors in report.errors:
        system = errors.system or "all"
        yield plain(errors.stories, "", "", system, "stories with an error sheet", paper=paper_errors["ending"][1])
        yield plain(errors.ending, "", "", system, "ending not connected", paper=paper_errors["ending"][0])
        yield plain(errors.off_topic, "", "", system, "mildly off topic", paper=paper_errors["off_topic"][0])
        yield plain(errors.sentences, "", "", system, "written sentences", paper=paper_errors["ungrammatical"][1])
        yield plain(errors.ungrammatical, "", "", system, "ungrammatical", paper=paper_errors["ungrammatical"][0])
