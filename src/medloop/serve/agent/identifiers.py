"""Identifiers of a patient in a document that is added: numbers of a person, and names and dates that are said to be a patient's.

The scrubber of records is made for what patients write: in a guideline it takes the names of parasites, drugs and authors for
names of people, and a cut in a dose is worse than a name. So a document is judged by what can only belong to a person.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from medloop.patterns import lazy_pattern
from medloop.privacy.phi.scrub import assess
from medloop.privacy.phi.spans import PhiSpan

WINDOW = 8_000  # characters that are scanned at once
PERSONAL = frozenset({"ID", "SSN", "CARD", "IBAN", "RECORD", "PLATE", "VEHICLE"})  # by form or check digit
WITH_PERSON = frozenset({"PHONE", "EMAIL", "ADDRESS", "DATE"})  # a publisher has these too: only beside a person
_PATIENT = lazy_pattern(
    r"(?:患者|病人|患儿|家属|姓名|就诊人|受检者|联系人)[:：\s]{0,3}$"
    r"|\b(?:patient|patient'?s? name|full name|name|next of kin)\s*[:：]\s*$"
    r"|\b(?:patient|pt\.?)\s+(?:mr|mrs|ms|miss)\.?\s*$|\b(?:mr|mrs|ms|miss)\.?\s*$",
    re.IGNORECASE,
)
_BIRTH = lazy_pattern(
    r"(?:出生日期|出生|生日)(?:于|为)?[:：\s]{0,3}$|(?:\bd\.?o\.?b\.?|date of birth|born(?: on)?)[:：\s]{1,3}$", re.IGNORECASE
)
_NUMBERED = lazy_pattern(r"\d")
_MOBILE = lazy_pattern(r"(?:\+?86[- ]?)?1[3-9]\d(?:[- ]?\d){8}")
BESIDE = 60  # characters between a name and how to reach that person
NEAR = 200  # characters: a phone number this near to a person is theirs


def personal_spans(text: str) -> list[PhiSpan]:
    """The identifiers of people in a page, in order."""
    spans: list[PhiSpan] = []
    for start, window in _windows(text):
        found = assess(window).spans
        certain = [span for span in found if _is_personal(window, span)]
        certain += [span for span in found if span not in certain and _is_reachable(span, found)]
        beside = [
            span for span in found
            if span not in certain and span.kind in WITH_PERSON and any(_distance(span, other) <= NEAR for other in certain)
        ]  # fmt: skip
        spans += [
            PhiSpan(start + span.start, start + span.end, span.kind) for span in sorted(certain + beside, key=lambda s: s.start)
        ]
    return spans


def replace_spans(text: str, spans: Sequence[PhiSpan]) -> str:
    """The text with a placeholder for each span; a name that was found is replaced wherever it stands."""
    names = {text[span.start : span.end] for span in spans if span.kind == "NAME" and span.end - span.start > 1}
    parts, position = [], 0
    for span in spans:
        if span.start >= position:
            parts += [text[position : span.start], f"[{span.kind}]"]
            position = span.end
    cleaned = "".join([*parts, text[position:]])
    for name in sorted(names, key=len, reverse=True):
        cleaned = cleaned.replace(name, "[NAME]")
    return cleaned


def count_kinds(spans: Sequence[PhiSpan]) -> str:
    """`ID 2, NAME 1`: what was found, without a word of it."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(Counter(span.kind for span in spans).items()))


def _is_personal(text: str, span: PhiSpan) -> bool:
    value, before = text[span.start : span.end], text[max(0, span.start - 24) : span.start]
    if span.kind in PERSONAL:
        return sum(char.isdigit() for char in value) >= 5
    if span.kind == "PHONE":
        return bool(_MOBILE.fullmatch(value.strip()))
    if span.kind == "DATE":
        return bool(_BIRTH.search(before)) and sum(char.isdigit() for char in value) >= 4
    return span.kind == "NAME" and bool(_PATIENT.search(before)) and not _NUMBERED.search(value)


def _is_reachable(span: PhiSpan, found: Sequence[PhiSpan]) -> bool:
    """A name with a phone number, an address or a mailbox beside it: somebody can be found."""
    contacts = (other for other in found if other.kind in {"PHONE", "EMAIL", "ADDRESS"})
    return span.kind == "NAME" and any(_distance(span, other) <= BESIDE for other in contacts)


def _distance(first: PhiSpan, second: PhiSpan) -> int:
    return max(first.start - second.end, second.start - first.end, 0)


def _windows(text: str) -> Iterator[tuple[int, str]]:
    """Pieces of a text that end at a line where they can."""
    start = 0
    while start < len(text):
        end = min(start + WINDOW, len(text))
        if end < len(text) and (line := text.rfind("\n", start + WINDOW // 2, end)) > 0:
            end = line + 1
        yield start, text[start:end]
        start = end
