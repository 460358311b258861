"""Reasons and notes of erasures: they are stored for good and not encrypted, so they must not name the person."""

import re

from medloop.errors import InputError
from medloop.privacy.phi.scrub import Scrubber

LONGEST_REASON = 200  # characters
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")  # "request of 2026-05-03" would be the number of a request


class NoteError(InputError):
    """A reason or a note is missing or too long, or it may name somebody."""


def check_reason(reason: str) -> str:
    """The reason of a request. The day on which it was made belongs there, so dates are allowed."""
    text = reason.strip()
    if not text or len(text) > LONGEST_REASON or not text.isprintable():
        raise NoteError(
            f"An erasure needs a reason of 1 to {LONGEST_REASON} characters", "For example: --reason 'asked on 3 May'"
        )
    assessment = Scrubber().assess(text)
    spans = (span for span in assessment.spans if span.kind != "DATE" and not _DAY.fullmatch(text[span.start : span.end]))
    if assessment.quarantined or any(spans):
        raise NoteError("The reason may name a person, and it is stored for good", "Leave out names and numbers of people")
    return text


def check_note(note: str) -> str:
    """The note of a decision, in one line."""
    text = " ".join(note.split())
    if len(text) > LONGEST_REASON or not text.isprintable():
        raise NoteError(f"A note may have up to {LONGEST_REASON} printable characters", "Shorten it")
    assessment = Scrubber().assess(text)
    if assessment.quarantined or assessment.cleaned != text:
        raise NoteError("The note may name a person, and it is stored for good", "Leave out names, numbers and dates of people")
    return text
