"""Plots as SVG text, drawn by hand: they print, need no script, and follow the page's colours."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil, floor, isfinite, log10

WIDTH = 760
HALF = 470
"""Width of plots that share a row."""
ROW = 26
LEFT = 110
"""Room for names to the left of dots and lines."""
LETTER = 8  # upper bound of the average width of a letter


def dots(rows: Sequence[tuple[str, float, float, float]], title: str) -> str:
    """Means with their intervals, one row each, on a common axis that begins at zero."""
    ticks = _ticks(0.0, max((high for _, _, _, high in rows), default=1.0))
    left = max(LEFT, 20 + LETTER * max((len(name) for name, *_ in rows), default=0))
    x = _Scale(0.0, ticks[-1], left, HALF - 60)
    height = ROW * len(rows) + 40
    parts = [_grid(ticks, x, 8, height - 28)]
    for k, (name, mean, low, high) in enumerate(rows):
        y = 20 + ROW * k
        tone = "strong" if k == 0 else "plain"
        parts.append(_text(left - 12, y + 4, name, "end"))
        parts.append(f'<line class="{tone}" x1="{x(low)}" x2="{x(high)}" y1="{y}" y2="{y}"/>')
        parts.append(f'<circle class="{tone}" cx="{x(mean)}" cy="{y}" r="5"/>')
        parts.append(_text(x(high) + 8, y + 4, f"{mean:.2f}", "start", "value"))
    return _svg(HALF, height, parts, title)


def lines(
    xs: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    title: str,
    below: str,
    band: Sequence[tuple[float, float]] | None = None,
) -> str:
    """One or several lines over named places on the x axis; ``band`` is the first one's."""
    height, top = 230, 28
    known = [v for _, values in series for v in values if isfinite(v)]
    known += [v for ends in band or () for v in ends]
    ticks = _ticks(min(known, default=0.0), max(known, default=1.0))
    y = _Scale(ticks[0], ticks[-1], height - 46, top)
    x = _Scale(0, max(1, len(xs) - 1), 70, HALF - 90)
    parts = []
    for tick in ticks:
        parts.append(f'<line class="grid" x1="56" x2="{HALF - 74}" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(_text(50, y(tick) + 4, f"{tick:g}", "end", "small"))
    parts += [_text(x(k), height - 26, name, "middle", "small") for k, name in enumerate(xs)]
    parts.append(_text((70 + HALF - 90) / 2, height - 6, below, "middle", "small"))
    if band is not None:
        upper = [f"{x(k)},{y(high)}" for k, (_, high) in enumerate(band)]
        lower = [f"{x(k)},{y(low)}" for k, (low, _) in reversed(list(enumerate(band)))]
        parts.append(f'<polygon class="band" points="{" ".join(upper + lower)}"/>')
    for n, (name, values) in enumerate(series):
        points = [(x(k), y(v)) for k, v in enumerate(values) if isfinite(v)]
        tone = "strong" if n == 0 else "plain"
        joined = " ".join(f"{a},{b}" for a, b in points)
        parts.append(f'<polyline class="{tone}" points="{joined}"/>')
        parts += [f'<circle class="{tone}" cx="{a}" cy="{b}" r="4"/>' for a, b in points]
        if points:
            parts.append(_text(points[-1][0] + 10, points[-1][1] + 4, name, "start", "small"))
    return _svg(HALF, height, parts, title)


def between(rows: Sequence[tuple[str, float, float, float]], title: str) -> str:
    """Where a measure lies between its floor and its control: (name, floor, value, control)."""
    ticks = _ticks(0.0, max((max(row[1:]) for row in rows), default=1.0))
    x = _Scale(0.0, ticks[-1], LEFT, WIDTH - 60)
    height = 52 * len(rows) + 40
    parts = [_grid(ticks, x, 8, height - 28)]
    for k, (name, least, value, control) in enumerate(rows):
        y = 34 + 52 * k
        parts.append(_text(LEFT - 12, y + 4, name, "end"))
        ends = f'x1="{x(least)}" x2="{x(control)}" y1="{y}" y2="{y}"'
        parts.append(f'<line class="plain" {ends}/>')
        for at, word, side in ((least, "floor", "start"), (control, "control", "middle")):
            parts.append(f'<circle class="plain" cx="{x(at)}" cy="{y}" r="4"/>')
            parts.append(_text(x(at), y + 20, f"{word} {at:.3f}", side, "small"))
        parts.append(f'<circle class="strong" cx="{x(value)}" cy="{y}" r="6"/>')
        parts.append(_text(x(value), y - 12, f"{value:.3f}", "middle", "value"))
    return _svg(WIDTH, height, parts, title)


def _grid(ticks: Sequence[float], x: _Scale, top: float, bottom: float) -> str:
    """Vertical lines with their values below."""
    return "".join(
        f'<line class="grid" x1="{x(t)}" x2="{x(t)}" y1="{top}" y2="{bottom}"/>'
        + _text(x(t), bottom + 18, f"{t:g}", "middle", "small")
        for t in ticks
    )


class _Scale:
    """A linear map from values to places on the page."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.start = low, start
        self.slope = (end - start) / ((high - low) or 1.0)

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) * self.slope, 1)


def _ticks(low: float, high: float) -> list[float]:
    """About five round values that enclose an interval.

    >>> _ticks(0.0, 38.7)
    [0.0, 10.0, 20.0, 30.0, 40.0]
    """
    if high - low < 1e-12:
        low, high = min(low, 0.0), max(high, 1.0) if high <= 0 else high
    size = 10.0 ** floor(log10((high - low) / 4 or 1.0))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if (high - low) / (size * m) <= 5)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]


def _text(x: float, y: float, text: str, anchor: str, tone: str = "name") -> str:
    return f'<text class="{tone}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str], title: str) -> str:
    head = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
    return f"{head}<title>{escape(title)}</title>{''.join(parts)}</svg>"
