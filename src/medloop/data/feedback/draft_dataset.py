"""A dataset before it is written: scrubbed rows on disk, which of them stay, which are held out, and what was dropped and why.

    with RowPool(folder) as pool:
        draft = DraftDataset(selection, pool, Nearness())
        draft.add(row_draft, scrubber)                          # once per row
        draft.drop_duplicates(0.8, progress)
        draft.drop_contaminated(held_out)
        draft.split(0.2, hold_out_critical=True, seed=42)

A row takes some forty bytes of memory; its texts are in a file without a name.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import CodebookDelta, Conversation, Message
from medloop.data.feedback.near_rows import DistinctPrompts, PromptComparison, assign_test_side, find_duplicates
from medloop.data.feedback.rows import FeedbackPrompt, RowDraft, RowKind
from medloop.data.feedback.select import CachedScrubber, RecordSelection
from medloop.data.prepare.collect import opening
from medloop.data.prepare.spool import Spool
from medloop.data.progress import Progress
from medloop.data.text.near import Indexes, Mask, Nearness
from medloop.data.text.risk import strata_of
from medloop.lexicon.language import detect_language
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable

KINDS: tuple[RowKind, ...] = ("pairs", "thumbs", "answers", "red")


@dataclass(frozen=True)
class FeedbackRow:
    """A row after scrubbing. `texts` are (chosen, rejected), (answer,) or empty; `record_ids` are the records behind it."""

    kind: RowKind
    messages: tuple[Message, ...]
    texts: tuple[str, ...]
    record_ids: tuple[str, ...]
    metadata: dict[str, Any]
    context: tuple[str, ...] = ()

    @property
    def opening(self) -> str:
        return opening(Conversation(messages=self.messages))

    @property
    def prompt(self) -> str | tuple[Message, ...]:
        return self.messages[0].content if len(self.messages) == 1 else self.messages

    @property
    def compared(self) -> tuple[str, ...]:
        """A thumb up and a thumb down on like answers are not copies of each other."""
        return (*self.texts, "up" if self.metadata["liked"] else "down") if self.kind == "thumbs" else self.texts


class RowPool:
    """Rows by number. A row is added once and read back as often as it is needed."""

    def __init__(self, folder: Path) -> None:
        self.prompts = DistinctPrompts()
        self._spool = Spool(folder)
        self._kinds, self._records, self._prompt = array("B"), array("I"), array("q")
        self._orders = bytearray()

    def __enter__(self) -> RowPool:
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.__exit__(None, None, None)

    def __len__(self) -> int:
        return len(self._spool)

    def add(self, row: FeedbackRow, order: bytes) -> None:
        """`order` decides its place in every file."""
        messages = [[message.role, message.content] for message in row.messages]
        self._spool.put(json.dumps([messages, row.texts, row.record_ids, row.metadata, row.context]).encode())
        self._kinds.append(KINDS.index(row.kind))
        self._records.append(len(row.record_ids))
        self._prompt.append(self.prompts.number(row.opening))
        self._orders += order[:16]

    def row(self, index: int) -> FeedbackRow:
        pairs, texts, record_ids, metadata, context = json.loads(self._spool.line(index))
        messages = tuple(Message.model_construct(role=role, content=content) for role, content in pairs)
        return FeedbackRow(KINDS[self._kinds[index]], messages, tuple(texts), tuple(record_ids), metadata, tuple(context))

    def of_kind(self, kind: RowKind, among: Mask) -> Indexes:
        """The rows of a kind in their order."""
        rows = np.flatnonzero((self.kinds() == KINDS.index(kind)) & among)
        return np.asarray(rows[np.lexsort(self._order(rows))])

    def by_support(self, kind: RowKind) -> Indexes:
        """The rows of a kind, those with the most records behind them first."""
        rows = np.flatnonzero(self.kinds() == KINDS.index(kind))
        records = np.array(self._records, dtype=np.int64)[rows]
        return np.asarray(rows[np.lexsort((*self._order(rows), -records))])

    def kinds(self) -> NDArray[np.uint8]:
        return np.array(self._kinds, dtype=np.uint8)

    def prompt_numbers(self, rows: Indexes) -> Indexes:
        return np.array(self._prompt, dtype=np.int64)[rows]

    def _order(self, rows: Indexes) -> Sequence[NDArray[np.uint64]]:
        """For lexsort, which takes the most important column last."""
        high, low = np.frombuffer(bytes(self._orders), dtype=">u8").astype(np.uint64).reshape(-1, 2)[rows].T
        return low, high


@dataclass
class DraftDataset:
    """Everything that is known before a file is written; the masks are over the rows of the pool."""

    selection: RecordSelection
    pool: RowPool
    nearness: Nearness
    drops: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind and reason
    dropped: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)  # kind, reason, record ids
    rules: list[CodebookDelta] = field(default_factory=list)
    corrections: set[str] = field(default_factory=set)  # that a rule may have come from
    checked: dict[str, int] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    keep_mask: Mask = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    test_mask: Mask = field(default_factory=lambda: np.empty(0, dtype=np.bool_))

    def drop(self, kind: str, reason: str, record_ids: Iterable[str], *, count: int = 1) -> None:
        self.drops[kind, reason] += count
        self.dropped.append((kind, reason, tuple(record_ids)))

    def rows_of(self, kind: RowKind) -> list[tuple[int, str]]:
        """The rows of a kind in their order, each with its split."""
        rows = self.pool.of_kind(kind, self.keep_mask)
        return [(row, "test" if held_out else "train") for row, held_out in zip(rows.tolist(), self.test_mask[rows], strict=True)]

    def add(self, draft: RowDraft, cached: CachedScrubber) -> None:
        """Scrub a row and add it; one scrubber a row, so that a person has the same placeholder in prompt and answers."""
        prompt, passages = draft.prompt.messages, draft.prompt.context
        try:
            scrubbed = cached.scrub((*(message.content for message in prompt), *passages, *draft.texts), Scrubber())
        except Unscrubbable:  # messages or passages of a trace, which no record was checked for
            self.drop(draft.kind, "phi", draft.record_ids)
            return
        messages = tuple(message.model_copy(update={"content": text}) for message, text in zip(prompt, scrubbed, strict=False))
        context, texts = tuple(scrubbed[len(prompt) :][: len(passages)]), tuple(scrubbed[len(prompt) + len(passages) :])
        user_text = FeedbackPrompt(messages).user_text
        tags = {"language": detect_language(user_text), "strata": list(strata_of(user_text))}
        row = FeedbackRow(draft.kind, messages, texts, draft.record_ids, tags | draft.metadata, context)
        self.pool.add(row, draft.order)

    def drop_duplicates(self, text_threshold: float, progress: Progress) -> None:
        """Kind by kind; of near-copies the one with the most records behind it stays."""
        self.keep_mask = np.ones(len(self.pool), dtype=np.bool_)
        with progress("Looking for near-copies", len(self.pool)) as step:
            for kind in KINDS:
                rows = self.pool.by_support(kind)
                clusters = self._compare(rows, DistinctPrompts()).clusters()

                def texts_of(index: int, rows: Indexes = rows) -> tuple[str, ...]:
                    return self.pool.row(int(rows[index])).compared

                for index, reason in sorted(find_duplicates(clusters, texts_of, text_threshold, step).items()):
                    self._take_out(int(rows[index]), reason)

    def drop_contaminated(self, held_out: DistinctPrompts) -> None:
        """Rows whose prompt is a near-copy of a held-out one of the prepared data."""
        rows = np.flatnonzero(self.keep_mask)
        for index in rows[self._compare(rows, held_out).near_held_out()].tolist():
            self._take_out(index, "contaminated")
        self.checked = {"held_out_questions": held_out.total, "rows_compared": len(rows), "left": 0}

    def split(self, test_share: float, *, hold_out_critical: bool, seed: int) -> None:
        """Decide which rows are held out; near-copies of a prompt stay on one side."""
        rows = np.flatnonzero(self.keep_mask)
        clusters = self._compare(rows, DistinctPrompts()).clusters()
        keys = self.pool.prompts.keys()[self.pool.prompt_numbers(rows)]
        critical = (self.pool.kinds()[rows] == KINDS.index("red")) & hold_out_critical
        self.test_mask = np.zeros(len(self.pool), dtype=np.bool_)
        self.test_mask[rows] = assign_test_side(clusters, keys, critical, test_share, seed)

    def _compare(self, rows: Indexes, held_out: DistinctPrompts) -> PromptComparison:
        return PromptComparison(self.pool.prompts, self.pool.prompt_numbers(rows), held_out, self.nearness)

    def _take_out(self, index: int, reason: str) -> None:
        row = self.pool.row(index)
        self.keep_mask[index] = False
        self.drop(row.kind, reason, row.record_ids)
