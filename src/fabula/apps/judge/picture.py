"""A report as a picture: who is preferred, how coherent, how strong. Plain SVG, legible in light and dark."""

from __future__ import annotations

from xml.sax.saxutils import escape

from fabula.apps.judge.report import Comparison, Group, Report
from fabula.apps.judge.statistics import Figure

WIDTH, LEFT, RIGHT = 740, 160.0, 700.0
LONGEST_LABEL = 20
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.head { font-size: 15px; font-weight: 600; }
.small { font-size: 11px; fill: #57606a; }
.ground { fill: #ffffff; }
.one { fill: #1f6f8b; } .tie { fill: #b8bfc6; } .other { fill: #c2571a; }
.in { fill: #ffffff; font-weight: 600; } .in-tie { fill: #24292f; }
.line { stroke: #24292f; stroke-width: 2; } .axis { stroke: #d0d7de; stroke-width: 1; } .dot { fill: #24292f; }
.paper { fill: none; stroke: #8250df; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .small { fill: #9198a1; } .ground { fill: #0d1117; }
  .one { fill: #2f8fae; } .tie { fill: #4a525b; } .other { fill: #d0692c; } .in-tie { fill: #e6edf3; }
  .line { stroke: #e6edf3; } .axis { stroke: #30363d; } .dot { fill: #e6edf3; } .paper { stroke: #b58cff; }
}
"""


class Sheet:
    """Elements one below the other."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.y = 20

    def text(self, x: float, words: str, kind: str = "", *, anchor: str = "start", down: float = 0.0) -> None:
        made = f'<text x="{x:.1f}" y="{self.y + down:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'
        self.parts.append(made)

    def shape(self, made: str) -> None:
        self.parts.append(made)


def svg(report: Report) -> str:
    """The picture of the first group: everyone; and of the second where there is one."""
    sheet = Sheet()
    for group in report.groups:
        _draw(sheet, group)
    body = "\n".join(sheet.parts)
    height = sheet.y + 10
    told = f"Judgements of {report.pairs} pairs of stories: preferences, coherence and strengths of the systems"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(told)}">\n<style>{STYLE}</style>\n'
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>\n{body}\n</svg>\n'
    )


def _draw(sheet: Sheet, group: Group) -> None:
    sheet.y += 10
    sheet.text(20.0, f"{group.name.capitalize()}: {group.annotators} annotators, {group.judgements} judgements", "head")
    if not group.judgements:
        sheet.y += 30
        return
    sheet.y += 28
    sheet.text(20.0, "Which story connects its beginning and end better, per cent")
    for one in group.comparisons:
        _bar(sheet, one)
    sheet.y += 40
    sheet.text(20.0, "Coherence of sentences, 0 to 3; lines are 95 % intervals, rings the paper's means")
    _scale(sheet, 0.0, 3.0, ["0", "1", "2", "3"])
    for one in group.comparisons:
        for row in one.rows:
            name = f"{row.system} ({' : '.join(one.systems)})" if len(group.comparisons) > 1 else row.system
            _dot(sheet, name, row.coherence, 0.0, 3.0, row.paper.mean if row.paper else None)
    known = [strength for strength in group.strengths if strength.strength.value is not None]
    if known:
        ends = [abs(end) for one in known for end in (one.strength.value, *(one.strength.interval or ())) if end]
        most = max([0.5, *ends]) * 1.1
        sheet.y += 40
        sheet.text(20.0, "Bradley–Terry strength, log odds")
        _scale(sheet, -most, most, [f"{-most:.1f}", "0", f"{most:.1f}"])
        for strength in known:
            _dot(sheet, strength.system, strength.strength, -most, most, None)
    sheet.y += 30


def _bar(sheet: Sheet, one: Comparison) -> None:
    sheet.y += 34
    first, second = one.rows
    shares = [("one", first.best.value or 0.0), ("tie", one.ties.value or 0.0), ("other", second.best.value or 0.0)]
    sheet.text(LEFT - 10, _short(first.system), anchor="end", down=4.0)
    at = LEFT
    span = RIGHT - LEFT - 90
    for kind, share in shares:
        width = span * share / 100
        sheet.shape(f'<rect class="{kind}" x="{at:.1f}" y="{sheet.y - 12}" width="{width:.1f}" height="24"/>')
        if width > 34:
            ink = "in-tie" if kind == "tie" else "in"
            sheet.text(at + width / 2, f"{share:.0f}", ink, anchor="middle", down=5.0)
        at += width
    sheet.text(LEFT + span + 10, _short(second.system)[:12], down=4.0)
    if first.paper and second.paper:
        sheet.y += 24
        told = f"the paper: {first.paper.best} : {first.paper.ties} tie : {second.paper.best}"
        sheet.text(LEFT, told, "small", down=2.0)


def _scale(sheet: Sheet, low: float, high: float, labels: list[str]) -> None:
    sheet.y += 22
    for number, label in enumerate(labels):
        sheet.text(_x(low + (high - low) * number / (len(labels) - 1), low, high), label, "small", anchor="middle")
    sheet.y += 4


def _dot(sheet: Sheet, name: str, figure: Figure, low: float, high: float, paper: float | None) -> None:
    sheet.y += 22
    sheet.text(LEFT - 10, _short(name), anchor="end", down=4.0)
    sheet.shape(f'<line class="axis" x1="{LEFT}" x2="{RIGHT}" y1="{sheet.y}" y2="{sheet.y}"/>')
    if figure.value is None:
        return
    if figure.interval is not None:
        left, right = (_x(end, low, high) for end in figure.interval)
        sheet.shape(f'<line class="line" x1="{left:.1f}" x2="{right:.1f}" y1="{sheet.y}" y2="{sheet.y}"/>')
    sheet.shape(f'<circle class="dot" cx="{_x(figure.value, low, high):.1f}" cy="{sheet.y}" r="5"/>')
    if paper is not None:
        sheet.shape(f'<circle class="paper" cx="{_x(paper, low, high):.1f}" cy="{sheet.y}" r="7"/>')


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"


def _x(value: float, low: float, high: float) -> float:
    return LEFT + (RIGHT - LEFT) * (value - low) / (high - low)
