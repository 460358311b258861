"""Nothing in train may repeat what is held out: found here, and looked for again in the finished files.

`find_copies` is quick (an index) and says which held-out row a train row repeats; the caller removes those rows.
`verify_files` trusts nothing of that: it reads the written files and holds every held-out question against every question
in train, one by one, and every whole text by fresh MinHash signatures. Only the definition of a near-copy is shared.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from medloop.contracts import Conversation, FileEntry, Record
from medloop.contracts.dataset import Split
from medloop.data.prepare.collect import Rows, opening, whole_text
from medloop.data.progress import Progress, Step
from medloop.data.text.dedupe import Signatures, Signer, first_like, shared_buckets
from medloop.data.text.near import Floats, Growing, Indexes, Measured, NearIndex, Nearness, Questions, Vocabulary
from medloop.data.text.shingles import Hashes, is_single, question_features, question_marks, text_marks, text_shingles
from medloop.errors import ResultError

VERIFY_SEED, VERIFY_PERMUTATIONS = 2, 64  # other permutations than the ones that found the duplicates


def find_copies(
    rows: Rows, train: Indexes, held_out: Indexes, vocabulary: Vocabulary, nearness: Nearness, progress: Progress
) -> dict[int, int]:
    """Train rows whose question, or any turn, is a near-copy of a held-out question; with that held-out row."""
    units, owners = _train_units(rows, train)
    asked = NearIndex(rows.questions.take(held_out), vocabulary, nearness)
    known = NearIndex(units, vocabulary, nearness)
    copies = _same_key(rows, train, held_out)
    with progress("Comparing train with held-out questions", len(units) + len(held_out)) as step:
        for at in range(len(units)):
            step(1)
            if len(found := asked.holding(known, at)):
                copies.setdefault(int(owners[at]), int(held_out[found[0]]))
        for at in range(len(held_out)):
            step(1)
            for unit in known.holding(asked, at):
                copies.setdefault(int(owners[unit]), int(held_out[at]))
    return copies


def verify_files(
    folder: Path,
    files: Mapping[Split, FileEntry],
    vocabulary: Vocabulary,
    nearness: Nearness,
    text_threshold: float,
    progress: Progress,
) -> dict[str, int]:
    """How much was compared; ResultError when a near-copy of a held-out row is left in train."""
    with progress("Reading the finished files again", sum(entry.rows for entry in files.values())) as step:
        known = _Side([folder / files["train"].path], step, turns=True)
        unseen = _Side([folder / entry.path for split, entry in files.items() if split != "train"], step, turns=False)
    left = _left_by_key(known, unseen)
    left += _left_by_question(
        Measured(known.questions, vocabulary, nearness), Measured(unseen.questions, vocabulary, nearness), progress
    )
    left += _left_by_text(known, unseen, text_threshold)
    if left:
        raise ResultError(
            f"{left} near-copies of held-out records were still in the train set, so nothing was written",
            "This should not happen: please report it; meanwhile another --seed may help",
        )
    return {"train_questions": len(known.questions), "held_out_questions": len(unseen.questions), "left": 0}


class _Side:
    """What a set of finished files holds, read back from disk: openings, and with `turns` the single turns as well."""

    def __init__(self, paths: Sequence[Path], step: Step, *, turns: bool) -> None:
        self._questions, self._turns, self._signer = Growing(), turns, Signer(VERIFY_SEED, VERIFY_PERMUTATIONS)
        self._question_keys, self._text_keys, self._signatures = array("Q"), array("Q"), array("I")
        self.places: list[tuple[Path, int]] = []
        for path in paths:
            with path.open("rb") as file:
                offset = 0
                for line in file:
                    step(1)
                    self._add(Record.model_validate_json(line).conversation)
                    self.places.append((path, offset))
                    offset += len(line)

    def _add(self, talk: Conversation) -> None:
        question_key, features = question_marks(opening(talk))
        text_key, shingles = text_marks(whole_text(talk))
        for question in (features, *(turn_features(talk) if self._turns else ())):
            self._questions.add(question)
        self._question_keys.append(question_key)
        self._text_keys.append(text_key)
        self._signatures.frombytes(self._signer.sign(shingles).tobytes())

    @property
    def questions(self) -> Questions:
        return self._questions.questions()

    @property
    def keys(self) -> tuple[set[int], set[int]]:
        return set(self._question_keys), set(self._text_keys)

    @property
    def signatures(self) -> Signatures:
        return np.frombuffer(self._signatures, dtype=np.uint32).reshape(-1, VERIFY_PERMUTATIONS)

    def shingles(self, at: int) -> Hashes:
        path, offset = self.places[at]
        with path.open("rb") as file:
            file.seek(offset)
            return text_shingles(whole_text(Record.model_validate_json(file.readline()).conversation))


def _left_by_key(known: _Side, unseen: _Side) -> int:
    return sum(len(mine & theirs) for mine, theirs in zip(known.keys, unseen.keys, strict=True))


def _left_by_question(known: Measured, unseen: Measured, progress: Progress) -> int:
    """Every held-out opening against every train unit, by shared weight; then the definition for those that share enough."""
    postings = _Postings(known.questions)
    near, left = known.nearness, 0
    with progress("Verifying the finished files", len(unseen.questions)) as step:
        for at in range(len(unseen.questions)):
            step(1)
            asked = unseen.questions.row(at)
            weights, single = known.vocabulary.weights(asked), is_single(asked)
            both = postings.shared(asked, weights) / np.minimum(known.sums[1], unseen.sums[1, at])
            words = postings.shared(asked[single], weights[single]) / np.minimum(known.sums[3], unseen.sums[3, at])
            likely = np.flatnonzero((both >= near.both_when_words - 1e-6) | (words >= near.words - 1e-6))
            left += int(known.near(unseen, at, likely).sum())
    return left


class _Postings:
    """Which rows have a feature, for all features."""

    def __init__(self, questions: Questions) -> None:
        self._size = len(questions)
        order = np.argsort(questions.features, kind="stable")
        self._names, self._begins, self._counts = np.unique(questions.features[order], return_index=True, return_counts=True)
        self._owners = np.repeat(np.arange(self._size, dtype=np.int32), np.diff(questions.starts))[order]

    def shared(self, features: Hashes, weights: Floats) -> Floats:
        """Per row, the weight of these features that it has too."""
        at = np.minimum(np.searchsorted(self._names, features), max(len(self._names) - 1, 0))
        here = self._names[at] == features if len(self._names) else np.zeros(len(features), dtype=np.bool_)
        counts = self._counts[at[here]]
        parts = [self._owners[b : b + n] for b, n in zip(self._begins[at[here]], counts, strict=True)]
        rows = np.concatenate([np.empty(0, dtype=np.int32), *parts])
        return np.bincount(rows, np.repeat(weights[here], counts), minlength=self._size).astype(np.float64)


def _left_by_text(known: _Side, unseen: _Side, threshold: float) -> int:
    border = len(known.places)
    both = np.concatenate((known.signatures, unseen.signatures))
    inside: dict[int, list[int]] = {}
    mine, theirs = lru_cache(2_048)(unseen.shingles), lru_cache(2_048)(known.shingles)
    left = 0
    for row, ids in shared_buckets(both, np.arange(len(both)), threshold).items():  # train rows come first
        if row < border:
            for at in ids:
                inside.setdefault(at, []).append(row)
        else:
            others = [other for at in ids for other in inside.get(at, ())]
            left += first_like(row, others, both, lambda at: mine(at - border), theirs, threshold) is not None
    return left


def _same_key(rows: Rows, train: Indexes, held_out: Indexes) -> dict[int, int]:
    first: dict[int, int] = {}
    for row in held_out.tolist():
        first.setdefault(int(rows.question_keys[row]), row)
    return {row: first[key] for row in train.tolist() if (key := int(rows.question_keys[row])) in first}


def _train_units(rows: Rows, train: Indexes) -> tuple[Questions, Indexes]:
    """The opening of every train row and the single turns of longer ones; and the row each belongs to."""
    units, owners = Growing(), array("q")
    for row, turns in zip(train.tolist(), rows.turns[train].tolist(), strict=True):
        talk = rows.spool.record(row).conversation if turns > 3 else None
        for features in (rows.questions.row(row), *(turn_features(talk) if talk else ())):
            units.add(features)
            owners.append(row)
    return units.questions(), np.frombuffer(owners, dtype=np.int64)


def turn_features(conversation: Conversation) -> list[Hashes]:
    """Features of each user turn of a longer conversation: any of them may repeat somebody else's question."""
    asked = [message.content for message in conversation.messages if message.role == "user"]
    found = [question_features(text) for text in asked] if len(asked) > 1 else []
    return [features for features in found if len(features)]
