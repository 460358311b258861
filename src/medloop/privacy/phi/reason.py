"""Reasons that people give for a decision: the audit log keeps them for ever, so they may not name a patient."""

import re

from medloop.errors import InputError
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable

LONGEST_REASON = 200  # characters
# Words of every reason about a model, which the scrubber does not know: methods in small letters, a version beside its number.
_METHOD = lazy_pattern(r"(?<![A-Za-z])(?:sft|dpo|kto|ppo|grpo|rloo|rl)(?![A-Za-z])", re.IGNORECASE)
_VERSION = lazy_pattern(r"版本(?=\s?\d)|(?<=[A-Za-z\d])版本|(?<=[A-Za-z\d]\s)版本")


def checked_reason(reason: str) -> str:
    """The reason in one line; InputError if it is too long or may name somebody."""
    reason = " ".join(reason.split())
    if len(reason) > LONGEST_REASON:
        raise InputError(f"The reason has more than {LONGEST_REASON} characters", "Write it shorter")
    if _names_nobody(reason):
        return reason
    raise InputError("The reason may name a person, and the audit log keeps it for ever", "Write it without names and numbers")


def kept_text(text: str) -> str:
    """A text that is kept for ever, with placeholders; InputError if it is doubtful whether it names somebody all the same."""
    if _names_nobody(text):
        return text
    try:
        return Scrubber().release(text)
    except Unscrubbable:
        raise InputError("This text may name a person", "Do not name patients") from None


def _names_nobody(text: str) -> bool:
    """Whether the scrubber would leave the text as it is, once it can read the words of models."""
    read = _VERSION.sub("模型", _METHOD.sub(lambda method: method[0].upper(), text))
    try:
        return not text or Scrubber().release(read) == read
    except Unscrubbable:
        return False
