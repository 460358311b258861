"""Train must not repeat what is held out. Copies are removed here and searched for again in the finished files.

`find_copies` uses an index and says which held-out row a train row repeats; the caller removes those rows.
`verify_files` does not rely on it: it reads the written files and compares every held-out question with every question in
train, and every whole text by new MinHash signatures. The two share only the definition of a near-copy.
"""

from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from medloop.contracts import Conversation, FileEntry, Record
from medloop.contracts.dataset import Split
from medloop.data.prepare.collect import RecordTable, opening, whole_text
from medloop.data.progress import Progress, Step
from medloop.data.text.dedupe import Signatures, Signer, first_like, shared_buckets
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
from medloop.errors import ResultError

VERIFY_SEED, VERIFY_PERMUTATIONS = 2, 64  # not the permutations that detected the duplicates


def find_copies(
    rows: RecordTable, train: Indexes, held_out: Indexes, vocabulary: Vocabulary, nearness: Nearness, progress: Progress
) -> dict[int, int]:
    """Train rows whose question, or any turn, is a near-copy of a held-out question; with that held-out row."""
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
        MeasuredQuestions(known.questions, vocabulary, nearness),
        MeasuredQuestions(unseen.questions, vocabulary, nearness),
        progress,
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
        self._questions, self._turns, self._signer = QuestionFeaturesBuilder(), turns, Signer(VERIFY_SEED, VERIFY_PERMUTATIONS)
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
    def questions(self) -> QuestionFeatures:
        return self._questions.questions()

    @property
    def keys(self) -> tuple[set[int], set[int]]:
        return set(self._question_keys), set(self._text_keys)

    @property
    def signatures(self) -> Signatures:
        return np.frombuffer(self._signatures, dtype=np.uint32).reshape(-1, VERIFY_PERMUTATIONS)

    def shingles(self, row: int) -> Hashes:
        path, offset = self.places[row]
        with path.open("rb") as file:
            file.seek(offset)
            return text_shingles(whole_text(Record.model_validate_json(file.readline()).conversation))


def _left_by_key(known: _Side, unseen: _Side) -> int:
    return sum(len(mine & theirs) for mine, theirs in zip(known.keys, unseen.keys, strict=True))


def _left_by_question(known: MeasuredQuestions, unseen: MeasuredQuestions, progress: Progress) -> int:
    """Every held-out opening against every train unit, by shared weight; then the definition for those that share enough."""
    postings = _Postings(known.questions)
    near, left = known.nearness, 0
    with progress("Verifying the finished files", len(unseen.questions)) as step:
        for row in range(len(unseen.questions)):
            step(1)
            features = unseen.questions.row(row)
            weights, single = known.vocabulary.weights(features), is_single(features)
            similarity = postings.shared(features, weights) / np.minimum(known.sums[1], unseen.sums[1, row])
            words = postings.shared(features[single], weights[single]) / np.minimum(known.sums[3], unseen.sums[3, row])
            likely = np.flatnonzero((similarity >= near.both_when_words - 1e-6) | (words >= near.words - 1e-6))
            left += int(known.near(unseen, row, likely).sum())
    return left


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


def _left_by_text(known: _Side, unseen: _Side, threshold: float) -> int:
    border = len(known.places)
    signatures = np.concatenate((known.signatures, unseen.signatures))
    inside: dict[int, list[int]] = {}
    mine, theirs = lru_cache(2_048)(unseen.shingles), lru_cache(2_048)(known.shingles)
    left = 0
    for row, ids in shared_buckets(signatures, np.arange(len(signatures)), threshold).items():  # train rows come first
        if row < border:
            for bucket in ids:
                inside.setdefault(bucket, []).append(row)
        else:
            others = [other for bucket in ids for other in inside.get(bucket, ())]
            left += first_like(row, others, signatures, lambda index: mine(index - border), theirs, threshold) is not None
    return left


def _same_key(rows: RecordTable, train: Indexes, held_out: Indexes) -> dict[int, int]:
    first: dict[int, int] = {}
    for row in held_out.tolist():
        first.setdefault(int(rows.question_keys[row]), row)
    return {row: first[key] for row in train.tolist() if (key := int(rows.question_keys[row])) in first}


def _train_units(rows: RecordTable, train: Indexes) -> tuple[QuestionFeatures, Indexes]:
    """The opening of every train row and the single turns of longer ones; and the row each belongs to."""
    units, owners = QuestionFeaturesBuilder(), array("q")
    for row, turns in zip(train.tolist(), rows.turns[train].tolist(), strict=True):
        talk = rows.spool.record(row).conversation if turns > 3 else None
        for features in (rows.questions.row(row), *(turn_features(talk) if talk else ())):
            units.add(features)
            owners.append(row)
    return units.questions(), np.frombuffer(owners, dtype=np.int64)


def turn_features(conversation: Conversation) -> list[Hashes]:
    """Features of each user turn of a longer conversation: any of them may repeat somebody else's question."""
    turns = [message.content for message in conversation.messages if message.role == "user"]
    features = [question_features(text) for text in turns] if len(turns) > 1 else []
    return [row for row in features if len(row)]
