"""What the pages say, in English and Chinese (`words.yaml`), and which of the two somebody reads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
SLOT = re.compile(r"\{([a-z]+)\}")
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # strftime would follow the machine's language


def choose(cookie: str | None, accept: str) -> Language:
    """The switch on the page wins, then the browser's list (RFC 9110, 12.5.4), then English."""
    if cookie in LANGUAGES:
        return "zh" if cookie == "zh" else "en"
    wanted = sorted(_ranked(accept[:1000]), key=lambda pair: -pair[1])
    return next((found for tag, weight in wanted if weight > 0 and (found := _known(tag))), "en")


def _ranked(accept: str) -> list[tuple[str, float]]:
    found = []
    for part in accept.split(","):
        tag, _, weight = part.strip().partition(";q=")
        try:
            found.append((tag.strip().lower(), float(weight or 1)))
        except ValueError:
            continue
    return found


def _known(tag: str) -> Language | None:
    first = tag.split("-")[0]
    return "zh" if first == "zh" else "en" if first == "en" else None


@cache
def table() -> dict[str, tuple[str, str]]:
    said = yaml.safe_load((Path(__file__).parent / "words.yaml").read_text(encoding="utf-8"))
    return {key: (en, zh) for key, (en, zh) in said.items()}


class Words:
    """`t("hello", name="Li")`: the words of one language."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self._at = LANGUAGES.index(language)

    def __call__(self, key: str, **filled: object) -> str:
        found = table()[key][self._at]
        return _fill(found, {name: str(value) for name, value in filled.items()}) if filled else found

    def day(self, on: date | str, *, year: bool = True) -> str:
        """`3 Feb 2026`, `2026年2月3日`; without the year for axes."""
        at = date.fromisoformat(on) if isinstance(on, str) else on
        if self.language == "zh":
            return f"{f'{at.year}年' if year else ''}{at.month}月{at.day}日"
        return f"{at.day} {MONTHS[at.month - 1]}{f' {at.year}' if year else ''}"

    def when(self, at: datetime | str, *, seconds: bool = False) -> str:
        """`3 Feb 2026, 12:00 UTC`: one clock for everybody who reads the same record, and it is named."""
        found = (datetime.fromisoformat(at) if isinstance(at, str) else at).astimezone(UTC)
        clock = f"{found:%H:%M:%S}" if seconds else f"{found:%H:%M}"
        return f"{self.day(found.date())}{' ' if self.language == 'zh' else ', '}{clock} UTC"

    def or_plain(self, key: str, plain: str) -> str:
        """For names that come from elsewhere, such as an axis somebody made up."""
        return self(key) if key in table() else plain


def _fill(text: str, filled: Mapping[str, str]) -> str:
    """Plain replacement, once: `format` would look inside the values' own braces and attributes."""
    return SLOT.sub(lambda slot: filled.get(slot[1], slot[0]), text)
