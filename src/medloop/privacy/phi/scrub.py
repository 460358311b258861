"""Take identifiers out of a text before it is kept for training or leaves: the 18 of Safe Harbor and China's own, zh and en.

    scrubber = Scrubber()                    # one per record: the same number gets the same placeholder everywhere in it
    scrubber.scrub("患者王芳，手机13800138000")    # "患者[NAME_1]，手机[PHONE_1]"
    assess("患者王芳").doubt                  # how likely something was missed, 0 to 1, with reasons

Fails closed twice: what still looks like an identifier afterwards raises `Unscrubbable`, and what `assess` doubts belongs in
quarantine (docs/stages/privacy.md has the numbers). Leaves out on purpose: years, states and countries in medical articles,
weekdays, public bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from medloop.privacy.phi import chinese_names, chinese_places, english_names, identifiers, mentions, titled_names
from medloop.privacy.phi.english_tagger import MASK
from medloop.privacy.phi.identifiers import fold, squeeze
from medloop.privacy.phi.patterns import CODE, MONTH, PATTERNS, left_over

VERSION = "4"
QUARANTINE = 0.8  # doubt from which a text waits for a person; what it costs and catches: docs/stages/privacy.md

_DIGIT = re.compile(r"\d")
_RUN = re.compile(r"(?<!\d)\+?\d(?:[ \-.·/]{0,3}\d){7,39}(?:[ -]?[Xx](?![A-Za-z0-9]))?")
_HANZI = 1.7  # characters half as likely to be a name as those that are taken out are reason enough for quarantine
_LONG = 9  # so many digits in one piece are no dose, no laboratory value and no year: taken out even if nothing explains them
_PLACEHOLDER = re.compile(r"\[([A-Z]+)_(\d{1,9})\]")
_ROUNDS = 12
# Three letters in a row that are neither Latin, Greek (units, receptors) nor Chinese.
_OTHER_SCRIPT = re.compile("[\u0400-\u1cff\u2c80-\u2dff\u3040-\u30ff\ua000-\ud7ff\ufb1d-\ufdff\ufe70-\ufefc]{3}")
# Of two finds that overlap, the more exact one gives its kind to both.
_EXACT = ("ID", "CARD", "SSN", "IBAN", "EMAIL", "URL", "IP", "MAC", "PHONE", "RECORD", "PLATE", "VEHICLE", "DATE", "AGE", "PHOTO")
_RANK = {kind: rank for rank, kind in enumerate((*_EXACT, "ADDRESS", "NAME", "ORG", "PLACE", "NUMBER"))}
_FORMS = [tuple(form for form in PATTERNS if form.digits <= digits) for digits in range(max(f.digits for f in PATTERNS) + 1)]
_PERSONAL = frozenset(("ID", "CARD", "PHONE", "RECORD", "EMAIL", "PLATE", "ADDRESS", "SSN"))  # beside these a name is likely
Span = tuple[int, int, str]


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


@dataclass(frozen=True)
class Assessment:
    """A scrubbed text and how far to trust it. At `QUARANTINE` and above it belongs before a person, not in training."""

    cleaned: str
    """Empty where the text cannot be scrubbed."""
    spans: tuple[Found, ...]
    """What was found, in places of the text that was given."""
    doubt: float
    """0: nothing speaks for a miss; 1: something is certainly left."""
    reasons: tuple[str, ...]
    """Why, without a word of the text."""

    @property
    def quarantined(self) -> bool:
        return self.doubt >= QUARANTINE


@dataclass
class Scrubber:
    """Placeholders of one record: the same identifier has the same placeholder in its question and its answer."""

    counts: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    persons: dict[str, str] = field(default_factory=dict)
    _last: _Seen = field(init=False, repr=False, compare=False)  # the cleaned text, for its doubts

    def scrub(self, text: str) -> str:
        """The text with placeholders; raises Unscrubbable when something is left."""
        cleaned, _ = self._clean(text)
        return cleaned

    def assess(self, text: str) -> Assessment:
        """As `scrub`, but never raises: says how likely something was missed instead."""
        try:
            cleaned, spans = self._clean(text)
        except Unscrubbable as problem:
            return Assessment("", (), 1.0, (problem.kind,))
        doubts = sorted(_doubts(self._last), reverse=True)
        strong = tuple(reason for doubt, reason in doubts if doubt >= QUARANTINE)
        return Assessment(cleaned, tuple(spans), round(doubts[0][0], 3) if doubts else 0.0, strong)

    def _clean(self, text: str) -> tuple[str, list[Found]]:
        """Scrub until nothing more is found: what stands beside a placeholder may only then be seen for what it is."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unscrubbable("characters that are not Unicode text") from None
        self._reserve(text)
        first: list[Found] | None = None
        for _ in range(_ROUNDS):
            self._last = _Seen(text)
            found = _find(self._last, tuple(self.persons))
            first = found if first is None else first
            if not found:
                if left_over(self._last.plain):
                    raise Unscrubbable("a number or an address that could not be taken out")
                return text, first
            text = self._replace(text, found)
        raise Unscrubbable("a text that keeps changing while it is scrubbed")

    def _replace(self, text: str, found: Sequence[Found]) -> str:
        out, at = [], 0
        for span in found:
            out += [text[at : span.start], self._placeholder(span.kind, text[span.start : span.end])]
            at = span.end
        return "".join([*out, text[at:]])

    def _reserve(self, text: str) -> None:
        """Placeholders that a text brings along keep their numbers; ours count on from there."""
        for kind, number in _PLACEHOLDER.findall(text) if "[" in text else ():
            self.counts[kind] = max(self.counts.get(kind, 0), int(number))

    def _placeholder(self, kind: str, value: str) -> str:
        if kind == "NAME":
            return self._person(value)
        key = (kind, re.sub(r"[\s\-.()]", "", fold(squeeze(value)[0])).casefold())
        if key not in self.known:
            self.known[key] = self._next(kind)
        return self.known[key]

    def _person(self, value: str) -> str:
        """One person, one placeholder: also when only the surname comes back, as long as one person alone has it."""
        name = mentions.plain(value)
        if name not in self.persons:
            same = mentions.same_person(name, self.persons)
            self.persons[name] = same if same else self._next("NAME")
        return self.persons[name]

    def _next(self, kind: str) -> str:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return f"[{kind}_{self.counts[kind]}]"


def find(text: str, persons: tuple[str, ...] = ()) -> list[Found]:
    """Every identifier, in order and without overlap; `persons` are names already known from the same record."""
    return _find(_Seen(text), persons)


def _find(seen: _Seen, persons: tuple[str, ...]) -> list[Found]:
    spans = [*seen.formed, *seen.tagged[0], *titled_names.find(seen.plain), *chinese_places.find(seen.plain)]
    spans += [(a, _known_end(seen.plain, a, b, persons), "NAME") for a, b in seen.chinese[0]]
    if not spans and not persons:
        return []
    spans += mentions.find(seen.plain, [*persons, *(seen.plain[a:b] for a, b, kind in spans if kind == "NAME")])
    return [Found(*seen.stood(span)) for span in _outside(merge(spans), seen.masks)]


def _known_end(folded: str, start: int, end: int, persons: tuple[str, ...]) -> int:
    """A name already known from the record ends where it did: "王芳好转" after "王芳"."""
    return next((start + len(name) for name in persons if 1 < len(name) < end - start and folded.startswith(name, start)), end)


def assess(text: str) -> Assessment:
    """One text by itself, see `Scrubber.assess`."""
    return Scrubber().assess(text)


def _doubts(seen: _Seen) -> Iterator[tuple[float, str]]:
    """What a scrubbed text still gives reason to doubt, each with its strength from 0 to 1."""
    word = max(0.0, min(1.0, 1 - english_names.nearest(seen.tagged[1]) / english_names.DOUBTLESS))
    if seen.masks and word < 0.9 and english_names.capital_left(seen.plain):
        word = 0.9
    yield word, "a word that may be a name, a place or an organisation"
    yield min(1.0, _HANZI * seen.chinese[1]), "characters that may be a Chinese name"
    if not seen.plain.isascii() and _OTHER_SCRIPT.search(seen.plain):
        yield 0.9, "words in a script the scrubber has not learned"


class _Seen:
    """A text as the finders see it: folded, without characters that take no room, placeholders blanked out."""

    def __init__(self, text: str) -> None:
        squeezed, self._places = squeeze(text)
        folded = fold(squeezed)
        self.masks = [(m.start(), m.end(), m[1]) for m in _PLACEHOLDER.finditer(folded)] if "[" in folded else []
        self.plain = _PLACEHOLDER.sub(lambda m: MASK * len(m[0]), folded) if self.masks else folded
        self.formed = _forms(self.plain)
        known = merge([*(span for span in self.formed if span[2] != "ADDRESS"), *self.masks])
        record = bool(self.masks) or any(kind in _PERSONAL for _, _, kind in self.formed) or english_names.somebody(self.plain)
        self.tagged = english_names.find(english_names.parts_of(self.plain, known), record)
        self.chinese = ([], 0.0) if self.plain.isascii() else chinese_names.load().find(self.plain, record)

    def stood(self, span: Span) -> Span:
        """Where this span of the plain text stands in the text itself."""
        return span if self._places is None else (self._places[span[0]], self._places[span[1] - 1] + 1, span[2])


def structured(text: str) -> list[Span]:
    """What its form alone gives away (numbers, addresses of machines, dates), in order and without overlap."""
    return merge([span for span in _forms(fold(text)) if span[2] != "ADDRESS"])


def _forms(folded: str) -> list[Span]:
    digits = len(_DIGIT.findall(folded))
    return [*(_numbers(folded) if digits > 7 else ()), *_patterned(folded, digits)]


def _numbers(folded: str) -> Iterator[Span]:
    for run in _RUN.finditer(folded):
        kind = _kind_of(re.sub(r"[^\dXx]", "", run[0]))
        if kind:
            yield run.start(), run.end(), kind
        else:
            yield from _parts(run)


def _parts(run: re.Match[str]) -> Iterator[Span]:
    """Numbers side by side: any neighbours that together are an identifier, and whatever is long in one piece."""
    groups = list(re.finditer(r"\d+[Xx]?", run[0]))
    for first in range(len(groups)):
        digits = ""
        for group in groups[first : first + 8]:
            digits += group[0]
            kind = _kind_of(digits)
            if kind:
                yield run.start() + groups[first].start(), run.start() + group.end(), kind
    for group in groups:
        if len(group[0]) >= _LONG:
            yield run.start() + group.start(), run.start() + group.end(), "NUMBER"


def _kind_of(digits: str) -> str | None:
    if identifiers.is_resident_id(digits):
        return "ID"
    if identifiers.is_mobile(digits):
        return "PHONE"
    return "CARD" if identifiers.is_bank_card(digits) else None


def _patterned(folded: str, digits: int) -> Iterator[Span]:
    """What the patterns find; `digits` is how many the text has."""
    lower, code = folded.lower(), digits > 0 and CODE.search(folded) is not None
    month = digits > 0 and MONTH.search(folded) is not None
    for form in _FORMS[min(digits, len(_FORMS) - 1)]:
        if (form.code and not code) or (form.month and not month):
            continue
        for sign in form.signs:
            if sign in lower:
                break
        else:
            if form.signs:
                continue
        for match in form.pattern.finditer(folded):
            yield match.start(form.group), match.end(form.group), form.kind


def merge(spans: Sequence[Span]) -> list[Span]:
    """Of spans that overlap, one that covers them all, with the kind of the most exact."""
    merged: list[Span] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start < merged[-1][1]:
            a, b, before = merged.pop()
            better = min(before, kind, key=lambda k: _RANK.get(k, -1))
            if before == "ORG" and kind == "NAME" and end <= b:
                better = "ORG"  # a hospital called after somebody
            merged.append((a, max(b, end), better))
        else:
            merged.append((start, end, kind))
    return merged


def _outside(spans: Sequence[Span], masks: Sequence[Span]) -> Iterator[Span]:
    """Spans cut where placeholders stand: those are never replaced."""
    for start, end, kind in spans:
        at = start
        for a, b, _ in masks:
            if a < end and b > start:
                if at < a:
                    yield at, a, kind
                at = max(at, b)
        if at < end:
            yield at, end, kind
