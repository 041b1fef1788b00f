"""Pictures as inline SVG: curves, spectra, and where each state takes Z. Colours are the page's own variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT, LEFT, BELOW = 560, 300, 46, 34
DASHES = ("", "6 3", "2 3", "9 3 2 3")
COLOURS = 8
"""Of the page's palette; more lines than that get dashes."""


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover a range."""
    span = high - low
    if not span > 0:
        return [low]
    step = 10.0 ** math.floor(math.log10(span / count))
    step *= next(m for m in (1, 2, 5, 10) if span / (step * m) <= count)
    first = math.ceil(low / step - 1e-9)
    return [round(n * step, 10) for n in range(first, math.floor(high / step + 1e-9) + 1)]


class Frame:
    """A plot's area with its axes; numbers in, places out."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], width: int = WIDTH, height: int = HEIGHT
    ) -> None:
        self.x, self.y, self.width, self.height = _wide(x), _wide(y), width, height

    def at(self, point: Point) -> Point:
        (x0, x1), (y0, y1) = self.x, self.y
        across = LEFT + (point[0] - x0) / (x1 - x0) * (self.width - LEFT - 10)
        down = (self.height - BELOW) - (point[1] - y0) / (y1 - y0) * (self.height - BELOW - 10)
        return round(across, 1), round(down, 1)

    def axes(self, x_title: str, y_title: str) -> str:
        parts = []
        for value in ticks(*self.x):
            across, _ = self.at((value, self.y[0]))
            parts.append(f'<line class="grid" x1="{across}" x2="{across}" y1="10" y2="{self.height - BELOW}"/>')
            parts.append(
                f'<text class="tick" x="{across}" y="{self.height - BELOW + 14}" text-anchor="middle">{value:g}</text>'
            )
        for value in ticks(*self.y):
            _, down = self.at((self.x[0], value))
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{self.width - 10}" y1="{down}" y2="{down}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 5}" y="{down + 4}" text-anchor="end">{value:g}</text>')
        middle = (self.width + LEFT) // 2
        parts.append(
            f'<text class="axis" x="{middle}" y="{self.height - 4}" text-anchor="middle">{escape(x_title)}</text>'
        )
        parts.append(f'<text class="axis" x="11" y="{self.height // 2 - 10}" text-anchor="middle" '
                     f'transform="rotate(-90 11 {self.height // 2 - 10})">{escape(y_title)}</text>')  # fmt: skip
        return "".join(parts)

    def draw(self, inside: str, title: str) -> str:
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(title, quote=True)}">'
            f"{inside}</svg>"
        )


def _wide(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def dash(colour: int) -> str:
    """Colours that come round again are dashed."""
    return DASHES[min(colour // COLOURS, len(DASHES) - 1)]


def figure(frame: Frame, inside: str, title: str, names: Sequence[str]) -> str:
    """A picture with its legend and its caption."""
    drawn = frame.draw(inside, title)
    return f"<figure>{drawn}{legend(names)}<figcaption>{escape(title)}</figcaption></figure>"


def line(frame: Frame, points: Sequence[Point], colour: int, name: str = "") -> str:
    path = " ".join(f"{'M' if n == 0 else 'L'}{x} {y}" for n, (x, y) in enumerate(map(frame.at, points)))
    style = f' stroke-dasharray="{dash(colour)}"' if dash(colour) else ""
    hint = f"<title>{escape(name)}</title>" if name else ""
    return f'<path class="line c{colour % COLOURS}" d="{path}"{style}>{hint}</path>'


def dots(frame: Frame, points: Sequence[Point], colour: int, radius: float, name: str = "") -> str:
    hint = f"<title>{escape(name)}</title>" if name else ""
    circles = "".join(f'<circle cx="{x}" cy="{y}" r="{radius}"/>' for x, y in map(frame.at, points))
    return f'<g class="dot c{colour % COLOURS}">{hint}{circles}</g>'


def legend(names: Sequence[str]) -> str:
    """Names in their colours, as text beside the picture."""
    items = "".join(
        f'<span><svg viewBox="0 0 26 8" class="key">'
        f'<path class="line c{n % COLOURS}" d="M0 4 L26 4" stroke-dasharray="{dash(n) or "none"}"/>'
        f"</svg>{escape(name)}</span>"
        for n, name in enumerate(names)
    )
    return f'<div class="legend">{items}</div>'


def curves(series: dict[str, list[Point]], title: str, x_title: str, y_title: str) -> str:
    """One line for each name."""
    points = [point for line_ in series.values() for point in line_]
    if not points:
        return ""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    frame = Frame((min(xs), max(xs)), (min(ys), max(ys)))
    drawn = "".join(
        line(frame, of, n, name) + dots(frame, of[-1:], n, 2.6, name)
        for n, (name, of) in enumerate(series.items())
        if of
    )
    return figure(frame, frame.axes(x_title, y_title) + drawn, title, list(series))


def spectra(values: Sequence[Sequence[Sequence[float]]], labels: Sequence[str], title: str) -> str:
    """Eigenvalues of every state's A in the complex plane, with the unit circle."""
    points = [(v[0], v[1]) for of in values for v in of]
    reach = max(1.05, *(max(abs(x), abs(y)) * 1.05 for x, y in points))
    frame = Frame((-reach, reach), (-reach, reach), 340, 340)
    circle = [(math.cos(t / 50 * math.pi), math.sin(t / 50 * math.pi)) for t in range(101)]
    path = " ".join(f"{'M' if n == 0 else 'L'}{x} {y}" for n, (x, y) in enumerate(map(frame.at, circle)))
    drawn = f'<path class="unit" d="{path}"/>'
    for k, of in enumerate(values):
        drawn += dots(frame, [(v[0], v[1]) for v in of], k, 3.0, labels[k])
    return figure(frame, frame.axes("real", "imaginary") + drawn, title, labels)


def plane(record: dict[str, object], title: str) -> str:
    """Posterior means of Z on their two main axes, coloured by tag, and where each state takes Z from nothing."""
    cloud: list[list[float]] = record["cloud"]  # type: ignore[assignment]
    tags: list[int] = record["cloud_tags"]  # type: ignore[assignment]
    paths: list[list[list[float]]] = record["from_nothing"]  # type: ignore[assignment]
    labels: list[str] = record["labels"]  # type: ignore[assignment]
    points = [(p[0], p[1]) for p in [*cloud, *(p for path in paths for p in path)]]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    frame = Frame((min(xs), max(xs)), (min(ys), max(ys)), 420, 340)
    drawn = ""
    for k, label in enumerate(labels):
        own = [(p[0], p[1]) for p, tag in zip(cloud, tags, strict=True) if tag == k]
        drawn += f'<g class="faint">{dots(frame, own, k, 2.0, label)}</g>'
    for k, path in enumerate(paths):
        steps = [(p[0], p[1]) for p in path]
        drawn += line(frame, steps, k, labels[k]) + dots(frame, steps, k, 3.4, labels[k])
    return figure(frame, frame.axes("first axis", "second axis") + drawn, title, labels)
