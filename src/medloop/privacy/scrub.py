"""Take identifiers out of a text before it leaves: structured zh and en identifiers, and names with a title or a label.

    scrubber = Scrubber()                    # one per record: the same number gets the same placeholder everywhere in it
    scrubber.scrub("患者王芳，手机13800138000")    # "患者[NAME_1]，手机[PHONE_1]"

Fails closed: what still looks like an identifier afterwards raises `Unscrubbable`, and the text must not be sent.
Leaves out: names without title or label, employers, places smaller than a street address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from medloop.privacy import identifiers, names
from medloop.privacy.identifiers import fold
from medloop.privacy.patterns import LEFT_OVER, PATTERNS

VERSION = "1"

_DIGIT = re.compile(r"\d")
_RUN = re.compile(r"(?<![\dA-Za-z])\+?\d(?:[ \-.]?[\d]){7,29}(?:[ -]?[Xx](?![A-Za-z0-9]))?")
_LONG = 9  # a run of so many digits is no dose, no laboratory value and no year: taken out even if nothing explains it
_PLACEHOLDER = re.compile(r"\[[A-Z]+_\d+\]")


class Unscrubbable(Exception):
    """What is left still looks like an identifier; `kind` says of what sort, the text itself is never quoted."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


@dataclass(frozen=True)
class Found:
    """Characters `start` to `end` of the text are an identifier."""

    start: int
    end: int
    kind: str


@dataclass
class Scrubber:
    """Placeholders of one record: the same identifier has the same placeholder in its question and its answer."""

    counts: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    persons: dict[str, str] = field(default_factory=dict)

    def scrub(self, text: str) -> str:
        """The text with placeholders; raises Unscrubbable when something is left."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unscrubbable("characters that are not Unicode text") from None
        out, at = [], 0
        for found in find(text, tuple(self.persons)):
            out += [text[at : found.start], self._placeholder(found.kind, text[found.start : found.end])]
            at = found.end
        cleaned = "".join([*out, text[at:]])
        if LEFT_OVER.search(_PLACEHOLDER.sub("|", fold(cleaned))):
            raise Unscrubbable("a number or an address that could not be taken out")
        return cleaned

    def _placeholder(self, kind: str, value: str) -> str:
        key = (kind, re.sub(r"[\s\-.()]", "", fold(value)).casefold())
        if key not in self.known:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.known[key] = f"[{kind}_{self.counts[kind]}]"
            if kind == "NAME":
                self.persons[value] = self.known[key]
        return self.known[key]


def find(text: str, persons: tuple[str, ...] = ()) -> list[Found]:
    """Every identifier, in order and without overlap; `persons` are names already known from the same record."""
    folded = fold(text)
    found = [*_numbers(folded), *_patterned(folded), *names.find(folded)]
    spans = [Found(start, end, kind) for start, end, kind in found]
    known = {text[s.start : s.end] for s in spans if s.kind == "NAME"} | set(persons)
    spans += [Found(m.start(), m.end(), "NAME") for name in known for m in _mentions(name, text)]
    return _without_overlap(spans)


def _mentions(name: str, text: str) -> Iterator[re.Match[str]]:
    edge = r"\b" if name.isascii() else ""
    return re.finditer(f"{edge}{re.escape(name)}{edge}", text) if len(name) > 1 else iter(())


def _numbers(folded: str) -> Iterator[tuple[int, int, str]]:
    for run in _RUN.finditer(folded):
        digits = re.sub(r"[^\dXx]", "", run[0])
        kind = _kind_of(digits)
        if kind:
            yield run.start(), run.end(), kind


def _kind_of(digits: str) -> str | None:
    if identifiers.is_resident_id(digits):
        return "ID"
    if identifiers.is_mobile(digits):
        return "PHONE"
    if identifiers.is_bank_card(digits):
        return "CARD"
    return "NUMBER" if len(digits) >= _LONG else None


def _patterned(folded: str) -> Iterator[tuple[int, int, str]]:
    digits, lower = len(_DIGIT.findall(folded)), folded.lower()
    for form in PATTERNS:
        if digits < form.digits or (form.signs and not any(sign in lower for sign in form.signs)):
            continue
        group = "x" if "x" in form.pattern.groupindex else 0
        for match in form.pattern.finditer(folded):
            yield match.start(group), match.end(group), form.kind


def _without_overlap(spans: list[Found]) -> list[Found]:
    """Of two that overlap, one that covers both; its kind is that of the first, a bare number's only if nothing says more."""
    merged: list[Found] = []
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        if merged and span.start < merged[-1].end:
            last = merged.pop()
            span = Found(last.start, max(last.end, span.end), span.kind if last.kind == "NUMBER" else last.kind)
        merged.append(span)
    return merged
