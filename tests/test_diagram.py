"""Drawings of boxes and lines: what stands beside one another can be read."""

from __future__ import annotations

from xml.etree import ElementTree

from medloop.diagram import Box, Line, draw

SVG = "{http://www.w3.org/2000/svg}"


def test_labels_of_lines_that_meet_in_one_box_do_not_stand_on_one_another() -> None:
    """Seen on the data filter: "3" and "4" printed over each other, where ratings and corrections are used."""
    boxes = [Box(name, group, name) for group, names in enumerate(("ab", "cd", "ef")) for name in names]
    lines = [Line("a", "c", "11"), Line("b", "d", "12"), Line("c", "e", "13"), Line("d", "e", "14"), Line("d", "f", "15")]
    root = ElementTree.fromstring(draw(boxes, lines, title="t"))
    texts = [text for text in root.iter(f"{SVG}text") if text.text in ("11", "12", "13", "14", "15")]
    places = {(text.attrib["x"], text.attrib["y"]) for text in texts}
    assert len(texts) == len(places) == 5
