"""Plots are sound XML without scripts, and show what they were given."""

from __future__ import annotations

from xml.etree import ElementTree

from medloop.feedback import plots

SVG = "{http://www.w3.org/2000/svg}"


def titles(svg: str) -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(svg).iter(f"{SVG}title")]


def test_bars_are_as_high_as_their_values() -> None:
    root = ElementTree.fromstring(plots.bars({"1": 2.0, "2": 4.0, "3": 0.0}, title="Stars"))
    heights = [float(bar.attrib["height"]) for bar in root.iter(f"{SVG}rect")]
    assert heights[1] == 2 * heights[0] and heights[2] == 0


def test_a_missing_day_is_a_gap_in_the_line() -> None:
    svg = plots.lines(["a", "b", "c", "d"], {"x": [1.0, 2.0, None, 3.0]}, title="t")
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}polyline"))) == 2 and len(list(root.iter(f"{SVG}circle"))) == 3
    assert "x, d: 3" in titles(svg)


def test_intervals_stay_inside_the_picture() -> None:
    root = ElementTree.fromstring(plots.spans({"r": (0.5, -9.0, 9.0)}, title="t", low=-1, high=1, mark=0.0))
    assert all(0 <= float(line.attrib[x]) <= plots.WIDTH for line in root.iter(f"{SVG}line") for x in ("x1", "x2"))


def test_names_are_text_never_markup() -> None:
    for svg in (
        plots.bars({"<b>&": 1.0}, title='"><script>'),
        plots.lines(["<i>"], {"<s>": [1.0]}, title="<x>"),
        plots.spans({"<u>": (0.1, 0.0, 0.2)}, title="&"),
    ):
        tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()}
        assert tags <= {"svg", "title", "text", "rect", "line", "polyline", "circle"}


def test_few_labels_however_many_days() -> None:
    svg = plots.lines([f"d{n}" for n in range(365)], {"x": [0.0] * 365}, title="t")
    days = [t.text for t in ElementTree.fromstring(svg).iter(f"{SVG}text") if (t.text or "").startswith("d")]
    assert 2 <= len(days) <= 7 and days[0] == "d0" and days[-1] == "d364"
