"""Spans of identifiers: offsets and kind, merged where they overlap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

Span = tuple[int, int, str]  # start, end and kind


@dataclass(frozen=True)
class PhiSpan:
    """Characters `start` to `end` of the text are an identifier."""

    start: int
    end: int
    kind: str


# Where two spans overlap, the more exact kind names the merged span.
_MOST_EXACT_FIRST = (
    "ID", "CARD", "SSN", "IBAN", "EMAIL", "URL", "IP", "MAC", "PHONE", "RECORD", "PLATE", "VEHICLE", "DATE", "AGE", "PHOTO",
    "ADDRESS", "NAME", "ORG", "PLACE", "NUMBER",
)  # fmt: skip
_START, _END = itemgetter(0), itemgetter(1)
_RANK = {kind: rank for rank, kind in enumerate(_MOST_EXACT_FIRST)}


def merge(spans: Sequence[Span]) -> list[Span]:
    """In order and without overlap: spans that overlap become one with the most exact kind."""
    merged: list[Span] = []
    for start, end, kind in sorted(sorted(spans, key=_END, reverse=True), key=_START):
        if merged and start < merged[-1][1]:
            last_start, last_end, last_kind = merged.pop()
            exact = kind if _RANK.get(kind, -1) < _RANK.get(last_kind, -1) else last_kind
            if last_kind == "ORG" and kind == "NAME" and end <= last_end:
                exact = "ORG"  # a hospital named after somebody
            merged.append((last_start, max(last_end, end), exact))
        else:
            merged.append((start, end, kind))
    return merged


def outside(spans: Sequence[Span], masks: Sequence[Span]) -> Iterator[Span]:
    """The parts of spans that are not covered by placeholders: those are never replaced. Both in order and without overlap."""
    first = 0
    for start, end, kind in spans:
        while first < len(masks) and masks[first][1] <= start:
            first += 1
        position, mask = start, first
        while mask < len(masks) and masks[mask][0] < end:
            if position < masks[mask][0]:
                yield position, masks[mask][0], kind
            position = max(position, masks[mask][1])
            mask += 1
        if position < end:
            yield position, end, kind
