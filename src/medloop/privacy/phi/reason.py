"""Reasons that people give for a decision: the audit log keeps them for ever, so they may not name a patient."""

from medloop.errors import InputError
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable

LONGEST_REASON = 200  # characters


def checked_reason(reason: str) -> str:
    """The reason in one line; InputError if it is too long or may name somebody."""
    reason = " ".join(reason.split())
    if len(reason) > LONGEST_REASON:
        raise InputError(f"The reason has more than {LONGEST_REASON} characters", "Write it shorter")
    try:
        if not reason or Scrubber().release(reason) == reason:
            return reason
    except Unscrubbable:
        pass
    raise InputError("The reason may name a person, and the audit log keeps it for ever", "Write it without names and numbers")


def kept_text(text: str) -> str:
    """A text that is kept for ever, with placeholders; InputError if it is doubtful whether it names somebody all the same."""
    try:
        return Scrubber().release(text) if text else text
    except Unscrubbable:
        raise InputError("This text may name a person", "Do not name patients") from None
