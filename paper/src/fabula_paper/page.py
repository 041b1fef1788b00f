"""The report as one page that needs nothing else: style and pictures inside, light and dark."""

from __future__ import annotations

from html import escape
from importlib import resources

from fabula_paper import pictures
from fabula_paper.bars import MET, MISSED
from fabula_paper.claims import FAILS, HOLDS, TRAINING, Verdict
from fabula_paper.figures import NOT_RUN, Figure, Table
from fabula_paper.markdown import INTRODUCTIONS, TITLES, gap, ours, paper
from fabula_paper.report import Report, Trained
from fabula_paper.stories import english

SCROLL = "<div class='scroll' tabindex='0'>"
"""What is wider than the screen scrolls by itself, by keys too."""
CLASSES = {HOLDS: "good", MET: "good", FAILS: "bad", MISSED: "bad", NOT_RUN: "none"}


def render(report: Report) -> str:
    style = (resources.files("fabula_paper") / "page.css").read_text(encoding="utf-8")
    sections = [
        ("claims", "The claims", verdicts(report.claims)),
        ("bars", "What was wanted", verdicts(report.bars)),
        *((key, TITLES[key], section(key, tables)) for key, tables in report.tables.items()),
        ("training", "Training", training(report)),
        ("dynamics", "The learned dynamics", dynamics(report)),
        ("stories", "Filled-in stories", stories(report)),
        ("records", "Records", records(report)),
    ]
    links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in sections)
    body = "".join(
        f'<section id="{key}"><h2>{escape(title)}</h2>{content}</section>' for key, title, content in sections
    )
    warning = ""
    if report.scale.name == "small":
        warning = (
            '<p class="warning">Made at toy size, to show the way: no figure here says anything about the paper.</p>'
        )
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in report.facts.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>The paper's tables, side by side</title>"
        f"<style>{style}</style></head><body><header><h1>The paper's tables, side by side</h1>"
        "<p>Weber, Shekhar, Kwon, Balasubramanian and Chambers, “Generating Narrative Text in a Switching Dynamical "
        "System” (CoNLL 2020), every table beside ours. In each cell: the paper's figure, ours with a 95 % bootstrap "
        "interval, the difference. A number of ours leads to the line of its record, which is in "
        "records.jsonl.xz. ≤ marks a bound.</p>"
        f"{warning}{tally(report)}<details><summary>Where the figures come from</summary><dl>{facts}</dl></details>"
        f"<nav>{links}</nav></header><main>{body}</main></body></html>\n"
    )


def tally(report: Report) -> str:
    def count(found: list[Verdict]) -> str:
        words = {verdict.verdict for verdict in found}
        ordered = sorted(words, key=lambda word: (CLASSES.get(word, "open"), word))
        return ", ".join(f"{sum(v.verdict == word for v in found)} {chip(word)}" for word in ordered)

    return f"<p>Claims of the paper: {count(report.claims)}. Bars of this project: {count(report.bars)}.</p>"


def chip(word: str) -> str:
    return f'<span class="chip {CLASSES.get(word.removesuffix(TRAINING), "open")}">{escape(word)}</span>'


def verdicts(found: list[Verdict]) -> str:
    rows = []
    for verdict in found:
        first, *rest = verdict.evidence or ("",)
        more = "".join(f"<li>{escape(line)}</li>" for line in rest)
        hidden = f"<details><summary>{len(rest)} more</summary><ul>{more}</ul></details>" if len(rest) > 3 else ""
        told = hidden or (f"<ul>{more}</ul>" if more else "")
        rows.append(
            f"<tr><td>{chip(verdict.verdict)}</td><td>{escape(verdict.claim)}</td>"
            f"<td class='evidence'>{escape(first)}{told}</td></tr>"
        )
    return f'{SCROLL}<table class="verdicts">{"".join(rows)}</table></div>'


def section(key: str, tables: list[Table]) -> str:
    intro = INTRODUCTIONS.get(key, "")
    return (f"<p>{escape(intro)}</p>" if intro else "") + "".join(table(t) for t in tables)


def table(t: Table) -> str:
    groups = "".join(
        f'<th colspan="3" class="group">{escape(name)}</th>' if beside else f'<th rowspan="2">{escape(name)}</th>'
        for name, beside in zip(t.columns, t.beside_paper, strict=True)
    )
    lead = "".join(f'<th rowspan="2" class="lead">{escape(name)}</th>' for name in t.lead)
    under = "".join("<th>paper</th><th>ours</th><th>diff.</th>" for beside in t.beside_paper if beside)
    best = best_cells(t)
    rows = []
    for n, row in enumerate(t.rows):
        cells = "".join(f'<th scope="row" class="lead">{escape(word)}</th>' for word in row.lead)
        for m, figure in enumerate(row.figures):
            mark = " best" if (n, m) in best else ""
            if t.beside_paper[m]:
                cells += f'<td class="paper">{paper(figure)}</td><td class="ours{mark}">{linked(figure)}</td>'
                cells += f'<td class="{better(figure, t.larger_is_better[m])}">{gap(figure)}</td>'
            else:
                cells += f'<td class="ours{mark}">{linked(figure)}</td>'
        rows.append(f"<tr{' class=own' if row.own else ''}>{cells}</tr>")
    intro = f"<p>{escape(t.intro)}</p>" if t.intro else ""
    second = f"<tr>{under}</tr>" if under else "<tr></tr>"
    return (
        f"<h3>{escape(t.title)}</h3>{intro}{SCROLL}<table><thead><tr>{lead}{groups}</tr>{second}</thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def best_cells(t: Table) -> set[tuple[int, int]]:
    """The best of ours in every column that has a better end."""
    found = set()
    for m, larger in enumerate(t.larger_is_better):
        known = [(row.figures[m].ours, n) for n, row in enumerate(t.rows) if row.figures[m].ours is not None]
        if larger is None or len(known) < 2:
            continue
        values = [value for value, _ in known if value is not None]
        top = max(values) if larger else min(values)
        found |= {(n, m) for value, n in known if value == top}
    return found


def linked(figure: Figure) -> str:
    """Our number, which leads to its record; the interval beside it in small letters."""
    text = ours(figure)
    if figure.ours is None:
        return f'<span class="none">{escape(text)}</span>'
    number, bracket, interval = text.partition(" [")
    small = f" <small>[{escape(interval)}</small>" if bracket else ""
    return f'<a href="#{escape(figure.record)}" title="{escape(figure.kind)}">{escape(number)}</a>{small}'


def better(figure: Figure, larger: bool | None) -> str:
    if figure.difference is None or larger is None or abs(figure.difference) < 10**-figure.digits / 2:
        return "gap"
    return "gap good" if (figure.difference > 0) == larger else "gap bad"


def training(report: Report) -> str:
    listed = "".join(f"<li>{escape(line)}</li>" for line in report.deviations)
    rows = "".join(
        f"<tr><th class='lead'>{escape(title)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for title, *cells in (line.cells for line in report.trained)
    )
    heads = "".join(f"<th>{escape(head)}</th>" for head in Trained.HEADS[1:])
    picture = pictures.curves(
        report.curves, "Validation: negative bound, S summed out, where it is tight, by epoch", "epoch", "nats a story"
    )
    return (
        f"<p>The recipes are recipes/paper/*.toml; what was changed for this report:</p><ul>{listed}</ul>{picture}"
        f"{SCROLL}<table><thead><tr><th class='lead'>system</th>"
        f"{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def dynamics(report: Report) -> str:
    parts = [
        "<p>Left: eigenvalues of each state's A, with the unit circle: inside it a direction of Z is forgotten. Right: "
        "posterior means of Z of test sentences on their two main axes, and where each state takes Z from nothing in "
        "five steps. Below: the model's own first sentence, then the second under every state, greedily, all else "
        "equal.</p>"
    ]
    for n, (system, record) in enumerate(report.dynamics):
        pair = pictures.spectra(record["spectrum"], record["labels"], f"{system.title}: eigenvalues of A")
        pair += pictures.plane(record, f"{system.title}: where each state takes Z")
        rows = "".join(
            f"<tr><th class='lead'>{escape(label)}</th><td>{record['radius'][k]:.3f}</td>"
            f"<td>{record['bias_norm'][k]:.3f}</td><td>{record['noise'][k]:.3f}</td></tr>"
            for k, label in enumerate(record["labels"])
        )
        changed = "".join(
            f"<tr><td>{escape(english(e['first']))}</td>"
            + "".join(f"<td>{escape(english(e[k]))}</td>" for k in record["labels"])
            + "</tr>"
            for e in record["changed"]
        )
        heads = "".join(f"<th>second, {escape(label)}</th>" for label in record["labels"])
        inner = (
            f"<div class='pair'>{pair}</div>{SCROLL}<table><thead><tr><th class='lead'>state</th>"
            "<th>spectral radius of A</th><th>norm of b</th><th>noise</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></div>{SCROLL}<table class='text'><thead><tr><th>first</th>"
            f"{heads}</tr></thead><tbody>{changed}</tbody></table></div>"
        )
        opened = " open" if n == 0 else ""
        parts.append(f"<details{opened}><summary>{escape(system.title)}</summary>{inner}</details>")
    return "".join(parts) if report.dynamics else f"<p>{NOT_RUN}</p>"


def stories(report: Report) -> str:
    parts = [
        "<p>First and last sentence given, the middle three written: the first stories of the seeded draw, the same "
        "for everyone, chosen by nobody. Given sentences belong to the corpus and are not printed; who has it can show "
        "them here with fabula reproduce --texts.</p>"
    ]
    for group in report.samples:
        items = []
        for story in group.stories:
            lines = "".join(
                f"<li class='{'wrote' if wrote else 'given'}'>{escape(line) if line is not None else '[given]'}</li>"
                for line, wrote in zip(story.lines, story.written, strict=True)
            )
            items.append(f"<article><code>{escape(story.id)}</code><ol>{lines}</ol></article>")
        parts.append(
            f"<details><summary>{escape(group.title)}</summary><div class='stories'>{''.join(items)}</div></details>"
        )
    return "".join(parts) if report.samples else f"<p>{NOT_RUN}</p>"


def records(report: Report) -> str:
    rows = "".join(
        f"<tr id='{escape(u['unit'])}'><td>{escape(u['unit'])}</td><td>{u.get('n', '')}</td>"
        f"<td>{escape(str(u.get('commit', '')))}</td><td>{escape(str(u.get('recipe') or ''))}</td>"
        f"<td>{escape(str(u.get('weights') or ''))}</td><td>{escape(str(u.get('device', '')))}</td>"
        f"<td>{u.get('seconds', '')}</td></tr>"
        for u in report.units
    )
    mixed = ""
    if report.mixed:
        names = escape(", ".join(report.mixed))
        mixed = f"<p class='warning'>Records of different weights stand side by side for {names}.</p>"
    return (
        f"{mixed}<details><summary>{len(report.units)} records</summary>{SCROLL}<table class='text'>"
        "<thead><tr><th>unit</th><th>n</th><th>commit</th><th>recipe</th><th>weights</th><th>machine</th>"
        "<th>seconds</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></details>"
    )
