"""The part `criteria` of a reward: what clinicians accepted as criteria for a question, checked by detectors.

    part = CriteriaPart([QuestionCriteria("cor_…", question, criteria)], detect, ngram_vectors)
    part.score(samples)          # a Component: Score or Missing for each, in order

It scores answers to questions that were corrected, or that are nearly the same (n-grams, cosine from `SAME_QUESTION` on); for any
other question it does not apply. The score is that of the rubric suite: points earned of the positive ones, between 0 and 1. No
teacher is asked here: criteria that only a teacher checks are left out, and with more than a fifth of the points left out the
score is missing. It is not a part of the default mix; see docs/stages/rubric.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import Missing, Sample, Score, canonical_json, sha256_id
from medloop.contracts.suite import CriterionGrade

NAME, AUTHOR, VERSION = "criteria", "reward:criteria", "1"
SAME_QUESTION = 0.8
MAX_MISSING = 0.2  # share of the points
NOTHING_ACCEPTED = "No correction has accepted criteria that may be used for training, so the part criteria scores nothing."
Detect = Callable[[str, str, str], CriterionGrade]  # detector, question, answer
Embed = Callable[[Sequence[str]], NDArray[np.float32]]  # rows of length 1


@dataclass(frozen=True)
class GradableCriterion:
    criterion: str
    points: float
    detector: str | None = None


@dataclass(frozen=True)
class QuestionCriteria:
    """The criteria of one corrected question."""

    correction_id: str
    question: str
    criteria: tuple[GradableCriterion, ...]


class CriteriaPart:
    """A Component over the accepted criteria of a workspace."""

    name, penalty = NAME, False

    def __init__(self, known: Sequence[QuestionCriteria], detect: Detect, embed: Embed) -> None:
        self.known, self.detect, self.embed = list(known), detect, embed
        self._vectors = embed([case.question for case in self.known])
        rows = [
            [case.correction_id, case.question, [[c.criterion, c.points, c.detector] for c in case.criteria]] for case in known
        ]
        self.version = f"{VERSION}/{sha256_id(canonical_json(rows))[7:19]}"
        self.notes = () if self.known else (NOTHING_ACCEPTED,)

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        return [self._score(sample) for sample in samples]

    def _score(self, sample: Sample) -> Score | Missing:
        case = self.find(sample.question)
        about = {"name": NAME, "author": AUTHOR, "version": self.version}
        if case is None:
            return Score(value=0.0, reason="Nobody has corrected an answer to this question.", applies=False, **about)
        if sample.answer is None:
            return Missing(reason=sample.why_missing, **about)
        answer = sample.answer
        grades = [(row, self.detect(row.detector, sample.question, answer) if row.detector else None) for row in case.criteria]
        left_out = sum(abs(row.points) for row, grade in grades if grade is None or grade.met is None)
        total = sum(abs(row.points) for row, _ in grades)
        positive = sum(row.points for row, grade in grades if row.points > 0 and grade is not None and grade.met is not None)
        if left_out > MAX_MISSING * total or not positive:
            return Missing(reason=f"{left_out:g} of {total:g} points need a teacher or cannot be read", **about)
        met = [row for row, grade in grades if grade is not None and grade.met]
        earned = sum(row.points for row in met)
        value = round(min(1.0, max(0.0, earned / positive)), 6)
        return Score(value=value, reason=f"{earned:g} of {positive:g} points of {case.correction_id}.", **about)

    def find(self, question: str) -> QuestionCriteria | None:
        """The corrected question that is this one, or nearly so."""
        if not self.known:
            return None
        likeness = self._vectors @ self.embed([question])[0]
        best = int(likeness.argmax())
        return self.known[best] if likeness[best] >= SAME_QUESTION else None
