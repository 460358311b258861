"""A graph as SVG, in plain Python: boxes in columns, joined by lines with a word on them. For reports and for the web pages.

    svg = draw([Box("a", 0, "data"), Box("b", 1, "model")], [Line("a", "b", "12")], title="Lineage", about="data, then model")

Boxes of a lower group stand further left; inside a group, what was made from another one stands right of it. No scripts and no
styles, so it works under a strict content security policy: texts have the colour of the page. A box may be a link, and screen
readers read the links in their order; the page should list the same things in a table.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from medloop.plots import COLOURS, FONT, shortened

WIDE, HIGH = 196, 46  # of a box
GAP_X, GAP_Y = 96, 18
MARGIN, TOP = 12, 12
LABEL = 30  # of a label beside another one
BEND = HIGH + GAP_Y // 2  # how far a line over several columns is pulled down


@dataclass(frozen=True)
class Box:
    """`group` places it from left to right; `colour` is an index of the palette; `note` is the second line."""

    id: str
    group: int
    label: str
    note: str = ""
    href: str = ""
    about: str = ""
    colour: int = 0
    strong: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Line:
    source: str
    target: str
    label: str = ""
    about: str = ""
    dashed: bool = False


def draw(boxes: Sequence[Box], lines: Sequence[Line], *, title: str, about: str = "") -> str:
    """The drawing, as wide and high as it needs; lines to boxes that are not there are left out."""
    known = {box.id: box for box in boxes}
    lines = [line for line in lines if line.source in known and line.target in known]
    places = _places(boxes, lines)
    width = max((x for x, _ in places.values()), default=0) + WIDE + MARGIN
    height = max((y for _, y in places.values()), default=0) + HIGH + BEND // 2 + MARGIN
    name = escape(f"{title}: {about}" if about else title)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="group" '
        f'aria-label="{name}" font-family="sans-serif" font-size="{FONT}" fill="currentColor">'
    )
    order = sorted(boxes, key=lambda box: places[box.id])
    labels = _label_places(lines, places)
    parts = [
        *(_line(line, places, *labels[number]) for number, line in enumerate(lines)),
        *(_box(box, *places[box.id]) for box in order),
    ]
    return f"{head}{''.join(parts)}</svg>"


def _places(boxes: Sequence[Box], lines: Iterable[Line]) -> dict[str, tuple[int, int]]:
    """Left upper corners: columns by group and by the longest way inside it, rows near the boxes they come from."""
    sources: dict[str, list[str]] = {box.id: [] for box in boxes}
    for line in lines:
        sources[line.target].append(line.source)
    column = _columns(boxes, sources)
    rows: dict[str, float] = {}
    places: dict[str, tuple[int, int]] = {}
    for number in sorted(set(column.values())):
        members = [box.id for box in boxes if column[box.id] == number]
        members.sort(key=lambda name: _mean([rows[source] for source in sources[name] if source in rows]))
        for row, name in enumerate(members):
            rows[name] = row
            places[name] = (MARGIN + number * (WIDE + GAP_X), TOP + row * (HIGH + GAP_Y))
    return places


def _columns(boxes: Sequence[Box], sources: Mapping[str, Sequence[str]]) -> dict[str, int]:
    group = {box.id: box.group for box in boxes}
    depth = dict.fromkeys(group, 0)
    for _ in boxes:  # at most as many rounds as a way has boxes; a circle ends with them
        deeper = {
            name: max((depth[source] + 1 for source in sources[name] if group[source] == group[name]), default=0)
            for name in group
        }
        if deeper == depth:
            break
        depth = deeper
    starts, start = {}, 0
    for number in sorted(set(group.values())):
        starts[number] = start
        start += 1 + max(depth[name] for name in group if group[name] == number)
    return {name: starts[group[name]] + depth[name] for name in group}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _box(box: Box, x: int, y: int) -> str:
    colour = COLOURS[box.colour % len(COLOURS)]
    dashes = ' stroke-dasharray="5 3"' if box.dashed else ""
    opacity, border = (0.28, 3) if box.strong else (0.1, 1.5)
    place = f'x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6"'
    shape = (
        f'<rect {place} fill="Canvas"/>'  # the page's own ground: no line shows through a box
        f'<rect {place} fill="{colour}" fill-opacity="{opacity}" stroke="{colour}" stroke-width="{border}"{dashes}/>'
    )
    weight = ' font-weight="bold"' if box.strong else ""
    label = f'<text x="{x + 10}" y="{y + 19}"{weight}>{escape(shortened(box.label, WIDE - 20))}</text>'
    note = f'<text x="{x + 10}" y="{y + 37}" font-size="{FONT - 2}">{escape(shortened(box.note, WIDE - 8))}</text>'
    inner = f"<title>{escape(box.about or box.label)}</title>{shape}{label}{note}"
    if not box.href:
        return f"<g>{inner}</g>"
    return f'<a href="{escape(box.href)}" aria-label="{escape(box.about or box.label)}">{inner}</a>'


def _label_places(lines: Sequence[Line], places: Mapping[str, tuple[int, int]]) -> list[tuple[int, int, str]]:
    """Where the label of each line stands and how it is anchored: at its end, or at its beginning where several lines end in
    one box. Where several begin there, too, the labels at the end stand beside one another."""
    into, out = Counter(line.target for line in lines), Counter(line.source for line in lines)
    seen: Counter[str] = Counter()
    found = []
    for line in lines:
        (x1, y1), (x2, y2) = places[line.source], places[line.target]
        if into[line.target] > 1 and out[line.source] == 1:
            found.append((x1 + WIDE + 8, y1 + HIGH // 2 - 6, "start"))
            continue
        found.append((x2 - 14 - LABEL * seen[line.target], y2 + HIGH // 2 - 6, "end"))
        seen[line.target] += 1
    return found


def _line(line: Line, places: Mapping[str, tuple[int, int]], label_x: int, label_y: int, anchor: str) -> str:
    (x1, y1), (x2, y2) = places[line.source], places[line.target]
    x1, y1, y2 = x1 + WIDE, y1 + HIGH // 2, y2 + HIGH // 2
    middle = (x1 + x2) // 2
    bend = BEND if x2 - x1 > GAP_X else 0  # a line over several columns goes below the boxes between
    dashes = ' stroke-dasharray="4 3"' if line.dashed else ""
    curve = f"M{x1} {y1} C{middle} {y1 + bend} {middle} {y2 + bend} {x2} {y2}"
    path = (
        f'<path d="{curve}" fill="none" stroke="currentColor" stroke-opacity="0.55" stroke-width="1.5"{dashes}/>'
        f'<path d="M{x2} {y2} l-8 -4 v8 z" fill-opacity="0.55"/>'
    )
    label = f'<text x="{label_x}" y="{label_y}" text-anchor="{anchor}" font-size="{FONT - 2}">{escape(line.label)}</text>'
    return f"<g><title>{escape(line.about or line.label)}</title>{path}{label if line.label else ''}</g>"
