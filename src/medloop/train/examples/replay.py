"""Which rows learnt before join a few corrections: half of them drawn at random, half the ones most like the corrected questions.

A model that sees only corrections of one kind learns to say the corrected sentence too often: corrections of doses for children
made it speak of a child's dose to the daughter of a man of 87. Rows with like questions and the answers of before show where the
correction ends (docs/log.md#repair).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from itertools import chain, islice, pairwise, zip_longest
from math import log, sqrt
from pathlib import Path
from typing import NamedTuple

from medloop.contracts import Conversation
from medloop.errors import InputError
from medloop.store.files.answer_lines import ConversationLine, is_answered, read_conversations

MOST_COMPARED = 4000  # rows of the file, drawn by the seed, among which the most alike are looked for
MOST_CORRECTIONS = 256  # that they are compared with
_WORD = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]")
Question = tuple[tuple[str, str], ...]


class ReplayLines(NamedTuple):
    """Lines drawn from a file, and how many of it could not be drawn: without an answer, or their question is corrected."""

    lines: list[ConversationLine]
    unanswered: int
    superseded: int


def draw_replay(path: Path, *, corrected: Path, count: int, seed: int) -> ReplayLines:
    """Twice as many lines as are wanted, if there are, because some may be too long; in an order given by the seed.

    A question of the corrections is not drawn: its old answer would unteach the new one.
    """
    asked = dict.fromkeys(_question(line.conversation) for line in read_conversations(corrected))
    questions, unanswered, superseded = dict[int, Question](), 0, 0
    for line in read_conversations(path):
        question = _question(line.conversation)
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
    near = most_alike(
        [_text(questions[number]) for number in drawn], [_text(one) for one in islice(asked, MOST_CORRECTIONS)], count
    )
    order = _alternating([drawn[index] for index in near], drawn)[: 2 * count]
    wanted = set(order)
    lines = {line.number: line for line in read_conversations(path) if line.number in wanted}
    return ReplayLines([lines[number] for number in order], unanswered, superseded)


def most_alike(texts: Sequence[str], to: Sequence[str], count: int) -> list[int]:
    """The indices of the `count` texts that are most like one of `to`, each of those in turn, best first.

    Cosine of words and pairs of words; what many texts have counts less.
    """
    known = [_grams(text) for text in texts]
    frequency = Counter(gram for grams in known for gram in grams)
    weight = {gram: log(1 + len(texts) / n) for gram, n in frequency.items()}
    length = [sqrt(sum(weight[gram] ** 2 for gram in grams)) or 1.0 for grams in known]
    owners: dict[str, list[int]] = {}
    for index, grams in enumerate(known):
        for gram in grams:
            owners.setdefault(gram, []).append(index)
    each = -(-count // max(1, len(to))) * 4  # several corrections have the same neighbours
    ranked = []
    for text in to:
        scores: Counter[int] = Counter()
        for gram in _grams(text):
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


def _grams(text: str) -> set[str]:
    words = _WORD.findall(text.casefold())
    return {*words, *(f"{left} {right}" for left, right in pairwise(words))}


def _question(conversation: Conversation) -> Question:
    """What is asked, without the system message and whatever the spaces."""
    return tuple((m.role, " ".join(m.content.split())) for m in conversation.prompt if m.role != "system")


def _text(question: Question) -> str:
    return " ".join(content for _, content in question)
