"""Pairs and thumbs as token ids, in the columns that TRL's trainers of reward models, DPO and KTO read.

TRL would render and truncate the text itself. Here prompts and answers go through models/template.py like everywhere else: the
same template, control tokens broken up, answers whole. A prompt that is too long loses its oldest messages, the same for both
answers of a pair; examples that still do not fit are left out and counted.

KTO compares each answer with how much the policy has moved in general, and takes the answer to *another* prompt for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

from datasets import Dataset

from medloop.contracts import Message
from medloop.models import classify
from medloop.models.context_limits import ContextLimits
from medloop.models.context_prompt import ContextPrompt, fit_answers
from medloop.models.template import encode_example, shorter
from medloop.train.examples.left_out import left_out_words, longer_than
from medloop.train.examples.pairs import Pair
from medloop.train.examples.thumbs import Thumb

T = TypeVar("T", Pair, Thumb)


@dataclass(frozen=True)
class EncodedPreferences(Generic[T]):
    """Encoded pairs or thumbs, and what happened to the others. `lengths` is the longest sequence of each row."""

    items: list[T]
    table: Dataset
    lengths: list[int]
    tokens: int
    too_long: int
    shortened: int
    with_context: int = 0
    truncated_context: int = 0

    def left_out(self, max_length: int) -> str:
        """In words, or empty: `left out: 12 longer than max_length (512 tokens); 3 with a shortened prompt`."""
        changed = (
            (self.shortened, "with a shortened prompt"), (self.with_context, "with context passages"),
            (self.truncated_context, "with truncated passages"),
        )  # fmt: skip
        return left_out_words(((self.too_long, longer_than(max_length)),), changed)

    def select(self, rows: Sequence[int]) -> EncodedPreferences[T]:
        """Some of the rows; nothing is left out of them."""
        lengths = [self.lengths[row] for row in rows]
        return EncodedPreferences([self.items[row] for row in rows], self.table.select(rows), lengths, sum(lengths), 0, 0)


def as_text(pairs: Sequence[Pair]) -> EncodedPreferences[Pair]:
    """Pairs that no tokenizer reads: all of them fit. Tokens are guessed from characters."""
    lengths = [max(len(pair.chosen), len(pair.rejected)) // 2 for pair in pairs]
    return EncodedPreferences(list(pairs), Dataset.from_dict({}), lengths, 2 * sum(lengths), 0, 0)


def encode_reward_pairs(tokenizer: Any, pairs: Sequence[Pair], *, max_length: int) -> EncodedPreferences[Pair]:
    """Columns chosen_ids and rejected_ids, each with the prompt before it, as the classifier reads them."""
    items: list[Pair] = []
    columns: dict[str, list[list[int]]] = {"chosen_ids": [], "rejected_ids": []}
    shortened = 0
    for pair in pairs:
        chosen = classify.encode(tokenizer, pair.prompt, pair.chosen, max_length=max_length)
        rejected = classify.encode(tokenizer, pair.prompt, pair.rejected, max_length=max_length)
        if chosen is None or rejected is None:
            continue
        items.append(pair)
        columns["chosen_ids"].append(chosen.ids)
        columns["rejected_ids"].append(rejected.ids)
        shortened += any(side.dropped_messages or side.dropped_tokens for side in (chosen, rejected))
    lengths = [max(len(chosen_ids), len(rejected_ids)) for chosen_ids, rejected_ids in zip(*columns.values(), strict=True)]
    tokens = sum(len(ids) for column in columns.values() for ids in column)
    return EncodedPreferences(items, Dataset.from_dict(columns), lengths, tokens, len(pairs) - len(items), shortened)


def encode_pairs(
    tokenizer: Any, pairs: Sequence[Pair], *, max_length: int, context: ContextLimits = ContextLimits()
) -> EncodedPreferences[Pair]:
    """Columns prompt_ids, chosen_ids, rejected_ids."""
    fitted = [(pair, fit(tokenizer, pair, (pair.chosen, pair.rejected), context, max_length)) for pair in pairs]
    items, rows = [pair for pair, row in fitted if row is not None], [row for _, row in fitted if row is not None]
    columns = {
        "prompt_ids": [row.prompt for row in rows],
        "chosen_ids": [row.answers[0] for row in rows],
        "rejected_ids": [row.answers[1] for row in rows],
    }
    return _encoded(items, rows, columns, len(pairs))


def encode_thumbs(
    tokenizer: Any, thumbs: Sequence[Thumb], *, max_length: int, context: ContextLimits = ContextLimits()
) -> EncodedPreferences[Thumb]:
    """Columns prompt_ids, completion_ids, label; `with_mismatched_answers` adds the last one."""
    fitted = [(thumb, fit(tokenizer, thumb, (thumb.answer,), context, max_length)) for thumb in thumbs]
    items, rows = [thumb for thumb, row in fitted if row is not None], [row for _, row in fitted if row is not None]
    columns: dict[str, list[Any]] = {
        "prompt_ids": [row.prompt for row in rows],
        "completion_ids": [row.answers[0] for row in rows],
        "label": [thumb.liked for thumb in items],
    }
    return _encoded(items, rows, columns, len(thumbs))


@dataclass(frozen=True)
class FittedRow:
    """One prompt and the answers to it, each with its end token; prompt and answer together fit."""

    prompt: list[int]
    answers: list[list[int]]
    dropped_messages: int
    shown: ContextPrompt | None = None

    @property
    def lengths(self) -> list[int]:
        return [len(self.prompt) + len(answer) for answer in self.answers]


def fit(
    tokenizer: Any, row: Pair | Thumb, answers: Sequence[str], context: ContextLimits, max_length: int
) -> FittedRow | None:  # fmt: skip
    """All answers after the same prompt. It loses passages, then old messages, until the longest fits; None if it never does."""
    shown = fit_answers(tokenizer, row.prompt, row.passages, answers, limits=context, max_length=max_length)
    prompt = row.prompt if shown is None else shown.messages
    for remaining, dropped in shorter(prompt):
        examples = [encode_example(tokenizer, [*remaining, Message(role="assistant", content=answer)]) for answer in answers]
        encoded = [example for example in examples if example is not None]
        assert len(encoded) == len(answers), "without a limit every example can be encoded"
        start = encoded[0].completion_mask.index(1)
        fitted = FittedRow(encoded[0].input_ids[:start], [example.input_ids[start:] for example in encoded], dropped, shown)
        if max(fitted.lengths) <= max_length:
            return fitted
    return None


def with_mismatched_answers(rows: EncodedPreferences[Thumb], batches: Sequence[Sequence[int]], max_length: int) -> Dataset:
    """The table with KL_completion_ids: to each prompt the answer to another one, from its own batch where possible."""
    everyone = range(len(rows.items))
    prompts, answers = list(rows.table["prompt_ids"]), list(rows.table["completion_ids"])
    mismatched: list[list[int]] = [[] for _ in everyone]
    for batch in batches:
        for place, row in enumerate(batch):
            others = chain(batch[place + 1 :], batch[:place], everyone)
            question = rows.items[row].first_question
            other = next((i for i in others if rows.items[i].first_question != question), row)
            mismatched[row] = answers[other][: max_length - len(prompts[row])]
    return rows.table.add_column("KL_completion_ids", mismatched)


def _encoded(items: list[T], rows: Sequence[FittedRow], columns: dict[str, list[Any]], count: int) -> EncodedPreferences[T]:
    lengths = [max(row.lengths) for row in rows]
    tokens, shortened = sum(sum(row.lengths) for row in rows), sum(row.dropped_messages > 0 for row in rows)
    shown = [row.shown for row in rows if row.shown is not None]
    truncated = sum(prompt.truncated or prompt.left_out > 0 for prompt in shown)
    table = Dataset.from_dict(columns)
    return EncodedPreferences(items, table, lengths, tokens, count - len(items), shortened, len(shown), truncated)
