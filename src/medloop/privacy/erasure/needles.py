"""Finding a person's own words in any file, however they were written down.

    needles = Needles([Words("I live at …", authored=True)])
    needles.spans(data)        # [(start, end)], longest common pieces that count as a copy

Each text is looked for as UTF-8, UTF-16, GB18030, inside JSON (once or twice escaped, with or without \\u), HTML and CSV. A piece
counts as a copy when it is 64 bytes of what a person wrote (160 of what a model wrote: models repeat themselves), or most of a
shorter text. Texts under 24 bytes are too common to be looked for by themselves. Numbers and codes that a person wrote (eight
characters and more with three digits, such as a phone number) count wherever they stand.

Leaves out: rewordings, translations, and pieces shorter than that.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ahocorasick_rs import BytesAhoCorasick

WINDOW, STEP = 24, 4  # bytes: two texts that share 27 bytes share a window
PERSON, MODEL, MOST = 64, 160, 0.8  # bytes that make a copy, by who wrote them; or this share of a shorter text
_CODE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9][A-Za-z0-9_@.+\-]{6,}[A-Za-z0-9]")
_DATE = re.compile(r"(?:19|20)\d\d[-./]?\d\d?[-./]?\d\d?")
Span = tuple[int, int]


@dataclass(frozen=True)
class Words:
    """A text to look for; `authored` by a person, or said by a model."""

    text: str
    authored: bool


@dataclass(frozen=True)
class _Form:
    """One text in one way of writing it; `least` bytes in a row make a copy. `origin` is the place of the text."""

    data: bytes
    least: int
    origin: int
    plain: bool


class Needles:
    """The words of erased records, ready to be looked for."""

    def __init__(self, words: Iterable[Words]) -> None:
        self.words = tuple(dict.fromkeys(words))
        self.too_short = sum(len(one.text.encode(errors="replace")) < WINDOW for one in self.words)
        self._forms: list[_Form] = []
        patterns: dict[bytes, list[tuple[int, int]]] = {}
        for origin, one in enumerate(self.words):
            for form in _forms(one, origin):
                at = len(self._forms)
                self._forms.append(form)
                last = len(form.data) - WINDOW
                for offset in {*range(0, last + 1, STEP), last}:
                    patterns.setdefault(form.data[offset : offset + WINDOW], []).append((at, offset))
        self.codes = frozenset(code for one in self.words if one.authored for code in codes(one.text))
        self._codes = {
            form for code in self.codes for form in (code.encode(), code.encode("utf-16-le"), code.encode("utf-16-be"))
        }
        self._patterns = [*patterns, *sorted(self._codes - patterns.keys())]
        self._places = list(patterns.values())
        self._machine = BytesAhoCorasick(self._patterns) if self._patterns else None

    def __bool__(self) -> bool:
        return self._machine is not None

    def spans(self, data: bytes | memoryview) -> list[Span]:
        """The pieces of `data` that are copies, in order, joined where they touch."""
        found = [(start, end) for start, end, _, _ in self._copies(data)]
        return _joined(found)

    def hit(self, data: bytes | memoryview) -> bool:
        return next(self._copies(data), None) is not None

    def without(self, others: Iterable[str]) -> Needles:
        """The same, less what is also in `others`: words that somebody else said too are nobody's own."""
        shared: dict[int, list[Span]] = {}
        codes_: set[str] = set()
        for text in others:
            data = text.encode(errors="replace")
            for start, end, at, offset in self._copies(data):
                if at < 0:
                    codes_.add(data[start:end].decode(errors="ignore"))
                elif self._forms[at].plain:
                    shared.setdefault(self._forms[at].origin, []).append((offset, offset + end - start))
        if not shared and not codes_:
            return self
        left = [piece for at, one in enumerate(self.words) for piece in _cut(one, shared.get(at, []), codes_)]
        return Needles(left)

    def _copies(self, data: bytes | memoryview) -> Iterator[tuple[int, int, int, int]]:
        """(start, end, form, offset in the form) of every copy; form -1 for a code."""
        if self._machine is None:
            return
        done: dict[int, int] = {}
        for number, start, end in self._machine.find_matches_as_indexes(data, overlapping=True):
            if self._patterns[number] in self._codes:
                yield start, end, -1, 0
            for at, offset in self._places[number] if number < len(self._places) else ():
                if start < done.get(at, -1):
                    continue
                form = self._forms[at]
                back = _common_back(data, start, form.data, offset)
                ahead = _common(data, start, form.data, offset)
                done[at] = start + ahead
                if back + ahead >= form.least:
                    yield start - back, start + ahead, at, offset - back


def codes(text: str) -> set[str]:
    """Phone numbers, ids, addresses of machines and the like; dates are everybody's."""
    found = {match[0] for match in _CODE.finditer(text)}
    found |= {re.sub(r"[\s\-]", "", match[0]) for match in re.finditer(r"\d(?:[\s\-]?\d){8,}", text)}
    return {one for one in found if sum(char.isdigit() for char in one) >= 3 and len(one) >= 8 and not _DATE.match(one)}


def _forms(one: Words, origin: int) -> Iterable[_Form]:
    plain = one.text.encode(errors="replace")
    if len(plain) < WINDOW:
        return
    most = PERSON if one.authored else MODEL
    seen: set[bytes] = set()
    for data in _written(one.text):
        if data in seen or len(data) < WINDOW:
            continue
        seen.add(data)
        wider = len(data) / len(plain)
        yield _Form(data, max(WINDOW, min(int(most * wider), int(MOST * len(data)))), origin, data == plain)


def _written(text: str) -> Iterable[bytes]:
    once, ascii_ = json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1]
    upper = re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match[0][2:].upper(), ascii_)
    again = (json.dumps(once, ensure_ascii=False)[1:-1], json.dumps(once)[1:-1], json.dumps(ascii_)[1:-1])
    shown = (html.escape(text), html.escape(text, quote=False), text.replace('"', '""'), text.replace("|", "\\|"))
    for form in (text, " ".join(text.split()), once, ascii_, upper, *again, *shown):
        yield form.encode(errors="replace")
    for encoding in ("utf-16-le", "utf-16-be", "gb18030"):
        yield text.encode(encoding, errors="replace")


def _cut(one: Words, shared: Sequence[Span], codes_: set[str]) -> list[Words]:
    """What is left of a text without its shared pieces."""
    data, at, left = one.text.encode(errors="replace"), 0, []
    for start, end in [*_joined(list(shared)), (len(data), len(data))]:
        piece = data[at:start].decode(errors="ignore")
        for code in codes_:
            piece = piece.replace(code, " ")
        if piece.strip():
            left.append(Words(piece, one.authored))
        at = end
    return left


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _common(a: bytes | memoryview, at: int, b: bytes, bt: int) -> int:
    """How many bytes are alike from here on."""
    most = min(len(a) - at, len(b) - bt)
    same, step = 0, 4096
    while same < most:
        step = min(step, most - same)
        if bytes(a[at + same : at + same + step]) == b[bt + same : bt + same + step]:
            same += step
        elif step == 1:
            break
        else:
            step = max(1, step // 2)
    return same


def _common_back(a: bytes | memoryview, at: int, b: bytes, bt: int) -> int:
    same = 0
    while same < min(at, bt) and a[at - same - 1] == b[bt - same - 1]:
        same += 1
    return same
