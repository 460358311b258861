"""Pairs and thumbs as token ids, in the columns that TRL's DPO and KTO trainers read; and the order in which KTO sees them.

TRL would render and cut the text itself. Here prompts and answers go through models/template.py like everywhere else: the same
template, control tokens broken up, answers whole. A prompt that is too long loses its oldest turns, the same for both answers of
a pair; what still does not fit is left out and counted.

KTO compares each answer with how much the policy has moved in general, and takes the answer to *another* prompt for that. TRL
rotates answers within batches of a fixed order. Here batches are fixed too, but mixed: liked and not liked in proportion, like
lengths together, and their order changes from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, TypeVar

import torch
from datasets import Dataset

from medloop.contracts import Message
from medloop.models.template import encode_example, shorter
from medloop.train.examples.pairs import Pair
from medloop.train.examples.thumbs import Thumb
from medloop.train.trl.resumable import WINDOW, ByLength

Item = TypeVar("Item", Pair, Thumb)


@dataclass(frozen=True)
class Rows(Generic[Item]):
    """Encoded items, and what happened to the others. `lengths` is the longest sequence of each row."""

    items: list[Item]
    columns: dict[str, list[Any]]
    lengths: list[int]
    tokens: int
    too_long: int
    shortened: int

    @property
    def table(self) -> Dataset:
        return Dataset.from_dict(self.columns)

    def left_out(self) -> str:
        """In words, or nothing: `12 too long, 3 with a shortened prompt`."""
        counts = ((self.too_long, "too long"), (self.shortened, "with a shortened prompt"))
        return ", ".join(f"{count:,} {what}" for count, what in counts if count)


def encode_pairs(tokenizer: Any, pairs: Sequence[Pair], *, max_length: int) -> Rows[Pair]:
    """Columns prompt_ids, chosen_ids, rejected_ids."""
    fitted = [fit(tokenizer, pair.prompt, (pair.chosen, pair.rejected), max_length) for pair in pairs]
    kept = [(pair, found) for pair, found in zip(pairs, fitted, strict=True) if found is not None]
    columns = {
        "prompt_ids": [found.prompt for _, found in kept],
        "chosen_ids": [found.answers[0] for _, found in kept],
        "rejected_ids": [found.answers[1] for _, found in kept],
    }
    return _rows([pair for pair, _ in kept], [found for _, found in kept], columns, len(pairs))


def encode_thumbs(tokenizer: Any, thumbs: Sequence[Thumb], *, max_length: int) -> Rows[Thumb]:
    """Columns prompt_ids, completion_ids, label; `with_strangers` adds the last one."""
    fitted = [fit(tokenizer, thumb.prompt, (thumb.answer,), max_length) for thumb in thumbs]
    kept = [(thumb, found) for thumb, found in zip(thumbs, fitted, strict=True) if found is not None]
    columns: dict[str, list[Any]] = {
        "prompt_ids": [found.prompt for _, found in kept],
        "completion_ids": [found.answers[0] for _, found in kept],
        "label": [thumb.liked for thumb, _ in kept],
    }
    return _rows([thumb for thumb, _ in kept], [found for _, found in kept], columns, len(thumbs))


@dataclass(frozen=True)
class Fitted:
    """One prompt and the answers to it, each with its end token; prompt and answer together fit."""

    prompt: list[int]
    answers: list[list[int]]
    dropped_turns: int

    @property
    def lengths(self) -> list[int]:
        return [len(self.prompt) + len(answer) for answer in self.answers]


def fit(tokenizer: Any, prompt: Sequence[Message], answers: Sequence[str], max_length: int) -> Fitted | None:
    """All answers behind the same prompt, which loses old turns until the longest fits; None when it never does."""
    for kept, dropped in shorter(prompt):
        ids = [encode_example(tokenizer, [*kept, Message(role="assistant", content=answer)]) for answer in answers]
        assert all(ids), "without a limit every example can be encoded"
        start = ids[0].completion_mask.index(1)  # type: ignore[union-attr]
        found = Fitted(ids[0].input_ids[:start], [one.input_ids[start:] for one in ids if one], dropped)  # type: ignore[union-attr]
        if max(found.lengths) <= max_length:
            return found
    return None


class MixedBatches(ByLength):
    """Fixed batches in which both labels are in proportion; only the order of the batches changes with the epoch."""

    def __init__(self, lengths: list[int], labels: Sequence[bool], batch_size: int, seed: int) -> None:
        super().__init__(lengths, batch_size, seed)
        order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed)).tolist()
        size = batch_size * WINDOW
        mixed = [i for at in range(0, len(order), size) for i in self._mix(order[at : at + size], labels)]
        self.batches = [mixed[at : at + batch_size] for at in range(0, len(mixed), batch_size)]

    def _mix(self, window: list[int], labels: Sequence[bool]) -> list[int]:
        """By length within each label, the labels dealt in proportion: the nth of 100 liked beside the nth of 100 not liked."""
        places: dict[int, float] = {}
        for label in (True, False):
            alike = sorted((i for i in window if labels[i] == label), key=lambda i: self.lengths[i])
            places |= {i: (at + 0.5) / len(alike) for at, i in enumerate(alike)}
        return sorted(window, key=lambda i: places[i])

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        whole = [batch for batch in self.batches if len(batch) == self.batch_size]
        for at in torch.randperm(len(whole), generator=generator).tolist():
            yield from whole[at]
        yield from (i for batch in self.batches[len(whole) :] for i in batch)


def with_strangers(rows: Rows[Thumb], batches: Sequence[Sequence[int]], max_length: int) -> Dataset:
    """The table with KL_completion_ids: to each prompt the answer of another one, from its own batch where there is one."""
    everyone = range(len(rows.items))
    strangers: list[list[int]] = [[] for _ in everyone]
    for batch in batches:
        for at, row in enumerate(batch):
            others = chain(batch[at + 1 :], batch[:at], everyone)
            asked = rows.items[row].opening
            other = next((i for i in others if rows.items[i].opening != asked), row)
            room = max_length - len(rows.columns["prompt_ids"][row])
            strangers[row] = rows.columns["completion_ids"][other][:room]
    return Dataset.from_dict({**rows.columns, "KL_completion_ids": strangers})


def _rows(items: list[Item], fitted: Sequence[Fitted], columns: dict[str, list[Any]], count: int) -> Rows[Item]:
    lengths = [max(found.lengths) for found in fitted]
    tokens = sum(sum(found.lengths) for found in fitted)
    return Rows(items, columns, lengths, tokens, count - len(items), sum(found.dropped_turns > 0 for found in fitted))
