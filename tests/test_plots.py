"""Plots are sound XML without scripts, and show what they were given."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

import pytest

from medloop import plots

SVG = "{http://www.w3.org/2000/svg}"


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]


def test_bars_are_as_high_as_their_values() -> None:
    root = ElementTree.fromstring(plots.bars({"1": 2.0, "2": 4.0, "3": 0.0}, title="Stars"))
    heights = [float(bar.attrib["height"]) for bar in root.iter(f"{SVG}rect")]
    assert heights[1] == 2 * heights[0] and heights[2] == 0


def test_a_missing_day_is_a_gap_in_the_line() -> None:
    svg = plots.lines(["a", "b", "c", "d"], {"x": [1.0, 2.0, None, 3.0]}, title="t")
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}polyline"))) == 2 and len(list(root.iter(f"{SVG}circle"))) == 3
    assert "x, d: 3" in titles(svg)


def test_a_curve_goes_on_where_it_has_no_value_and_stands_at_its_steps() -> None:
    series = {"training": {n: 0.1 * n for n in range(9)}, "held-out": {0: 0.2, 4: 0.3, 8: 0.4}}
    svg = plots.curves(
        series, title="t", bands={"held-out": {0: (0.1, 0.3), 4: (0.2, 0.4), 8: (0.3, 0.5)}}, marks={"target": 0.6}
    )
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}polyline"))) == 2 and len(list(root.iter(f"{SVG}polygon"))) == 1
    dots = {title.text: dot for dot in root.iter(f"{SVG}circle") for title in dot.iter(f"{SVG}title")}
    assert dots["held-out, 4: 0.3 (0.2 to 0.4)"].attrib["cx"] == dots["training, 4: 0.4"].attrib["cx"]
    steps = [text.text for text in root.iter(f"{SVG}text") if text.attrib.get("text-anchor") == "middle"]
    assert steps == ["0", "2", "4", "6", "8"] and any(text.text == "target 0.6" for text in root.iter(f"{SVG}text"))


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 1), (0, 2), (1, 8), (0, 40), (0, 223), (100, 1000), (0, 12_345)])
def test_steps_under_a_curve_are_round_and_few(first: int, last: int) -> None:
    shown = plots._round_steps(first, last)
    gaps = {after - before for before, after in itertools.pairwise(shown)}
    assert 1 <= len(shown) <= 8 and len(gaps) <= 1 and all(str(gap).rstrip("0") in ("1", "2", "5") for gap in gaps)
    assert shown[0] >= first and shown[-1] <= last


def test_a_single_check_among_curves_has_its_interval_as_a_line() -> None:
    series = {"training": {0: 0.1, 1: 0.2}, "held-out": {0: 0.2}}
    root = ElementTree.fromstring(plots.curves(series, title="t", bands={"held-out": {0: (0.1, 0.3)}}))
    assert not list(root.iter(f"{SVG}polygon")) and any(
        line.attrib.get("stroke-width") == "2.5" for line in root.iter(f"{SVG}line")
    )


@pytest.mark.parametrize(
    ("svg", "values"),
    [
        (
            plots.curves({"training": {1: 0.25}, "held-out": {0: 0.2}}, title="t", bands={"held-out": {0: (0.1, 0.3)}}),
            ["0.25", "training, step 1", "0.2", "held-out, step 0 (0.1 – 0.3)"],
        ),
        (plots.curves({"KL": {1: 0.5}}, title="t", marks={"target": 0.6}), ["0.5", "KL, step 1", "0.6", "target"]),
        (plots.lines(["1 Mar"], {"ratings": [3], "choices": [None]}, title="t"), ["3", "ratings, 1 Mar"]),
        (plots.band([(1200, 0.1, -0.1, 0.3)], title="t", marks=(0.05,)), ["+0.100", "1,200 (-0.1 – +0.3)"]),
    ],
    ids=["two lines", "target", "one day", "band"],
)
def test_lines_of_one_point_are_written_as_values_and_not_as_lonely_dots(svg: str, values: list[str]) -> None:
    root = ElementTree.fromstring(svg)
    assert not [mark for tag in ("circle", "polyline", "line") for mark in root.iter(f"{SVG}{tag}")]
    assert [text.text for text in root.iter(f"{SVG}text")][1:] == values


def test_intervals_stay_inside_the_picture() -> None:
    root = ElementTree.fromstring(plots.spans({"r": (0.5, -9.0, 9.0)}, title="t", low=-1, high=1, mark=0.0))
    assert all(0 <= float(line.attrib[x]) <= plots.WIDTH for line in root.iter(f"{SVG}line") for x in ("x1", "x2"))


def test_names_are_text_never_markup() -> None:
    for svg in (
        plots.bars({"<b>&": 1.0}, title='"><script>'),
        plots.lines(["<i>"], {"<s>": [1.0]}, title="<x>"),
        plots.spans({"<u>": (0.1, 0.0, 0.2)}, title="&"),
        plots.curves({"<i>": {1: 1.0, 2: 2.0}}, title="<x>", bands={"<i>": {1: (0.0, 1.0), 2: (1.0, 3.0)}}, marks={"<m>": 1.0}),
    ):
        tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()}
        assert tags <= {"svg", "title", "text", "rect", "line", "polyline", "polygon", "circle", "desc"}


def test_few_labels_however_many_days() -> None:
    svg = plots.lines([f"d{n}" for n in range(365)], {"x": [0.0] * 365}, title="t")
    days = [t.text for t in ElementTree.fromstring(svg).iter(f"{SVG}text") if (t.text or "").startswith("d")]
    assert 2 <= len(days) <= 7 and days[0] == "d0" and days[-1] == "d364"


def ticks(svg: str) -> list[str]:
    """The numbers beside the grid."""
    root = ElementTree.fromstring(svg)
    return [
        t.text or ""
        for t in root.iter(f"{SVG}text")
        if t.attrib.get("text-anchor") == "end" and float(t.attrib["x"]) < plots.LEFT
    ]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 12, 24, 109, 1234, 98_765])
def test_counts_have_whole_ticks_that_reach_the_highest_and_not_far_above(most: int) -> None:
    ticks_drawn = [
        float(text.replace(",", "").replace("k", "000")) for text in ticks(plots.bars({"a": float(most), "b": 0.0}, title="t"))
    ]
    assert (
        all(value == int(value) for value in ticks_drawn)
        and ticks_drawn == sorted(set(ticks_drawn))
        and 2 <= len(ticks_drawn) <= 6
    )
    assert most <= ticks_drawn[-1] < 2 * most + 1


@pytest.mark.parametrize(
    "names", [("rating", "choice", "correction"), ("评分", "比较", "更正"), tuple(f"a long name {n}" for n in range(6))]
)
def test_the_legend_stands_above_the_grid_and_inside_the_picture(names: tuple[str, ...]) -> None:
    root = ElementTree.fromstring(plots.lines(["a", "b"], {name: [1.0, 2.0] for name in names}, title="t"))
    grid = [float(line.attrib["y1"]) for line in root.iter(f"{SVG}line") if float(line.attrib["x2"]) == plots.WIDTH - plots.RIGHT]
    legend = [text for text in root.iter(f"{SVG}text") if text.text in names]
    assert len(legend) == len(names) and max(float(text.attrib["y"]) for text in legend) + 6 < min(grid)
    assert all(float(text.attrib["x"]) + 7.6 * len(text.text or "") < plots.WIDTH for text in legend)


def test_labels_of_days_do_not_touch() -> None:
    for names in (
        [f"{n} Nov" for n in range(1, 31)],
        [f"2026-11-{n:02d}" for n in range(1, 31)],
        [f"2026-10-{n}" for n in range(10, 31)],
        [f"11月{n}日" for n in range(1, 22)],
    ):
        root = ElementTree.fromstring(plots.lines(names, {"x": [1.0] * len(names)}, title="t"))
        edges = []
        for text in root.iter(f"{SVG}text"):
            if text.text in names:
                wide, x = plots._width(text.text), float(text.attrib["x"])
                edges.append((x - wide, x) if text.attrib["text-anchor"] == "end" else (x - wide / 2, x + wide / 2))
        assert (
            names[0] in [text.text for text in root.iter(f"{SVG}text")]
            and len(edges) > 2
            and all(right < left for (_, right), (left, _) in itertools.pairwise(edges))
        )


def luminance(colour: str) -> float:
    """As WCAG 2.2 has it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("ground", ["#ffffff", "#12171d"])
def test_every_colour_stands_out_from_light_and_dark(ground: str) -> None:
    for colour in plots.COLOURS:
        low, high = sorted((luminance(colour), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 3, colour


def test_a_picture_says_what_it_shows_to_those_who_do_not_see_it() -> None:
    root = ElementTree.fromstring(plots.bars({"1": 2.0}, title="Stars", about='1 ★ 2 <"ratings">'))
    assert root.attrib["role"] == "img" and root.attrib["aria-label"] == 'Stars: 1 ★ 2 <"ratings">'
    assert root.findtext(f"{SVG}desc") == '1 ★ 2 <"ratings">'


def test_a_picture_that_stands_alone_has_a_colour_for_the_dark() -> None:
    svg = plots.bars({"1": 2.0}, title="Stars")
    assert "<style>" not in svg and "prefers-color-scheme:dark" in plots.standalone(svg)  # a page's policy lets no style in
    ElementTree.fromstring(plots.standalone(svg))


def test_long_names_that_begin_alike_stay_apart() -> None:
    names = [f"01a1df84-8f53-7b58-940b-35b67640aa{n:02d}" for n in range(3)]
    root = ElementTree.fromstring(plots.spans(dict.fromkeys(names, (0.5, 0.4, 0.6)), title="t"))
    names_drawn = [text.text or "" for text in root.iter(f"{SVG}text") if "…" in (text.text or "")]
    assert len(set(names_drawn)) == 3 and all(plots._width(text) < plots.WIDTH / 3 for text in names_drawn)
