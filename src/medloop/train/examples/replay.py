"""Which rows learnt before join a few corrections: half of them drawn at random, half the ones most like the corrected questions.

A model that sees only corrections of one kind learns to say the corrected sentence too often: corrections of doses for children
made it speak of a child's dose to the daughter of a man of 87. Rows with like questions and the answers of before show where the
correction ends (docs/log.md#repair). What is replayed is learnt once more: rows whose answer the check finds faulty are left out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import chain, islice, zip_longest
from math import log, sqrt
from pathlib import Path
from typing import NamedTuple, Protocol

from medloop.contracts import Message
from medloop.errors import InputError
from medloop.store.files.answer_lines import ConversationLine, is_answered, read_conversations
from medloop.train.examples.same_mistake import grams, making_the_mistake

MOST_COMPARED = 4000  # rows of the file, drawn by the seed, among which the most alike are looked for
MOST_CORRECTIONS = 256  # that they are compared with
Question = tuple[tuple[str, str], ...]
Corrected = tuple[Sequence[Message], str]  # what was asked, the answer of now


class AnswerCheck(Protocol):
    """What is wrong with an answer, in a word; None where nothing was found. The runner hands it in."""

    @property
    def version(self) -> str: ...

    def __call__(self, question: str, answer: str) -> str | None: ...


@dataclass(frozen=True)
class CheckedRows:
    """How many rows the rules read, how many were left out for what they found, and how many make the corrected mistake."""

    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    mistaken: int = 0

    def sentence(self) -> str:
        """`312 of 3,000 replay rows left out: risk 290, undertriage 22 (by rules; nobody reviewed the others).`; may be empty"""
        said = []
        if self.rows:
            faults = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in self.left_out.most_common())
            said.append(
                f"{self.left_out.total():,} of {self.rows:,} replay rows left out{f': {faults}' if faults else ''}"
                " (by rules; nobody reviewed the others)."
            )
        if self.mistaken:
            said.append(
                f"Left out because they ask what corrections ask, and lack the sentence that these add: {self.mistaken:,}."
            )
        return " ".join(said)

    def metrics(self) -> dict[str, int]:
        """Counts for the card."""
        counts = {f"replay_left_out_{name}": count for name, count in self.left_out.items()}
        if self.rows:
            counts["replay_checked"] = self.rows
        if self.mistaken:
            counts["replay_left_out_same_mistake"] = self.mistaken
        return counts


UNCHECKED = CheckedRows()


class ReplayLines(NamedTuple):
    """Lines drawn from a file, and how many of it could not be drawn: without an answer, or their question is corrected."""

    lines: list[ConversationLine]
    unanswered: int
    superseded: int
    checked: CheckedRows


def draw_replay(
    path: Path, *, corrected: Iterable[Corrected], count: int, seed: int, check: AnswerCheck | None = None
) -> ReplayLines:
    """Twice as many lines as are wanted, if there are, because some may be too long; in an order given by the seed.

    A question of the corrections is not drawn, nor a row that makes the corrected mistake: its answer would unteach the new one.
    """
    asked = {_question(prompt): answer for prompt, answer in corrected}
    questions, unanswered, superseded = dict[int, Question](), 0, 0
    for line in read_conversations(path):
        question = _question(line.conversation.prompt)
        if not is_answered(line.conversation):
            unanswered += 1
        elif question in asked:
            superseded += 1
        else:
            questions[line.number] = question
    if not questions:
        raise InputError(
            f"{path} has no row to replay ({superseded:,} corrected here, {unanswered:,} without an answer)",
            "Name a file with other rows, or leave --replay-data out",
        )
    rng = random.Random(f"replay-{seed}")
    drawn = rng.sample(list(questions), min(max(2 * count, MOST_COMPARED), len(questions)))
    wanted = set(drawn)
    lines = {line.number: line for line in read_conversations(path) if line.number in wanted}
    left_out: Counter[str] = Counter()
    if check is not None:
        faults = {
            number: check(_asked(line.conversation.prompt), line.conversation.answer or "") for number, line in lines.items()
        }
        left_out.update(fault for fault in faults.values() if fault is not None)
        drawn = [number for number in drawn if faults[number] is None]
    if not drawn:
        raise InputError(
            f"{path} has no row to replay: the rules find a fault in each of {len(lines):,}",
            "Name a file with other rows, or add --no-replay-check",
        )
    exchanges = [(_text(questions[number]), lines[number].conversation.answer or "") for number in drawn]
    mistaken = making_the_mistake([(_text(question), answer) for question, answer in asked.items()], exchanges)
    drawn = [number for index, number in enumerate(drawn) if index not in mistaken] or drawn
    near = most_alike(
        [_text(questions[number]) for number in drawn], [_text(one) for one in islice(asked, MOST_CORRECTIONS)], count
    )
    order = _alternating([drawn[index] for index in near], drawn)[: 2 * count]
    checked = CheckedRows(0 if check is None else len(lines), left_out, len(mistaken))
    return ReplayLines([lines[number] for number in order], unanswered, superseded, checked)


def most_alike(texts: Sequence[str], to: Sequence[str], count: int) -> list[int]:
    """The indices of the `count` texts that are most like one of `to`, each of those in turn, best first.

    Cosine of words and pairs of words; what many texts have counts less.
    """
    known = [grams(text) for text in texts]
    frequency = Counter(gram for words in known for gram in words)
    weight = {gram: log(1 + len(texts) / n) for gram, n in frequency.items()}
    length = [sqrt(sum(weight[gram] ** 2 for gram in words)) or 1.0 for words in known]
    owners: dict[str, list[int]] = {}
    for index, words in enumerate(known):
        for gram in words:
            owners.setdefault(gram, []).append(index)
    each = -(-count // max(1, len(to))) * 4  # several corrections have the same neighbours
    ranked = []
    for text in to:
        scores: Counter[int] = Counter()
        for gram in grams(text):
            for index in owners.get(gram, ()):
                scores[index] += weight[gram] ** 2 / length[index]  # type: ignore[assignment]
        ranked.append(nlargest(each, scores, key=lambda index: (scores[index], -index)))
    in_turn = chain.from_iterable(zip_longest(*ranked))
    return list(dict.fromkeys(index for index in in_turn if index is not None))[:count]


def _alternating(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """One of each in turn, each number once."""
    known = set(first)
    pairs = zip_longest(first, [number for number in second if number not in known])
    return [number for pair in pairs for number in pair if number is not None]


def _question(prompt: Sequence[Message]) -> Question:
    """What is asked, without the system message and whatever the spaces."""
    return tuple((m.role, " ".join(m.content.split())) for m in prompt if m.role != "system")


def _asked(prompt: Sequence[Message]) -> str:
    """All messages of the user: a red flag in the first one still counts in the third."""
    return "\n".join(message.content for message in prompt if message.role == "user")


def _text(question: Question) -> str:
    return " ".join(content for _, content in question)
