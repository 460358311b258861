"""Small plots as SVG, in plain Python: lines over days, bars, bars with intervals. For reports and for the web pages.

    svg = bars({"1": 4, "2": 0, "3": 9}, title="Stars")
    svg = lines(["2026-03-01", "2026-03-02"], {"ratings": [3, 5]}, title="Per day")
    svg = spans({"stars": (0.6, 0.5, 0.7)}, title="Agreement", low=-0.2, high=1.0)

No scripts, no styles from elsewhere: colours follow the text colour of the page (`currentColor`) and one palette, so the pictures
work under a strict content policy and in the dark. Every mark carries its number as a <title>, for screen readers and pointers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

COLOURS = ("#3b6fb6", "#d9822b", "#3f8f5f", "#a0528f", "#7a6a4f", "#b33a3a")
WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 30, 34


def bars(values: Mapping[str, float], *, title: str, unit: str = "") -> str:
    """One bar per name."""
    top, inner = _ceiling(values.values()), WIDTH - LEFT - RIGHT
    step = inner / max(1, len(values))
    out = [_grid(0, top)]
    for at, (name, value) in enumerate(values.items()):
        x, y = LEFT + at * step + step * 0.15, _y(value, 0, top)
        label = f"{name}: {_short(value)}{unit}"
        out.append(_rect(x, y, step * 0.7, HEIGHT - BOTTOM - y, COLOURS[0], label))
        out.append(_text(x + step * 0.35, HEIGHT - BOTTOM + 15, name, "middle"))
        out.append(_text(x + step * 0.35, y - 4, _short(value), "middle"))
    return _picture(title, out)


def lines(days: Sequence[str], series: Mapping[str, Sequence[float | None]], *, title: str) -> str:
    """One line per name over the same days; None leaves a gap."""
    known = [value for values in series.values() for value in values if value is not None]
    top = _ceiling(known)
    out = [_grid(0, top)]
    for at in _labelled(len(days)):
        anchor = "middle" if at < len(days) - 1 or len(days) == 1 else "end"  # the last one would stick out
        out.append(_text(_x(at, len(days)), HEIGHT - BOTTOM + 15, days[at], anchor))
    for number, (name, values) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        for stretch in _stretches(values):
            points = " ".join(f"{_x(at, len(days)):.1f},{_y(value, 0, top):.1f}" for at, value in stretch)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
            out += [_dot(_x(at, len(days)), _y(v, 0, top), colour, f"{name}, {days[at]}: {_short(v)}") for at, v in stretch]
        out.append(_rect(LEFT + 8 + 130 * number, 18, 10, 10, colour, name))
        out.append(_text(LEFT + 22 + 130 * number, 27, name, "start"))
    return _picture(title, out)


def spans(
    values: Mapping[str, tuple[float, float, float]],
    *,
    title: str,
    low: float = 0.0,
    high: float = 1.0,
    mark: float | None = None,
) -> str:
    """Names down the side, a dot with its interval each (value, low, high); `mark` draws a line to compare with."""
    height = TOP + 24 * len(values) + BOTTOM
    left = 150

    def place(value: float) -> float:
        inside = min(max(value, low), high)
        return left + (inside - low) / ((high - low) or 1) * (WIDTH - left - RIGHT)

    out = []
    for tick in (low, (low + high) / 2, high):
        out.append(_line(place(tick), TOP, place(tick), height - BOTTOM, 0.2))
        out.append(_text(place(tick), height - BOTTOM + 15, f"{tick:g}", "middle"))
    if mark is not None:
        out.append(_line(place(mark), TOP, place(mark), height - BOTTOM, 0.9, dashed=True))
    for at, (name, (value, least, most)) in enumerate(values.items()):
        y = TOP + 12 + 24 * at
        label = f"{name}: {value:.2f} ({least:.2f} to {most:.2f})"
        out.append(_text(left - 8, y + 4, name[:24], "end"))
        out.append(_line(place(least), y, place(most), y, 1.0, colour=COLOURS[0], label=label))
        out.append(_dot(place(value), y, COLOURS[0], label))
    return _picture(title, out, height)


def _picture(title: str, parts: Sequence[str], height: float = HEIGHT) -> str:
    name = escape(title)
    size = f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{name}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" fill="currentColor">'
    heading = f'<title>{name}</title><text x="{LEFT}" y="13" font-weight="bold">{name}</text>'
    return f"{head}{heading}{''.join(parts)}</svg>"


def _grid(low: float, high: float) -> str:
    out = []
    for part in range(5):
        value = low + (high - low) * part / 4
        y = _y(value, low, high)
        out.append(_line(LEFT, y, WIDTH - RIGHT, y, 0.15))
        out.append(_text(LEFT - 6, y + 4, _short(value), "end"))
    return "".join(out)


def _ceiling(values: Iterable[float]) -> float:
    """The next round number above all of them, and never 0."""
    most = max(values, default=0.0)
    if most <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(most))
    return float(next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if step * power >= most))


def _labelled(n: int, most: int = 7) -> list[int]:
    """Which of n days get their name written: the first, the last and some between."""
    if n <= most:
        return list(range(n))
    return sorted({round(part * (n - 1) / (most - 1)) for part in range(most)})


def _stretches(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    found: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append((at, value))
    return [stretch for stretch in found if stretch]


def _x(at: int, n: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (at / (n - 1) if n > 1 else 0.5)


def _y(value: float, low: float, high: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / ((high - low) or 1)


def _short(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: str, label: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.0, height):.1f}"'
    return f'<rect {place} fill="{colour}"><title>{escape(label)}</title></rect>'


def _dot(x: float, y: float, colour: str, label: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{escape(label)}</title></circle>'


def _line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    opacity: float,
    *,
    colour: str = "currentColor",
    dashed: bool = False,
    label: str = "",
) -> str:
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    width, dashes = 1 if colour == "currentColor" else 2, ' stroke-dasharray="4 3"' if dashed else ""
    shape = f'<line {place} stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity:g}"{dashes}'
    return f"{shape}><title>{escape(label)}</title></line>" if label else f"{shape}/>"
