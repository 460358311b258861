"""Conversations as token ids and labels, in four bytes a token, so that 100,000 examples fit beside a small model."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset, concatenate_datasets

from medloop.errors import InputError
from medloop.models.context_limits import ContextLimits
from medloop.models.context_prompt import fit_answers
from medloop.models.template import encode_example
from medloop.store.files.answer_lines import ConversationLine, is_answered, read_conversations
from medloop.train.examples.left_out import left_out_words, longer_than

IGNORED = -100  # the label of a token that is not trained on


@dataclass(frozen=True)
class SFTExamples:
    """Encoded conversations, and what happened to the others."""

    rows: Dataset
    lengths: list[int]
    learnt_tokens: int
    too_long: int
    shortened: int
    unanswered: int
    with_context: int
    truncated_context: int
    superseded: int = 0  # rows of the replay whose question the file corrects

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    def left_out(self, max_length: int) -> str:
        """In words, or empty: `left out: 12 longer than max_length (512 tokens), 3 without an answer`, and what was changed."""
        out = (
            (self.too_long, longer_than(max_length)), (self.unanswered, "without an answer"),
            (self.superseded, "of the replay corrected here"),
        )  # fmt: skip
        changed = (
            (self.shortened, "shortened by old messages"), (self.with_context, "with context passages"),
            (self.truncated_context, "with truncated passages"),
        )  # fmt: skip
        return left_out_words(out, changed)


def encode_file(
    tokenizer: Any, path: Path, *, max_length: int, context: ContextLimits = ContextLimits(), limit: int | None = None,
    lines: Iterable[ConversationLine] | None = None,
) -> SFTExamples:  # fmt: skip
    """The first `limit` usable examples of a file, or of some of its lines, with their passages.

    Loss falls on answers only: prompts are IGNORED.
    """
    ids, labels, ends = array("i"), array("i"), array("i", [0])
    too_long = shortened = unanswered = with_context = truncated = 0
    for item in read_conversations(path) if lines is None else lines:
        if limit is not None and len(ends) > limit:
            break
        if not is_answered(item.conversation):
            unanswered += 1
            continue
        *asked, answer = item.conversation.messages
        shown = fit_answers(tokenizer, asked, item.passages, [answer.content], limits=context, max_length=max_length)
        example = encode_example(tokenizer, [*(asked if shown is None else shown.messages), answer], max_length=max_length)
        if example is None:
            too_long += 1
            continue
        shortened += example.dropped_messages > 0
        if shown is not None:
            with_context += 1
            truncated += shown.truncated or shown.left_out > 0
        ids.extend(example.input_ids)
        labels.extend(token if bit else IGNORED for token, bit in zip(example.input_ids, example.completion_mask, strict=True))
        ends.append(len(ids))
    rows = Dataset(pa.table({"input_ids": _lists(ids, ends), "labels": _lists(labels, ends)}))
    lengths = [end - start for start, end in pairwise(ends)]
    examples = SFTExamples(
        rows, lengths, len(labels) - labels.count(IGNORED), too_long, shortened, unanswered, with_context, truncated
    )
    if not lengths:
        raise InputError(
            f"{path} has no usable example ({examples.left_out(max_length) or 'no lines'})", "Check the file, or raise max_length"
        )
    return examples


def repeated(examples: SFTExamples, *, least: int) -> SFTExamples:
    """The examples, whole and again until there are `least` of them."""
    times = -(-least // len(examples.lengths))
    return replace(
        examples, rows=concatenate_datasets([examples.rows] * times), lengths=examples.lengths * times,
        learnt_tokens=examples.learnt_tokens * times,
    )  # fmt: skip


def with_replay(examples: SFTExamples, replay: SFTExamples) -> SFTExamples:
    """Both, with what was left out of either."""
    counts = ("learnt_tokens", "too_long", "shortened", "unanswered", "with_context", "truncated_context", "superseded")
    return SFTExamples(
        concatenate_datasets([examples.rows, replay.rows]), examples.lengths + replay.lengths,
        **{name: getattr(examples, name) + getattr(replay, name) for name in counts},
    )  # fmt: skip


def _lists(values: array[int], ends: array[int]) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(ends, type=pa.int32()), pa.array(values, type=pa.int32()))
