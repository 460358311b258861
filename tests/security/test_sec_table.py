"""docs/security.md has all 24 classes, every test that it names exists, and there are enough payloads."""

from __future__ import annotations

import re
from pathlib import Path

import payloads
import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.M)


def check_table(text: str, there: set[str]) -> list[str]:
    """Classes without a row, rows without a test and its twin, names of tests that do not exist."""
    rows = {
        int(number): (re.findall(r"`(test_\w+)`", green), re.findall(r"`(test_\w+)`", red))
        for number, green, red in ROW.findall(text)
    }
    problems = [f"no row {n}" for n in range(1, 25) if n not in rows]
    problems += [f"row {n} lacks a test" for n, (green, red) in rows.items() if not green or not red]
    return problems + [name for green, red in rows.values() for name in (*green, *red) if name not in there]


def known_tests() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for path in files for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.M)}


def test_every_class_has_a_test_and_a_twin_that_exist() -> None:
    assert check_table((ROOT / "docs/security.md").read_text(encoding="utf-8"), known_tests()) == []


@pytest.mark.parametrize(
    "change", [lambda text: text.replace("| 7 |", "| x |"), lambda text: text.replace("test_no_filter", "test_nobody_wrote")]
)
def test_red_a_table_with_a_gap_is_found(change) -> None:
    assert check_table(change((ROOT / "docs/security.md").read_text(encoding="utf-8")), known_tests())


def test_every_test_with_a_twin_here_is_in_the_table() -> None:
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    files = [path for path in Path(__file__).parent.glob("test_sec_*.py") if path != Path(__file__)]
    red = [name for path in files for name in re.findall(r"^def (test_red_\w+)", path.read_text(encoding="utf-8"), re.M)]
    assert [name for name in red if f"`{name}`" not in text] == []


def test_there_are_three_hundred_payloads() -> None:
    lists = (
        payloads.traversal(Path("/a/b")),
        payloads.addresses(1),
        payloads.HOSTS,
        payloads.SQL,
        payloads.COLUMNS,
        payloads.FORMULAS,
    )
    lists += (payloads.TOKENS, payloads.TEMPLATES, payloads.RESERVED, payloads.SCRIPTS)
    assert sum(len(set(texts)) for texts in lists) >= 300
