"""Train must not repeat what is held out. Copies are removed here and searched for again in the finished files.

`find_copies` uses an index and says which held-out row a train row repeats; the caller removes those rows.
`check_files` does not rely on it: it reads the written files and compares every held-out question with every question in
train, and every whole text by new MinHash signatures. The two share only the definition of a near-copy.

MinHash misses about one near-duplicate text in a thousand, so another set of permutations may find a pair that the first
did not. The caller removes what a check finds and checks again, each time with new permutations, until nothing is left.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from medloop.contracts import Conversation, FileEntry, Record
from medloop.contracts.dataset import Split
from medloop.data.prepare.collect import RecordTable, opening, whole_text
from medloop.data.progress import Progress, Step
from medloop.data.text.dedupe import Signatures, Signer, rows_like, shared_buckets
from medloop.data.text.near import (
    Floats,
    Indexes,
    MeasuredQuestions,
    NearIndex,
    Nearness,
    QuestionFeatures,
    QuestionFeaturesBuilder,
    Vocabulary,
)
from medloop.data.text.shingles import Hashes, is_single, question_features, question_marks, text_marks, text_shingles

CHECK_PERMUTATIONS = 64
FIRST_CHECK_SEED = 2  # not the permutations that detected the duplicates; each further check takes the next seed


def find_copies(
    rows: RecordTable, train: Indexes, held_out: Indexes, vocabulary: Vocabulary, nearness: Nearness, progress: Progress
) -> dict[int, int]:
    """Train rows whose question, or any message, is a near-copy of a held-out question; with that held-out row."""
    units, owners = _train_units(rows, train)
    held_out_index = NearIndex(rows.questions.take(held_out), vocabulary, nearness)
    train_index = NearIndex(units, vocabulary, nearness)
    copies = _same_key(rows, train, held_out)
    with progress("Comparing train with held-out questions", len(units) + len(held_out)) as step:
        for index in range(len(units)):
            step(1)
            if len(matches := held_out_index.holding(train_index, index)):
                copies.setdefault(int(owners[index]), int(held_out[matches[0]]))
        for index in range(len(held_out)):
            step(1)
            for unit in train_index.holding(held_out_index, index):
                copies.setdefault(int(owners[unit]), int(held_out[index]))
    return copies


@dataclass(frozen=True)
class RemainingCopies:
    """What a check of the finished files compared, and the train records it found to be copies, each with its match."""

    copies: list[tuple[Record, Record, Split]]  # in train, held out, and where
    train_rows: set[int]
    train_questions: int
    held_out_questions: int


def check_files(
    folder: Path,
    files: Mapping[Split, FileEntry],
    vocabulary: Vocabulary,
    nearness: Nearness,
    text_threshold: float,
    seed: int,
    progress: Progress,
) -> RemainingCopies:
    """Near-copies of held-out records that are still in the train file."""
    with progress("Reading the finished files again", sum(entry.rows for entry in files.values())) as step:
        known = _Side(folder, {"train": files["train"]}, step, seed, messages=True)
        unseen = _Side(folder, {split: entry for split, entry in files.items() if split != "train"}, step, seed, messages=False)
    copies = {
        **_left_by_text(known, unseen, text_threshold),
        **_left_by_question(
            MeasuredQuestions(known.questions, vocabulary, nearness),
            MeasuredQuestions(unseen.questions, vocabulary, nearness),
            known.owners,
            progress,
        ),
        **_left_by_key(known, unseen),
    }
    pairs = [(known.record(row), unseen.record(match), unseen.places[match][0]) for row, match in sorted(copies.items())]
    return RemainingCopies(pairs, set(copies), len(known.questions), len(unseen.questions))


class _Side:
    """What a set of finished files holds, read back from disk: openings, and with `messages` each user message as well."""

    def __init__(self, folder: Path, files: Mapping[Split, FileEntry], step: Step, seed: int, *, messages: bool) -> None:
        self._questions, self._messages, self._signer = QuestionFeaturesBuilder(), messages, Signer(seed, CHECK_PERMUTATIONS)
        self._paths = {split: folder / entry.path for split, entry in files.items()}
        self._signatures, self._owners = array("I"), array("q")
        self.question_keys, self.text_keys = array("Q"), array("Q")
        self.places: list[tuple[Split, int]] = []
        for split, path in self._paths.items():
            with path.open("rb") as file:
                offset = 0
                for line in file:
                    step(1)
                    self._add(Record.model_validate_json(line).conversation)
                    self.places.append((split, offset))
                    offset += len(line)

    def _add(self, talk: Conversation) -> None:
        question_key, features = question_marks(opening(talk))
        text_key, shingles = text_marks(whole_text(talk))
        for question in (features, *(message_features(talk) if self._messages else ())):
            self._questions.add(question)
            self._owners.append(len(self.places))
        self.question_keys.append(question_key)
        self.text_keys.append(text_key)
        self._signatures.frombytes(self._signer.sign(shingles).tobytes())

    @property
    def questions(self) -> QuestionFeatures:
        return self._questions.questions()

    @property
    def owners(self) -> Indexes:
        """The row of each question."""
        return np.frombuffer(self._owners, dtype=np.int64)

    @property
    def signatures(self) -> Signatures:
        return np.frombuffer(self._signatures, dtype=np.uint32).reshape(-1, CHECK_PERMUTATIONS)

    def record(self, row: int) -> Record:
        split, offset = self.places[row]
        with self._paths[split].open("rb") as file:
            file.seek(offset)
            return Record.model_validate_json(file.readline())

    def shingles(self, row: int) -> Hashes:
        return text_shingles(whole_text(self.record(row).conversation))


def _left_by_key(known: _Side, unseen: _Side) -> dict[int, int]:
    copies: dict[int, int] = {}
    for mine, theirs in ((known.question_keys, unseen.question_keys), (known.text_keys, unseen.text_keys)):
        rows = {key: row for row, key in enumerate(theirs)}
        copies |= {row: rows[key] for row, key in enumerate(mine) if key in rows}
    return copies


def _left_by_question(known: MeasuredQuestions, unseen: MeasuredQuestions, owners: Indexes, progress: Progress) -> dict[int, int]:
    """Every held-out opening against every train unit, by shared weight; then the definition for those that share enough."""
    postings = _Postings(known.questions)
    near, copies = known.nearness, dict[int, int]()
    with progress("Verifying the finished files", len(unseen.questions)) as step:
        for row in range(len(unseen.questions)):
            step(1)
            features = unseen.questions.row(row)
            weights, single = known.vocabulary.weights(features), is_single(features)
            similarity = postings.shared(features, weights) / np.minimum(known.sums[1], unseen.sums[1, row])
            words = postings.shared(features[single], weights[single]) / np.minimum(known.sums[3], unseen.sums[3, row])
            likely = np.flatnonzero((similarity >= near.both_when_words - 1e-6) | (words >= near.words - 1e-6))
            copies.update(dict.fromkeys(owners[likely[known.near(unseen, row, likely)]].tolist(), row))
    return copies


class _Postings:
    """Which rows have a feature, for all features."""

    def __init__(self, questions: QuestionFeatures) -> None:
        self._size = len(questions)
        order = np.argsort(questions.features, kind="stable")
        self._names, self._begins, self._counts = np.unique(questions.features[order], return_index=True, return_counts=True)
        self._owners = np.repeat(np.arange(self._size, dtype=np.int32), np.diff(questions.starts))[order]

    def shared(self, features: Hashes, weights: Floats) -> Floats:
        """Per row, the weight of these features that it has too."""
        places = np.minimum(np.searchsorted(self._names, features), max(len(self._names) - 1, 0))
        present = self._names[places] == features if len(self._names) else np.zeros(len(features), dtype=np.bool_)
        counts = self._counts[places[present]]
        parts = [self._owners[b : b + n] for b, n in zip(self._begins[places[present]], counts, strict=True)]
        rows = np.concatenate([np.empty(0, dtype=np.int32), *parts])
        return np.bincount(rows, np.repeat(weights[present], counts), minlength=self._size).astype(np.float64)


def _left_by_text(known: _Side, unseen: _Side, threshold: float) -> dict[int, int]:
    border = len(known.places)
    signatures = np.concatenate((known.signatures, unseen.signatures))
    inside: dict[int, list[int]] = {}
    mine, theirs = lru_cache(2_048)(unseen.shingles), lru_cache(2_048)(known.shingles)
    copies: dict[int, int] = {}
    for row, ids in shared_buckets(signatures, np.arange(len(signatures)), threshold).items():  # train rows come first
        if row < border:
            for bucket in ids:
                inside.setdefault(bucket, []).append(row)
        else:
            others = [other for bucket in ids for other in inside.get(bucket, ())]
            rows = rows_like(row, others, signatures, lambda index: mine(index - border), theirs, threshold)
            copies.update(dict.fromkeys(rows, row - border))
    return copies


def _same_key(rows: RecordTable, train: Indexes, held_out: Indexes) -> dict[int, int]:
    first: dict[int, int] = {}
    for row in held_out.tolist():
        first.setdefault(int(rows.question_keys[row]), row)
    return {row: first[key] for row in train.tolist() if (key := int(rows.question_keys[row])) in first}


def _train_units(rows: RecordTable, train: Indexes) -> tuple[QuestionFeatures, Indexes]:
    """The opening of every train row and the single messages of longer ones; and the row each belongs to."""
    units, owners = QuestionFeaturesBuilder(), array("q")
    for row, message_count in zip(train.tolist(), rows.message_counts[train].tolist(), strict=True):
        talk = rows.spool.record(row).conversation if message_count > 3 else None
        for features in (rows.questions.row(row), *(message_features(talk) if talk else ())):
            units.add(features)
            owners.append(row)
    return units.questions(), np.frombuffer(owners, dtype=np.int64)


def message_features(conversation: Conversation) -> list[Hashes]:
    """Features of each user message of a longer conversation: any of them may repeat somebody else's question."""
    messages = [message.content for message in conversation.messages if message.role == "user"]
    features = [question_features(text) for text in messages] if len(messages) > 1 else []
    return [row for row in features if len(row)]
