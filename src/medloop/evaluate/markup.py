"""What the reports of this stage share: HTML templates, tables and harmless text in Markdown, numbers."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


@lru_cache(maxsize=1)
def templates() -> Environment:
    """The HTML templates; everything is escaped, an unknown name is an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["number"] = number
    return environment


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def group_name(group: str) -> str:
    """`language:en` as people say it."""
    return {"language:en": "English", "language:zh": "Chinese", "language:mixed": "mixed languages"}.get(
        group, group.removeprefix("language:")
    )


def one_line(text: str) -> str:
    """Text in one line that Markdown does not take for markup."""
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", " ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
