"""Thumbs from JSON lines: one answer to a prompt, and whether a person liked it.

A line has a prompt (`prompt`, `question` or `messages`), an answer (`completion`, `answer`, or the last of the messages) and a
verdict: `label` (true, false), `thumb` (up, down), `feedback_type` (positive, negative, neutral) or `rating` (1 to 5
stars; 4 and 5 are liked, 1 and 2 are not). A record of the feedback service (`user_query`, `agent_response`) is read the same
way; `critical` there means not liked, whatever else it says. A preference pair is two thumbs: chosen up, rejected down.

Skipped and counted: lines whose verdict is neither good nor bad or contradicts itself, records that a later one `supersedes`,
records whose `consent` does not name training. An error names file and line, never the text.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import Message
from medloop.contracts.polarity import Polarity, combine, label, polarity
from medloop.errors import InputError
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import passages_of
from medloop.train.examples.pairs import (
    InvalidPreference,
    first_question,
    flagged_sides,
    has_no_winner,
    is_choice,
    parse_answer,
    parse_pair,
    parse_prompt,
    parse_split,
)

ANSWERS = ("completion", "answer", "agent_response")
VERDICTS = ("label", "thumb", "feedback_type", "rating")
WORDS: dict[str, Polarity] = {
    "up": "positive", "positive": "positive", "true": "positive", "down": "negative", "negative": "negative",
    "false": "negative", "neutral": "neutral",
}  # fmt: skip
UNDECIDED, SUPERSEDED, NOT_ALLOWED = "neither good nor bad", "superseded by a later record", "without consent to training"


@dataclass(frozen=True)
class Thumb:
    """An answer to a prompt, and whether a person liked it."""

    prompt: tuple[Message, ...]
    answer: str
    liked: bool
    split: str | None = None
    passages: tuple[str, ...] = ()

    @property
    def first_question(self) -> str:
        return first_question(self.prompt)


@dataclass(frozen=True)
class ThumbFile:
    """The thumbs of a file, and how many lines were skipped, by reason."""

    thumbs: list[Thumb]
    skipped: Counter[str]


def read_thumbs(path: Path) -> ThumbFile:
    """Every thumb of a file; the first bad line stops with an InputError that names it."""
    rows = list(jsonl.numbered(path))
    superseded = {row["supersedes"] for _, row in rows if isinstance(row.get("supersedes"), str)}
    thumbs, skipped = list[Thumb](), Counter[str]()
    for number, row in rows:
        try:
            if (reason := _unusable(row, superseded)) is not None:
                skipped[reason] += 1
            elif not (parsed := parse_thumbs(row)):
                skipped[UNDECIDED] += 1
            else:
                thumbs += parsed
        except InvalidPreference as problem:
            raise InputError.at(path, number, str(problem), "Repair or remove that line") from None
    if not thumbs:
        why = ", ".join(f"{count:,} {reason}" for reason, count in skipped.items()) or "it is empty"
        raise InputError(f"{path} has no thumbs ({why})", "Give a file with one thumb or preference per line")
    return ThumbFile(thumbs, skipped)


def parse_thumbs(row: dict[str, Any]) -> list[Thumb]:
    """One line as thumbs: two of a pair, one of a record, none of an undecided record; else InvalidPreference."""
    if has_no_winner(row):
        bad = ("a", "b") if row["preferred"] == "both_bad" else flagged_sides(row)
        prompt, split, passages = parse_prompt(row), parse_split(row), passages_of(row)
        return [Thumb(prompt, parse_answer(row, f"response_{side}"), False, split, passages) for side in bad]
    if is_choice(row) or ("chosen" in row and "rejected" in row):
        pair = parse_pair(row)
        judged = ((pair.chosen, True), (pair.rejected, False))
        return [Thumb(pair.prompt, answer, liked, pair.split, pair.passages) for answer, liked in judged]
    liked = _liked(row)
    prompt, answer = _exchange(row)
    return [] if liked is None else [Thumb(prompt, answer, liked, parse_split(row), passages_of(row))]


def count_contradictions(thumbs: Sequence[Thumb]) -> int:
    """Answers that one person liked and another did not, to the same prompt."""
    verdicts: dict[tuple[tuple[Message, ...], str], set[bool]] = {}
    for thumb in thumbs:
        verdicts.setdefault((thumb.prompt, thumb.answer), set()).add(thumb.liked)
    return sum(len(liked) > 1 for liked in verdicts.values())


def check_both_kinds(path: Path, train: Sequence[Thumb], test: Sequence[Thumb]) -> None:
    """Whether both sides of a split have answers that were liked and answers that were not."""
    for side, where in ((train, "to train on"), (test, "held out")):
        if len({thumb.liked for thumb in side}) < 2:
            kind = "liked" if side[0].liked else "not liked"
            raise InputError(f"{path}: all {len(side)} answers {where} are {kind}", "KTO needs both kinds on both sides")


def _unusable(row: dict[str, Any], superseded: set[str]) -> str | None:
    if row.get("feedback_id") in superseded:
        return SUPERSEDED
    consent = row.get("consent")
    return NOT_ALLOWED if isinstance(consent, list) and "training" not in consent else None


def _liked(row: dict[str, Any]) -> bool | None:
    """The verdict of the whole line; None where it is not clear."""
    critical = row.get("critical") is True
    signals = [] if critical else [_signal(key, row[key]) for key in VERDICTS if row.get(key) is not None]
    if not signals and not critical and "user_query" not in row:
        raise InvalidPreference(f"has none of {', '.join(VERDICTS)}")
    return label(combine(signals, critical=critical))


def _signal(key: str, value: Any) -> Polarity | None:
    if isinstance(value, str | bool) and (word := str(value).strip().lower()) in WORDS:
        return WORDS[word]
    if key == "label" and value in (0, 1):
        return "positive" if value else "negative"
    if key == "rating" and value in (1, 2, 3, 4, 5):
        return polarity(stars=int(value))
    raise InvalidPreference(f"{key} should be " + ("a number from 1 to 5" if key == "rating" else "true or false, up or down"))


def _exchange(row: dict[str, Any]) -> tuple[tuple[Message, ...], str]:
    """(prompt, answer); without a field for the answer it is the last of the messages."""
    record = {**row, "prompt": row["user_query"]} if "user_query" in row else row
    name = next((key for key in ANSWERS if row.get(key) is not None), None)
    if name is not None:
        return parse_prompt(record), parse_answer(row, name)
    turns = row.get("messages")
    if not isinstance(turns, list) or not turns:
        raise InvalidPreference(f"has none of {', '.join(ANSWERS)}")
    return parse_prompt({"messages": turns[:-1]}), parse_answer({"answer": turns[-1:]}, "answer")
