"""The texts of the pages in English and Chinese, one YAML file per page, and which of the two languages a reader gets.

A line is `key: [English, 中文]`, with slots such as {name}. `common.yaml` is for all pages, `review.yaml` for the pages where
people judge answers. Keys are unique across the files; a test checks that each is used by its page.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from markupsafe import Markup, escape

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
SLOT = re.compile(r"\{([a-z]+)\}")
NUMBER = r"\S"
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # strftime would follow the machine's language


def choose(cookie: str | None, accept: str) -> Language:
    """The reader's choice on the page, else the browser's list (RFC 9110, 12.5.4), else English."""
    if cookie in LANGUAGES:
        return "zh" if cookie == "zh" else "en"
    ranked = sorted(_ranked(accept[:1000]), key=lambda pair: -pair[1])
    return next((language for tag, weight in ranked if weight > 0 and (language := _known(tag))), "en")


def _ranked(accept: str) -> list[tuple[str, float]]:
    pairs = []
    for part in accept.split(","):
        tag, _, weight = part.strip().partition(";q=")
        try:
            pairs.append((tag.strip().lower(), float(weight or 1)))
        except ValueError:
            continue
    return pairs


def _known(tag: str) -> Language | None:
    first = tag.split("-")[0]
    return "zh" if first == "zh" else "en" if first == "en" else None


def files() -> dict[str, dict[str, tuple[str, str]]]:
    """The texts by file: `{"login": {"login_lead": (English, Chinese), …}, …}`."""
    paths = sorted(Path(__file__).parent.glob("*.yaml"))
    loaded = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths}
    return {name: {key: (en, zh) for key, (en, zh) in texts.items()} for name, texts in loaded.items()}


@cache
def table() -> dict[str, tuple[str, str]]:
    return {key: pair for texts in files().values() for key, pair in texts.items()}


class Translator:
    """`t("hello", name="Li")`: the texts of one language."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self._column = LANGUAGES.index(language)

    def __call__(self, key: str, **values: object) -> str:
        text = table()[key][self._column]
        if any(isinstance(value, Markup) for value in values.values()):  # such as a time of `time`
            return Markup(_fill(str(escape(text)), {name: str(escape(value)) for name, value in values.items()}))
        return _fill(text, {name: str(value) for name, value in values.items()}) if values else text

    def day(self, day: date | str, *, year: bool = True) -> str:
        """`3 Feb 2026`, `2026年2月3日`; without the year for axes."""
        day = date.fromisoformat(day) if isinstance(day, str) else day
        if self.language == "zh":
            return f"{f'{day.year}年' if year else ''}{day.month}月{day.day}日"
        return f"{day.day} {MONTHS[day.month - 1]}{f' {day.year}' if year else ''}"

    def when(self, time: datetime | str, *, seconds: bool = False) -> str:
        """`3 Feb 2026, 12:00 UTC`: the same time zone, and named, for everybody who reads the same record."""
        time = (datetime.fromisoformat(time) if isinstance(time, str) else time).astimezone(UTC)
        clock = f"{time:%H:%M:%S}" if seconds else f"{time:%H:%M}"
        return f"{self.day(time.date())}{' ' if self.language == 'zh' else ', '}{clock} UTC"

    def time(self, time: datetime | str, *, seconds: bool = False) -> Markup:
        """A time as a page shows it: UTC, which the script time.js turns into the reader's local time, with UTC on hover."""
        stamp = time if isinstance(time, str) else time.isoformat()
        mark = Markup(" data-seconds") if seconds else ""
        return Markup('<time datetime="{}"{}>{}</time>').format(stamp, mark, self.when(time, seconds=seconds))

    def sentences(self, *texts: str) -> str:
        """Sentences one after the other; Chinese has no space between them."""
        joint = "" if self.language == "zh" else " "
        return (Markup(joint) if any(isinstance(text, Markup) for text in texts) else joint).join(text for text in texts if text)

    def sentence(self, text: str, keys: Iterable[str], inner: Callable[[str], str] = str) -> str | None:
        """A sentence that another part of medloop wrote in English, in this language; None if no key has its form.

        `inner` translates what stands in its slots.
        """
        for key in keys:
            if (match := _form(key).fullmatch(text)) is not None:
                return self(key, **{name: inner(value) for name, value in match.groupdict().items()})
        return None

    def or_plain(self, key: str, plain: str) -> str:
        """For names that come from elsewhere, such as an axis that somebody made up."""
        return self(key) if key in table() else plain


@cache
def _form(key: str) -> re.Pattern[str]:
    """The English text of a key as a pattern, with a group for each slot; that of a number, {n}, has no space."""
    parts = SLOT.split(table()[key][0])  # plain, slot, plain, …
    slots = {part: f"(?P<{part}>{NUMBER if part == 'n' else '.'}+?)" for part in parts[1::2]}
    return re.compile("".join(slots[part] if place % 2 else re.escape(part) for place, part in enumerate(parts)), re.S)


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each slot once; `format` would also interpret braces and attributes inside the values."""
    return SLOT.sub(lambda slot: values.get(slot[1], slot[0]), text)
