"""Find a person's own words in any file, in any of the usual encodings.

    needles = Needles([ErasedText("I live at …", authored=True)])
    needles.spans(data)        # [(start, end)]: the longest common pieces that count as a copy

The search covers UTF-8, UTF-16, GB18030, JSON (escaped once or twice, with or without \\u), HTML and CSV. A piece counts as a
copy if it has 64 bytes of what a person wrote (160 of what a model wrote, because models repeat themselves), or most of a
shorter text. Texts under 24 bytes are too common to search for. Numbers and codes that a person wrote (at least eight characters
with three digits, such as a phone number) count wherever they occur, and so do `names`, the session ids of the records. Ids that
medloop gave and the computer's own address are nobody's.

Not covered: rewordings, translations, and pieces shorter than that.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ahocorasick_rs import BytesAhoCorasick

WINDOW, STEP = 24, 4  # bytes: two texts that share 27 bytes share a window
PERSON, MODEL, MOST = 64, 160, 0.8  # bytes that make a copy, by author; or this share of a shorter text
SHORTEST_NAME = 8  # characters of a session id that is searched for
_CODE = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9][A-Za-z0-9_@.+\-]{6,}[A-Za-z0-9]")
_OWN_ID = re.compile(  # rule_01a1…: records have lineage. A hospital's patient_01a1… is somebody's.
    r"(?:case|cbr|cor|crit|dep|dev|eev|er|ereq|exp|fb|flag|inc|pol|pref|rnd|route|rule|sign|step|try|ver|waiv)"
    r"_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:qi|sub)_[0-9a-f]{32}"
)
# 500-1000 mg, metformin-1000mg, 10.5-12.5, 1.0E+07, L4-L5-S1, BNT162b2: medical texts share them, and they are no person's.
_NUMBER = r"\d{1,6}(?:\.\d{1,4})?"  # longer ones with a letter are identity numbers
_MEDICAL = re.compile(
    rf"(?:[A-Za-z]+-?{_NUMBER}(?:m[gl]|mcg|iu)|\d{{7,9}} ?(?:iu|units?)"
    rf"|{_NUMBER}(?:-{_NUMBER})?[ -]?(?:[mμµuk]?g|mcg|[mdcμµu]?l|iu|ie|units?|[mμµun]?mol|mmhg|[kc]?m|mm|k?cal"
    r"|bpm|days?|weeks?|months?|years?|hours?|hrs?|h|minutes?|mins?|tablets?|tabs?|capsules?|drops?|times|steps)"
    rf"|{_NUMBER}-{_NUMBER} ?(?:%|[毫微千公]?[克升米]|单位|国际单位|[片粒支次步天周月年岁])"
    r"|\d{1,3}\.\d{1,3}-\d{1,3}\.\d{1,3}|\d+\.\d+E[+-]?\d{1,3}"
    r"|\d{1,4}00-+\d{1,5}00|(?:[CTLS]\d{1,2}-)+[CTLS]\d{1,2}|BNT162b2|mRNA-1273|NCT\d{8})(?![A-Za-z0-9@]|[.+_-][A-Za-z0-9])",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d(?:[\s\-]?\d){8,}")
_LOOPBACK = re.compile(r"(?:127(?:\.\d{1,3}){3}|0\.0\.0\.0)")
# 1-800-273-8255 and 400-161-9995: nobody has one at home, and answers name them to everybody in a crisis. Ten digits without a
# hyphen may be the number of a patient.
_HOTLINE = re.compile(
    r"\+?1[-.]?8(?:00|33|44|55|66|77|88)(?:[-.]?\d){7}|8(?:00|33|44|55|66|77|88)(?:[-.]\d{3,4}){2}|400(?:[-.]\d{3,4}){2}"
    r"|0800(?:[-.]?\d){5,7}"
)
_DATE = re.compile(r"(?:19|20)\d\d[-./]?\d\d?[-./]?\d\d?")
Span = tuple[int, int]


@dataclass(frozen=True)
class ErasedText:
    """A text to search for; `authored` means that a person wrote it, not a model."""

    text: str
    authored: bool


@dataclass(frozen=True)
class _Form:
    """One text in one encoding; `least` bytes in a row make a copy. `origin` is the index of the text."""

    data: bytes
    least: int
    origin: int
    plain: bool


class Needles:
    """The texts of erased records, prepared for searching."""

    def __init__(self, words: Iterable[ErasedText], names: Iterable[str] = ()) -> None:
        self.words = tuple(dict.fromkeys(word for word in words if not _OWN_ID.fullmatch(word.text)))
        self.names = frozenset(name for name in names if len(name) >= SHORTEST_NAME)
        self.too_short = sum(len(text.text.encode(errors="replace")) < WINDOW for text in self.words)
        self._forms: list[_Form] = []
        patterns: dict[bytes, list[tuple[int, int]]] = {}
        for origin, text in enumerate(self.words):
            for form in _forms(text, origin):
                form_index = len(self._forms)
                self._forms.append(form)
                last = len(form.data) - WINDOW
                for offset in {*range(0, last + 1, STEP), last}:
                    patterns.setdefault(form.data[offset : offset + WINDOW], []).append((form_index, offset))
        self.codes = self.names | {code for text in self.words if text.authored for code in codes(text.text)}
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
        copies = [(start, end) for start, end, _, _ in self._copies(data)]
        return _joined(copies)

    def match(self, text: str) -> str | None:
        """What of the texts this text holds, in words that do not repeat it; None if nothing."""
        copies = list(self._copies(text.encode(errors="replace")))
        if any(index < 0 for _, _, index, _ in copies):
            return "a code that the person's text has"
        if not copies:
            return None
        start, end, _, _ = max(copies, key=lambda copy: copy[1] - copy[0])
        return f"the same text of {len(text.encode(errors='replace')[start:end].decode(errors='ignore')):,} characters"

    def hit(self, data: bytes | memoryview) -> bool:
        return next(self._copies(data), None) is not None

    def without(self, others: Iterable[str]) -> Needles:
        """The needles without text that is also in `others`: words that somebody else wrote too identify nobody."""
        shared: dict[int, list[Span]] = {}
        shared_codes: set[str] = set()
        for text in others:
            data = text.encode(errors="replace")
            for start, end, index, offset in self._copies(data):
                if index < 0:
                    shared_codes.add(data[start:end].decode(errors="ignore"))
                elif self._forms[index].plain:
                    shared.setdefault(self._forms[index].origin, []).append((offset, offset + end - start))
        if not shared and not shared_codes:
            return self
        left = [piece for index, erased in enumerate(self.words) for piece in _cut(erased, shared.get(index, []), shared_codes)]
        return Needles(left, self.names - shared_codes)

    def _copies(self, data: bytes | memoryview) -> Iterator[tuple[int, int, int, int]]:
        """(start, end, form, offset in the form) of every copy; form -1 for a code."""
        if self._machine is None:
            return
        done: dict[int, int] = {}
        for number, start, end in self._machine.find_matches_as_indexes(data, overlapping=True):
            if self._patterns[number] in self._codes:
                yield start, end, -1, 0
            for index, offset in self._places[number] if number < len(self._places) else ():
                if start < done.get(index, -1):
                    continue
                form = self._forms[index]
                back = _common_back(data, start, form.data, offset)
                ahead = _common(data, start, form.data, offset)
                done[index] = start + ahead
                if back + ahead >= form.least:
                    yield start - back, start + ahead, index, offset - back


def codes(text: str) -> set[str]:
    """Phone numbers, ids, network addresses and the like. Amounts, lab values and vertebrae are nobody's."""
    candidates = {match[0] for match in _CODE.finditer(text) if not _MEDICAL.match(text, match.start())}
    for match in _DIGITS.finditer(text):
        if not _MEDICAL.match(text, match.start()) and not _HOTLINE.fullmatch(re.sub(r"\s", "-", match[0])):
            candidates.add(re.sub(r"[\s\-]", "", match[0]))
    return {code for code in candidates if sum(char.isdigit() for char in code) >= 3 and len(code) >= 8 and not _is_nobodys(code)}


def _is_nobodys(code: str) -> bool:
    """A round number, a date, an id that medloop gave, the computer's own address, a free number: many records have it."""
    is_round = len(set(code)) < 3  # 10000000 is in 0.10000000149, as computers write a tenth
    return is_round or bool(_DATE.match(code) or any(own.fullmatch(code) for own in (_OWN_ID, _LOOPBACK, _HOTLINE)))


def _forms(erased: ErasedText, origin: int) -> Iterable[_Form]:
    plain = erased.text.encode(errors="replace")
    if len(plain) < WINDOW:
        return
    most = PERSON if erased.authored else MODEL
    seen: set[bytes] = set()
    for data in _written(erased.text):
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


def _cut(erased: ErasedText, shared: Sequence[Span], shared_codes: set[str]) -> list[ErasedText]:
    """The text without its shared pieces."""
    data, start_of_piece, left = erased.text.encode(errors="replace"), 0, []
    for start, end in [*_joined(list(shared)), (len(data), len(data))]:
        piece = data[start_of_piece:start].decode(errors="ignore")
        for code in shared_codes:
            piece = piece.replace(code, " ")
        if piece.strip():
            left.append(ErasedText(piece, erased.authored))
        start_of_piece = end
    return left


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _common(a: bytes | memoryview, i: int, b: bytes, j: int) -> int:
    """How many bytes are equal from here on."""
    most = min(len(a) - i, len(b) - j)
    same, step = 0, 4096
    while same < most:
        step = min(step, most - same)
        if bytes(a[i + same : i + same + step]) == b[j + same : j + same + step]:
            same += step
        elif step == 1:
            break
        else:
            step = max(1, step // 2)
    return same


def _common_back(a: bytes | memoryview, i: int, b: bytes, j: int) -> int:
    same = 0
    while same < min(i, j) and a[i - same - 1] == b[j - same - 1]:
        same += 1
    return same
