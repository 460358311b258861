"""Small plots as SVG, in plain Python: lines over days, bars, bars with intervals, a band. For reports and the pages.

    svg = bars({"1": 4, "2": 0, "3": 9}, title="Stars")
    svg = lines(["1 Mar", "2 Mar"], {"ratings": [3, 5]}, title="Per day", about="8 ratings in two days")
    svg = curves({"held-out": {0: 0.2, 10: 0.4}}, title="Reward", bands={"held-out": {0: (0.1, 0.3), 10: (0.3, 0.5)}})
    svg = spans({"stars": (0.6, 0.5, 0.7)}, title="Agreement", low=-0.2, high=1.0)
    svg = band([(100, 0.1, -0.1, 0.3), (200, 0.2, 0.05, 0.35)], title="Difference by users")

No scripts and no external styles, so the plots work under a strict content security policy: texts have the colour of the page
(`currentColor`), marks a palette that is visible on light and dark. Screen readers read `about`, and every mark has its number as
a <title> for pointers. What has one point only is written as a value. `standalone` makes a file of a plot, which has no page to
take a colour from.
"""

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape

COLOURS = ("#3b6fb6", "#c8741c", "#3f8f5f", "#a0528f", "#8a7550", "#c04545")  # 3:1 or more on white and on the dark ground
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 4")  # lines differ by more than colour
WIDTH, HEIGHT = 520, 260
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 36, 30
LEGEND_ROW = 22  # pixels
ROW = 26  # of one interval
VALUE_ROW = 40  # of one number that stands for a plot
FONT = 13
LIGHT, DARK = "#17202b", "#e9eef4"  # text of a standalone plot


def bars(values: Mapping[str, float], *, title: str, unit: str = "", about: str = "") -> str:
    """One bar per name, with its number on top."""
    ticks = _ticks(values.values())
    step = (WIDTH - LEFT - RIGHT) / max(1, len(values))
    out = [_grid(ticks, TOP)]
    for index, (name, value) in enumerate(values.items()):
        x, y = LEFT + index * step + step * 0.15, _y(value, ticks, TOP)
        out.append(_rect(x, y, step * 0.7, HEIGHT - BOTTOM - y, COLOURS[0], f"{name}: {_short(value)}{unit}"))
        out.append(_text(x + step * 0.35, HEIGHT - BOTTOM + 18, name, "middle"))
        out.append(_text(x + step * 0.35, y - 5, _short(value), "middle"))
    return _picture(title, out, about=about)


def lines(days: Sequence[str], series: Mapping[str, Sequence[float | None]], *, title: str, about: str = "") -> str:
    """One line per name over the same days; None leaves a gap. The legend is above the grid."""
    if len(days) == 1:
        known = {f"{name}, {days[0]}": (values[0], None) for name, values in series.items() if values[0] is not None}
        return _values(known, title=title, about=about)
    legend, rows = _legend(list(series))
    start = TOP + rows * LEGEND_ROW
    ticks = _ticks(value for values in series.values() for value in values if value is not None)
    out, n = [_grid(ticks, start), *legend], len(days)
    out += [_text(_x(index, n), HEIGHT - BOTTOM + 18, days[index], anchor) for index, anchor in _day_labels(days)]
    for number, (name, values) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        for segment in _segments(values):
            placed = [
                (_x(index, n), _y(value, ticks, start), f"{name}, {days[index]}: {_short(value)}") for index, value in segment
            ]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in placed)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{_dashed(number)}/>')
            out += [_dot(x, y, colour, label, 3.5 if n <= 31 else 1.5) for x, y, label in placed]
    return _picture(title, out, about=about)


def curves(
    series: Mapping[str, Mapping[int, float]],
    *,
    title: str,
    bands: Mapping[str, Mapping[int, tuple[float, float]]] | None = None,
    marks: Mapping[str, float] | None = None,
    about: str = "",
    step_name: str = "step",
) -> str:
    """One line per name over the steps of a run, at their places on the scale; a line goes on where it has no value.

    `bands` are the intervals of a line, `marks` named values to compare with, such as a target.
    """
    bands, marks = bands or {}, marks or {}
    if all(len(values) <= 1 for values in series.values()):
        points = [(name, step, value) for name, values in series.items() for step, value in values.items()]
        shown = {f"{name}, {step_name} {step:,}": (value, bands.get(name, {}).get(step)) for name, step, value in points}
        return _values(shown | {name: (value, None) for name, value in marks.items()}, title=title, about=about)
    steps = {step for values in series.values() for step in values}
    legend, rows = _legend(list(series))
    start = TOP + rows * LEGEND_ROW
    bounds = [bound for band in bands.values() for interval in band.values() for bound in interval]
    ticks = _ticks([*(value for values in series.values() for value in values.values()), *bounds, *marks.values()])
    first, last = min(steps), max(steps)

    def place(step: int, value: float) -> tuple[float, float]:
        share = (step - first) / (last - first)
        return LEFT + 8 + (WIDTH - LEFT - RIGHT - 16) * share, _y(value, ticks, start)

    out = [_grid(ticks, start), *legend]
    out += [_text(place(step, 0)[0], HEIGHT - BOTTOM + 18, f"{step:,}", "middle") for step in _round_steps(first, last)]
    for name, value in marks.items():
        y = _y(value, ticks, start)
        out.append(_line(LEFT, y, WIDTH - RIGHT, y, 0.9, dashed=True, label=f"{name}: {_short(value)}"))
        out.append(_text(WIDTH - RIGHT, y - 5, f"{name} {_short(value)}", "end"))
    for number, (name, values) in enumerate(series.items()):
        colour, band = COLOURS[number % len(COLOURS)], bands.get(name, {})
        edge = [place(step, band[step][1]) for step in sorted(band)] + [
            place(step, band[step][0]) for step in sorted(band, reverse=True)
        ]
        if len(band) > 1:
            out.append(f'<polygon points="{_points(edge)}" fill="{colour}" fill-opacity="0.2" stroke="none"/>')
        elif band:
            out.append(_line(*edge[0], *edge[1], 1.0, colour=colour))
        line = [place(step, values[step]) for step in sorted(values)]
        out.append(f'<polyline points="{_points(line)}" fill="none" stroke="{colour}" stroke-width="2"{_dashed(number)}/>')
        for step in sorted(values):
            interval = f" ({band[step][0]:.3g} to {band[step][1]:.3g})" if step in band else ""
            label = f"{name}, {step:,}: {_short(values[step])}{interval}"
            out.append(_dot(*place(step, values[step]), colour, label, 3.5 if len(values) <= 31 else 1.5))
    return _picture(title, out, about=about)


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _round_steps(first: int, last: int, most: int = 7) -> list[int]:
    """Whole steps at equal distances: multiples of 1, 2 or 5 times a power of ten."""
    reach = max(1, last - first)
    power = 10 ** max(0, math.floor(math.log10(reach / most)))
    step = next(part * power for part in (1, 2, 5, 10, 20) if reach / (part * power) <= most)
    return list(range(math.ceil(first / step) * step, last + 1, step))


def spans(
    values: Mapping[str, tuple[float, float, float]],
    *,
    title: str,
    low: float = 0.0,
    high: float = 1.0,
    mark: float | None = None,
    about: str = "",
) -> str:
    """A dot with its interval (value, low, high) for each name; `mark` draws a line to compare with."""
    names = {name: shortened(name, 26 * FONT // 2) for name in values}
    left, top = 22 + max((_width(name) for name in names.values()), default=0), TOP + (16 if mark else 0)
    bottom = top + ROW * len(values)

    def place(value: float) -> float:
        return left + (min(max(value, low), high) - low) / ((high - low) or 1) * (WIDTH - left - RIGHT - 6)

    out = []
    for tick in _between(low, high):
        out += [_line(place(tick), top, place(tick), bottom, 0.25), _text(place(tick), bottom + 18, f"{tick:g}", "middle")]
    if mark is not None:
        out.append(_line(place(mark), top, place(mark), bottom, 0.9, dashed=True))
        out += [_text(place(mark), top - 4, f"{mark:.2g}", "middle")] if mark else []
    for index, (name, (value, lower, upper)) in enumerate(values.items()):
        y, label = top + ROW / 2 + ROW * index, f"{name}: {value:.2f} ({lower:.2f} to {upper:.2f})"
        out.append(_text(left - 10, y + 4, names[name], "end"))
        out.append(_line(place(lower), y, place(upper), y, 1.0, colour=COLOURS[0], label=label))
        out.append(_dot(place(value), y, COLOURS[0], label, 4.5))
    return _picture(title, out, bottom + BOTTOM, about=about)


def band(points: Sequence[tuple[float, float, float, float]], *, title: str, marks: Sequence[float] = (), about: str = "") -> str:
    """A line inside the band of its interval, as (x, value, low, high); `marks` are dashed lines to compare with, beside 0."""
    if len(points) == 1:
        ((x, value, low, high),) = points
        return _values({_short(x): (value, (low, high))}, title=title, about=about, signed=True)
    ticks = _ticks([*(bound for point in points for bound in point[2:]), *marks])
    last = max((point[0] for point in points), default=1.0)
    first = min((point[0] for point in points), default=0.0)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + 8 + (WIDTH - LEFT - RIGHT - 8) * ((x - first) / ((last - first) or 1)), _y(y, ticks, TOP)

    out = [_grid(ticks, TOP), _line(LEFT, _y(0, ticks, TOP), WIDTH - RIGHT, _y(0, ticks, TOP), 0.9)]
    out += [_line(LEFT, _y(mark, ticks, TOP), WIDTH - RIGHT, _y(mark, ticks, TOP), 0.9, dashed=True) for mark in marks]
    edge = [place(x, high) for x, _, _, high in points] + [place(x, low) for x, _, low, _ in reversed(points)]
    out.append(f'<polygon points="{_points(edge)}" fill="{COLOURS[0]}" fill-opacity="0.25" stroke="none"/>')
    line = _points(place(point[0], point[1]) for point in points)
    out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>')
    for x, value, low, high in points:
        label = f"{_short(x)}: {value:+.3f} ({low:+.3f} to {high:+.3f})"
        out.append(_dot(*place(x, value), COLOURS[0], label, 3.5 if len(points) <= 31 else 1.5))
    out += [
        _text(place(x, 0)[0], HEIGHT - BOTTOM + 18, _short(x), anchor)
        for x, anchor in ((first, "start"), (last, "end"))
        if points
    ]
    return _picture(title, out, about=about)


def _values(
    values: Mapping[str, tuple[float, tuple[float, float] | None]], *, title: str, about: str, signed: bool = False
) -> str:  # fmt: skip
    """Each name with its number and interval, where a scale would have one point for each line."""
    out, sign = [], "+" if signed else ""
    for index, (name, (value, interval)) in enumerate(values.items()):
        y = TOP + VALUE_ROW * (index + 0.5)
        number = f"{value:+.3f}" if signed else _short(value)
        reach = f" ({interval[0]:{sign}.3g} – {interval[1]:{sign}.3g})" if interval else ""
        out.append(f'<text x="{LEFT}" y="{y:.1f}" font-size="{FONT * 2}">{escape(number)}</text>')
        out.append(_text(LEFT + 24 + len(number) * FONT * 1.2, y, f"{name}{reach}", "start"))
    return _picture(title, out, TOP + VALUE_ROW * len(values), about=about)


def standalone(svg: str) -> str:
    """The plot as a file: its text follows the reader's light or dark mode."""
    style = f"<style>svg{{color:{LIGHT}}}@media(prefers-color-scheme:dark){{svg{{color:{DARK}}}}}</style>"
    return svg.replace("><title>", f">{style}<title>", 1)


def _picture(title: str, parts: Sequence[str], height: float = HEIGHT, *, about: str = "") -> str:
    name = escape(title)
    size = f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(f"{title}: {about}") if about else name}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="{FONT}" fill="currentColor">'
    description = f"<desc>{escape(about)}</desc>" if about else ""
    heading = f'<title>{name}</title>{description}<text x="6" y="16" font-weight="bold" font-size="{FONT + 2}">{name}</text>'
    return f"{head}{heading}{''.join(parts)}</svg>"


def _legend(names: Sequence[str]) -> tuple[list[str], int]:
    """The marks of the legend, and how many rows they take."""
    out, x, row = [], float(LEFT), 0
    for number, name in enumerate(names):
        wide = 30 + _width(name) + 18
        if x + wide > WIDTH and x > LEFT:
            x, row = LEFT, row + 1
        y = TOP - 4 + row * LEGEND_ROW
        mark = (
            f'<line x1="{x:.1f}" y1="{y}" x2="{x + 24:.1f}" y2="{y}" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="3"'
        )
        out += [f"{mark}{_dashed(number)}/>", _text(x + 30, y + 4, name, "start")]
        x += wide
    return out, row + 1 if names else 0


def _dashed(number: int) -> str:
    dashes = DASHES[number % len(DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _grid(ticks: Sequence[float], start: float) -> str:
    out = []
    for value in ticks:
        y = _y(value, ticks, start)
        out += [_line(LEFT, y, WIDTH - RIGHT, y, 0.2), _text(LEFT - 8, y + 4, _short(value), "end")]
    return "".join(out)


def _ticks(values: Iterable[float], most: int = 5) -> list[float]:
    """Round numbers from 0 to the first that no value exceeds, and below 0 where values are; whole where all values are."""
    known = list(values)
    low, high = min([0.0, *known]), max([0.0, *known])
    if low == high:
        return [0.0, 1.0]
    high -= low  # the steps are those of the whole range
    power = 10.0 ** math.floor(math.log10(high / most))
    step = next(part * power for part in (1, 2, 2.5, 5, 10, 20) if part * power * most >= high)
    if all(value == int(value) for value in known):
        step = max(1.0, 3.0 if step == 2.5 else math.ceil(step))
    first = math.floor(round(low / step, 9))
    return [step * n for n in range(first, math.ceil(round((high + low) / step, 9)) + 1)]


def _between(low: float, high: float) -> list[float]:
    """Round values on a scale: every half, or every whole number where it is wider than two."""
    step = 0.5 if high - low <= 2 else 1.0
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _day_labels(days: Sequence[str], most: int = 7) -> list[tuple[int, str]]:
    """Which days get a label, and how it is anchored: the first, the last, and some between that overlap neither."""
    n = len(days)
    if n < 2:
        return [(0, "middle")] * n
    labels, free = [(n - 1, "end")], _x(n - 1, n) - _width(days[-1])  # centred, the last one would stick out
    count = max(2, min(most, n, int(free / (max(map(_width, days)) + 12)) + 1))
    for part in reversed(range(count - 1)):
        index = round(part * (n - 1) / (count - 1))
        if _x(index, n) + _width(days[index]) / 2 + 6 <= free:
            labels.append((index, "middle"))
            free = _x(index, n) - _width(days[index]) / 2
    return labels[::-1]


def _segments(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """The runs of known values, each with its index."""
    segments: list[list[tuple[int, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            segments.append([])
        else:
            segments[-1].append((index, value))
    return [segment for segment in segments if segment]


def _x(index: int, n: int) -> float:
    return LEFT + 8 + (WIDTH - LEFT - RIGHT - 8) * (index / (n - 1) if n > 1 else 0.5)


def _y(value: float, ticks: Sequence[float], start: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - start - BOTTOM) * (value - ticks[0]) / ((ticks[-1] - ticks[0]) or 1)


def _width(text: str) -> float:
    """The approximate width of a text; Chinese characters are twice as wide as letters."""
    return sum(FONT if unicodedata.east_asian_width(sign) in "WF" else FONT * 0.58 for sign in text)


def shortened(text: str, max_width: float) -> str:
    """Shortened in the middle, because ids of one day begin alike."""
    keep = len(text) // 2
    short = text
    while _width(short) > max_width:
        keep -= 1
        short = f"{text[:keep]}…{text[-keep:]}"
    return short


def _short(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: str, label: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.0, height):.1f}"'
    return f'<rect {place} fill="{colour}"><title>{escape(label)}</title></rect>'


def _dot(x: float, y: float, colour: str, label: str, radius: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"><title>{escape(label)}</title></circle>'


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
    width, dashes = 1 if colour == "currentColor" else 2.5, ' stroke-dasharray="4 3"' if dashed else ""
    shape = f'<line {place} stroke="{colour}" stroke-width="{width}" stroke-opacity="{opacity:g}"{dashes}'
    return f"{shape}><title>{escape(label)}</title></line>" if label else f"{shape}/>"
