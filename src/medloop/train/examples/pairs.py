"""Preference pairs from JSON lines, and their split by prompt.

A line is a record of `preferences.jsonl` (`prompt`, `chosen`, `rejected`, `metadata`), a choice of a person as the feedback
service keeps it (`prompt`, `response_a`, `response_b`, `preferred`), or has `question` or `messages` in place of `prompt`. A
choice of `tie` or `both_bad`, or one whose better answer could harm (`critical`), gives no pair. Other fields of a line are
ignored. An error names file and line, never the text, and comes before anything is written.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from medloop.contracts import Conversation, Message
from medloop.errors import InputError
from medloop.knobs import problem_list
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import passages_of

PROMPTS = ("prompt", "question", "messages")
CHOICE = ("response_a", "response_b", "preferred")
OUTCOMES = ("a", "b", "tie", "both_bad")


class Answered(Protocol):
    """An answer to a conversation, which a split puts on one side."""

    @property
    def first_question(self) -> str: ...

    @property
    def split(self) -> str | None:
        """`train` or `test` where the file says so (`metadata.split`)."""
        ...


T = TypeVar("T", bound=Answered)


@dataclass(frozen=True)
class Pair:
    """Two answers to one prompt, of which a person liked `chosen` better."""

    prompt: tuple[Message, ...]
    chosen: str
    rejected: str
    split: str | None = None
    passages: tuple[str, ...] = ()

    @property
    def first_question(self) -> str:
        return first_question(self.prompt)


def first_question(prompt: Sequence[Message]) -> str:
    """The first question in lower case, without extra spaces: conversations that share it stay on one side of a split."""
    first = next(message.content for message in prompt if message.role == "user")
    return " ".join(first.lower().split())


def read_pairs(path: Path) -> list[Pair]:
    """Every pair of a file; the first bad line stops with an InputError that names it."""
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path} is empty", "Give a file with one preference per line")
    pairs = []
    for number, row in jsonl.numbered(path):
        try:
            pairs += [] if has_no_winner(row) else [parse_pair(row)]
        except InvalidPreference as problem:
            raise InputError.at(path, number, str(problem), "Repair or remove that line") from None
    if not pairs:
        raise InputError(f"{path} has no pairs", "Give a file with one preference per line")
    return pairs


def count_contradictions(pairs: Sequence[Pair]) -> int:
    """Pairs whose reverse is in the file too: people disagreed, and no model can be right about both."""
    known = {(pair.prompt, pair.chosen, pair.rejected) for pair in pairs}
    return sum((pair.prompt, pair.rejected, pair.chosen) in known for pair in pairs)


def split_by_prompt(pairs: Sequence[T], share: float, seed: int, *, as_marked: bool = True) -> tuple[list[T], list[T]]:
    """(train, test): whole questions go to the test side, in an order that seed and text decide, until `share` is reached.

    Pairs that the file itself marks as train or test stay on that side; so the split of 'medloop data build' holds.
    """
    groups: dict[str, list[T]] = {}
    for pair in pairs:
        groups.setdefault(pair.first_question, []).append(pair)
    marks = {question: {pair.split for pair in group if as_marked} for question, group in groups.items()}
    held_out = {question for question, splits in marks.items() if "test" in splits}
    unmarked = [question for question, splits in marks.items() if not splits & {"train", "test"}]
    count = sum(len(groups[question]) for question in held_out)
    for question in sorted(unmarked, key=lambda question: hashlib.sha256(f"{seed}:{question}".encode()).digest()):
        if count + len(groups[question]) <= share * len(pairs):
            held_out.add(question)
            count += len(groups[question])
    sides: tuple[list[T], list[T]] = ([], [])
    for pair in pairs:
        sides[pair.first_question in held_out].append(pair)
    return sides


def check_both_sides(path: Path, train: Sequence[object], test: Sequence[object], unit: str, *, too_long: int = 0) -> None:
    """Whether a file leaves something to train on and something to measure with."""
    if not train or not test:
        left_out = f" ({too_long} too long)" if too_long else ""
        raise InputError(
            f"{path} leaves {len(train)} {unit} to train on and {len(test)} held out{left_out}",
            f"Both sides need {unit}: add prompts, raise max_length or change test_share",
        )


class InvalidPreference(Exception):
    """Says what is wrong with a line, without quoting it."""


def is_choice(row: dict[str, Any]) -> bool:
    return all(key in row for key in CHOICE)


def flagged_sides(row: dict[str, Any]) -> list[str]:
    """Of a choice, the answers that could harm a patient."""
    flagged = row.get("critical")
    return [side for side in ("a", "b") if isinstance(flagged, list) and side in flagged]


def has_no_winner(row: dict[str, Any]) -> bool:
    """Whether a choice says that the answers are equal or both bad, or that the better one could harm."""
    if is_choice(row) and row["preferred"] not in OUTCOMES:
        raise InvalidPreference(f"preferred should be {', '.join(OUTCOMES[:-1])} or {OUTCOMES[-1]}")
    return is_choice(row) and (row["preferred"] in ("tie", "both_bad") or row["preferred"] in flagged_sides(row))


def parse_pair(row: dict[str, Any]) -> Pair:
    """One line as a pair, or InvalidPreference."""
    if is_choice(row):
        other = "b" if row["preferred"] == "a" else "a"
        row = {**row, "chosen": row[f"response_{row['preferred']}"], "rejected": row[f"response_{other}"]}
    chosen, rejected = parse_answer(row, "chosen"), parse_answer(row, "rejected")
    if chosen.strip() == rejected.strip():
        raise InvalidPreference("chosen and rejected are the same text")
    return Pair(parse_prompt(row), chosen, rejected, parse_split(row), passages_of(row))


def parse_split(row: dict[str, Any]) -> str | None:
    """The side of the split that the row names in its metadata."""
    metadata = row.get("metadata")
    split = metadata.get("split") if isinstance(metadata, dict) else None
    return split if split in ("train", "test") else None


def parse_prompt(row: dict[str, Any]) -> tuple[Message, ...]:
    """The turns before the answer, or InvalidPreference."""
    prompt = next((row[key] for key in PROMPTS if row.get(key) is not None), None)
    if prompt is None:
        raise InvalidPreference(f"has none of {', '.join(PROMPTS)}")
    try:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        turns = Conversation.model_validate({"messages": messages}).messages
    except ValidationError as error:
        raise InvalidPreference(problem_list(error, "prompt")) from None
    if turns[-1].role != "user":
        raise InvalidPreference("the prompt does not end with a message of the user")
    return turns


def parse_answer(row: dict[str, Any], name: str) -> str:
    """The text of an answer, also where it is a list with the assistant's one message."""
    answer = row.get(name)
    if isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], dict) and answer[0].get("role") == "assistant":
        answer = answer[0].get("content")
    if answer is None:
        raise InvalidPreference(f"{name} is missing")
    if not isinstance(answer, str) or not answer.strip():
        raise InvalidPreference(f"{name} should be a text that is not empty")
    return answer
