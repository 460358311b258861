"""Preference pairs out of JSON lines, split by prompt, encoded for the pairwise loss.

A line is a record of `preferences.jsonl` (`prompt`, `chosen`, `rejected`, `metadata`), a choice of a person as the feedback
service keeps it (`prompt`, `response_a`, `response_b`, `preferred`), or has `question` or `messages` in place of `prompt`.
What else a line holds is passed over. What is wrong is said with file and line, never with the text, before anything is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from datasets import Dataset
from pydantic import ValidationError

from medloop.contracts import Conversation, Message
from medloop.errors import InputError
from medloop.models.classify import encode
from medloop.store.files import jsonl

PROMPTS = ("prompt", "question", "messages")
CHOICE = ("response_a", "response_b", "preferred")


class Opens(Protocol):
    """Something said in answer to a conversation; see `opening`."""

    @property
    def opening(self) -> str: ...

    @property
    def side(self) -> str | None:
        """`train` or `test` where the file says so (`metadata.split`)."""
        ...


T = TypeVar("T", bound=Opens)


@dataclass(frozen=True)
class Pair:
    """Two answers to one prompt, of which a person liked `chosen` better."""

    prompt: tuple[Message, ...]
    chosen: str
    rejected: str
    side: str | None = None

    @property
    def opening(self) -> str:
        return opening(self.prompt)


@dataclass(frozen=True)
class Pairs:
    """Encoded pairs, and what happened to the others. `rows` has the columns chosen_ids and rejected_ids."""

    pairs: list[Pair]
    rows: Dataset
    lengths: list[int]
    tokens: int
    too_long: int
    shortened: int

    def left_out(self) -> str:
        """In words, or nothing: `12 too long, 3 with a shortened prompt`."""
        counts = ((self.too_long, "too long"), (self.shortened, "with a shortened prompt"))
        return ", ".join(f"{count:,} {what}" for count, what in counts if count)


def opening(prompt: Sequence[Message]) -> str:
    """The first question, in plain small letters: conversations that open alike stay on one side of a split."""
    first = next(message.content for message in prompt if message.role == "user")
    return " ".join(first.lower().split())


def read_pairs(path: Path) -> list[Pair]:
    """Every pair of a file; the first bad line stops with an InputError that names it."""
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path} is empty", "Give a file with one preference per line")
    found = []
    for number, row in jsonl.numbered(path):
        try:
            found.append(pair_of(row))
        except UnfitPair as problem:
            raise InputError.at(path, number, str(problem), "Repair or remove that line") from None
    if not found:
        raise InputError(f"{path} has no pairs", "Give a file with one preference per line")
    return found


def contradictions(pairs: Sequence[Pair]) -> int:
    """Pairs whose reverse is in the file too: people disagreed, and no model can be right about both."""
    known = {(pair.opening, pair.prompt, pair.chosen, pair.rejected) for pair in pairs}
    return sum((pair.opening, pair.prompt, pair.rejected, pair.chosen) in known for pair in pairs)


def split_by_prompt(pairs: Sequence[T], share: float, seed: int, *, as_marked: bool = True) -> tuple[list[T], list[T]]:
    """(train, test): whole openings go to the test side, in an order that seed and text decide, until `share` is reached.

    What the file itself marks as train or test stays on that side, and is not drawn; so the split of 'medloop data build' holds.
    """
    groups: dict[str, list[T]] = {}
    for pair in pairs:
        groups.setdefault(pair.opening, []).append(pair)
    marks = {opening: {pair.side for pair in group if as_marked} for opening, group in groups.items()}
    held = {opening for opening, sides in marks.items() if "test" in sides}
    free = [opening for opening, sides in marks.items() if not sides & {"train", "test"}]
    order = sorted(free, key=lambda opening: hashlib.sha256(f"{seed}:{opening}".encode()).digest())
    count = sum(len(groups[opening]) for opening in held)
    for opening in order:
        if count + len(groups[opening]) <= share * len(pairs):
            held.add(opening)
            count += len(groups[opening])
    sides: tuple[list[T], list[T]] = ([], [])
    for pair in pairs:
        sides[pair.opening in held].append(pair)
    return sides


def encode_pairs(tokenizer: Any, pairs: Sequence[Pair], *, max_length: int) -> Pairs:
    """Token ids of both answers, each with the prompt before it. Pairs with an answer too long to read are left out."""
    kept: list[Pair] = []
    columns: dict[str, list[list[int]]] = {"chosen_ids": [], "rejected_ids": []}
    shortened = 0
    for pair in pairs:
        chosen, rejected = (encode(tokenizer, pair.prompt, text, max_length=max_length) for text in (pair.chosen, pair.rejected))
        if chosen is None or rejected is None:
            continue
        kept.append(pair)
        columns["chosen_ids"].append(chosen.ids)
        columns["rejected_ids"].append(rejected.ids)
        shortened += any(side.dropped_turns or side.cut_tokens for side in (chosen, rejected))
    lengths = [max(len(a), len(b)) for a, b in zip(*columns.values(), strict=True)]
    tokens = sum(len(ids) for column in columns.values() for ids in column)
    return Pairs(kept, Dataset.from_dict(columns), lengths, tokens, len(pairs) - len(kept), shortened)


class UnfitPair(Exception):
    """What is wrong with a line; never quotes it."""


def pair_of(row: dict[str, Any]) -> Pair:
    """One line as a pair, or UnfitPair."""
    if all(key in row for key in CHOICE):
        if row["preferred"] not in ("a", "b"):
            raise UnfitPair("preferred should be a or b")
        other = "b" if row["preferred"] == "a" else "a"
        row = {**row, "chosen": row[f"response_{row['preferred']}"], "rejected": row[f"response_{other}"]}
    chosen, rejected = answer_of(row, "chosen"), answer_of(row, "rejected")
    if chosen.strip() == rejected.strip():
        raise UnfitPair("chosen and rejected are the same text")
    return Pair(prompt_of(row), chosen, rejected, side_of(row))


def side_of(row: dict[str, Any]) -> str | None:
    """The side of the split that a row says it is on."""
    about = row.get("metadata")
    said = about.get("split") if isinstance(about, dict) else None
    return said if said in ("train", "test") else None


def prompt_of(row: dict[str, Any]) -> tuple[Message, ...]:
    """What was asked, or UnfitPair."""
    said = next((row[key] for key in PROMPTS if row.get(key) is not None), None)
    if said is None:
        raise UnfitPair(f"none of {', '.join(PROMPTS)} is there")
    try:
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
        turns = Conversation.model_validate({"messages": messages}).messages
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, p['loc'])) or 'prompt'}: {p['msg'].lower()}" for p in error.errors(include_input=False))
        raise UnfitPair("; ".join(problems)) from None
    if turns[-1].role != "user":
        raise UnfitPair("the prompt does not end with the user's turn")
    return turns


def answer_of(row: dict[str, Any], name: str) -> str:
    """The text of an answer, also where it is a list with the assistant's one message."""
    said = row.get(name)
    if isinstance(said, list) and len(said) == 1 and isinstance(said[0], dict) and said[0].get("role") == "assistant":
        said = said[0].get("content")
    if said is None:
        raise UnfitPair(f"{name} is missing")
    if not isinstance(said, str) or not said.strip():
        raise UnfitPair(f"{name} should be a text that is not empty")
    return said
