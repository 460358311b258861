"""Instructions whose fulfilment a program can see: so many items, sentences or words, a keyword, a language, JSON.

InstructionCheck(check="items", count=3).holds("- apples\\n- pears\\n- plums")   -> True
"""

import json
import re
from collections.abc import Callable
from typing import Final, Literal

from pydantic import Field, model_validator

from medloop.contracts import Contract
from medloop.contracts.base import Text
from medloop.lexicon.language import detect_language

_ITEM = re.compile(r"^\s*(?:[-*•·–]|\d{1,2}[.)、．])\s*\S", re.MULTILINE)
_SENTENCE_END = re.compile(r"[。！？!?…]+|\.+(?=\s|$)|\n+")
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+(?:['’-][^\W_\u3400-\u9fff]+)*")
_FENCE = re.compile(r"^```(?:json)?\s*|\s*```$")
_AROUND = " \t\n.。!！\"'“”‘’`*"

CheckName = Literal[
    "items", "sentences", "paragraphs", "at_most", "at_least", "contains", "without", "only", "begins", "ends", "json", "lower",
    "upper", "language",
]  # fmt: skip
# What each check needs besides its name.
NEEDS: Final[dict[str, str]] = {
    "items": "count", "sentences": "count", "paragraphs": "count", "at_most": "count", "at_least": "count", "contains": "words",
    "without": "words", "only": "words", "begins": "words", "ends": "words", "json": "keys", "language": "language",
}  # fmt: skip


class InstructionCheck(Contract):
    """`count` items, sentences, paragraphs or words (Chinese: characters); `words` that must or must not occur; JSON `keys`."""

    check: CheckName
    count: int | None = Field(None, ge=1)
    words: tuple[Text, ...] = ()
    keys: tuple[Text, ...] = ()
    language: Text | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> "InstructionCheck":
        need = NEEDS.get(self.check)
        if need and not getattr(self, need):
            raise ValueError(f"the check {self.check} needs {need}")
        return self

    def holds(self, answer: str) -> bool:
        return bool(answer.strip()) and CHECKS[self.check](answer.strip(), self)


def count_sentences(text: str) -> int:
    return sum(1 for part in _SENTENCE_END.split(text) if _WORD.search(part))


def count_words(text: str) -> int:
    """Words, and characters of Chinese."""
    return len(_WORD.findall(text))


def _words_in(text: str, check: InstructionCheck) -> list[bool]:
    folded = text.casefold()
    return [word.casefold() in folded for word in check.words]


def _is_json(text: str, check: InstructionCheck) -> bool:
    try:
        value = json.loads(_FENCE.sub("", text))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and set(value) == set(check.keys)


CHECKS: Final[dict[str, Callable[[str, InstructionCheck], bool]]] = {
    "items": lambda text, check: len(_ITEM.findall(text)) == check.count,
    "sentences": lambda text, check: count_sentences(text) == check.count,
    "paragraphs": lambda text, check: len(re.split(r"\n\s*\n", text)) == check.count,
    "at_most": lambda text, check: count_words(text) <= (check.count or 0),
    "at_least": lambda text, check: count_words(text) >= (check.count or 0),
    "contains": lambda text, check: all(_words_in(text, check)),
    "without": lambda text, check: not any(_words_in(text, check)),
    "only": lambda text, check: text.strip(_AROUND).casefold() in {word.casefold() for word in check.words},
    "begins": lambda text, check: text.startswith(check.words),
    "ends": lambda text, check: text.endswith(check.words),
    "json": _is_json,
    "lower": lambda text, check: text == text.lower() != text.upper(),
    "upper": lambda text, check: text == text.upper() != text.lower(),
    "language": lambda text, check: detect_language(text) == check.language,
}
