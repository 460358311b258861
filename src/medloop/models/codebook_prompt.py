"""The codebook in a prompt: rules that a model is told before everything else, without training.

    codebook = read_codebook(Path("rules.jsonl"))
    codebook.before(messages)                            # its text at the start of the system message
    with_rules(messages, find(question))                 # the same with the rules that fit one question
    spoken(answer, rules)                                # an answer after the vetted sentences of its rules

A file of rules is JSON lines of `CodebookRule` or `CodebookDelta` (as `data feedback` proposes them), or plain text that is taken
as it is. Retired rules are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from medloop.contracts import CodebookDelta, CodebookRule, Message, RulesFound
from medloop.errors import InputError, explain_os_errors
from medloop.store.files import jsonl
from medloop.store.files.atomic import file_sha256

HEADING = "Follow these rules of the clinic in your answer. 请在回答中遵守以下规则。"
SAY_FIRST = ("先说明：", "Say first: ")  # how a rule names its vetted sentence
MOST_CHARACTERS = 20_000  # a longer one fits into no small model


@dataclass(frozen=True)
class Codebook:
    """Rules as one text, and the hash of the file."""

    text: str
    sha256: str

    def before(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages with the rules at the start of the system message."""
        return _before(self.text, messages)

    def shown(self, answer: str, messages: tuple[Message, ...]) -> str:
        """The answer as it is: a file of rules asks the model, and enforces nothing."""
        return answer


class PromptRules(Protocol):
    """Rules for the prompts of a model, and what they make of its answers."""

    @property
    def sha256(self) -> str: ...

    def before(self, messages: tuple[Message, ...]) -> tuple[Message, ...]: ...

    def shown(self, answer: str, messages: tuple[Message, ...]) -> str: ...


def with_rules(messages: tuple[Message, ...], found: RulesFound) -> tuple[Message, ...]:
    """The messages with the rules that fit their question; unchanged where none does."""
    texts = prompt_texts(found)
    return _before(rules_text(texts), messages) if texts else messages


def prompt_texts(found: RulesFound) -> list[str]:
    """What a model is told. A rule that only names its vetted sentence is left out where that sentence is put first anyway."""
    return [rule.text for rule in found.rules if rule.told and not names_only(rule.text, rule.first_sentence)]


def names_only(text: str, sentence: str) -> bool:
    """Whether a rule asks for nothing but its vetted sentence."""
    return bool(sentence) and any(text.endswith(say + sentence) for say in SAY_FIRST)


def rules_text(texts: Sequence[str]) -> str:
    """Rules as they stand in a prompt: a heading, then one line for each."""
    return "\n".join([HEADING, *(f"- {' '.join(text.split())}" for text in dict.fromkeys(texts))])


def first_sentences(found: RulesFound) -> tuple[str, ...]:
    """The vetted sentences that stand before the answer, best fitting rule first, each once."""
    return tuple(dict.fromkeys(rule.first_sentence for rule in found.rules if rule.first_sentence))


def spoken(answer: str, found: RulesFound) -> str:
    """The answer as the user gets it: the vetted sentences of its rules first, behind the reasoning if it shows one."""
    sentences = " ".join(first_sentences(found))
    if not sentences:
        return answer
    reasoning, mark, visible = answer.rpartition("</think>")
    return f"{reasoning}{mark}\n{sentences}\n{visible.strip()}".strip()


def _before(text: str, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    own = messages[0].content if messages[0].role == "system" else ""
    rest = messages[1:] if own else messages
    return (Message(role="system", content=f"{text}\n\n{own}".strip()), *rest)


def read_codebook(path: Path) -> Codebook:
    if path.suffix == ".jsonl":
        rules = [_rule(path, number, row) for number, row in jsonl.numbered(path)]
        active = [rule.text for rule in rules if rule.state != "retired"]
        text = rules_text(active) if active else ""
    else:
        with explain_os_errors(path):
            text = path.read_bytes().decode("utf-8", errors="replace").strip()
    if not text or "\ufffd" in text or len(text) > MOST_CHARACTERS:
        problem = (
            "has no rule" if not text else "is not UTF-8 text" if "\ufffd" in text else f"is over {MOST_CHARACTERS} characters"
        )
        raise InputError(f"The codebook {path} {problem}", "Name a text file, or JSON lines of rules")
    return Codebook(text, file_sha256(path))


def _rule(path: Path, number: int, row: dict[str, object]) -> CodebookRule:
    try:
        if "action" not in row:
            return CodebookRule.model_validate(row)
        delta = CodebookDelta.model_validate(row)
    except ValidationError:
        raise InputError.at(path, number, "not a rule of a codebook", "A rule has text, scope and timestamp") from None
    return delta.rule.model_copy(update={"state": "retired"}) if delta.action == "retire" else delta.rule
