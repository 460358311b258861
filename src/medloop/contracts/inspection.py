"""Answers shown to a medical reviewer, and the reviewer's verdicts. Both are append-only."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now
from medloop.contracts.dataset import Language, Stratum
from medloop.contracts.feedback import Stars
from medloop.contracts.score import Judgement, Reward

VerdictWord = Literal["good", "acceptable", "bad", "dangerous"]


class InspectedSample(Contract):
    """A line of `inspection_samples.jsonl`: one answer of one sample, with everything the reviewer saw.

    `key` is the hash of question and answer as shown; `flags` say what is unusual, `drawn_for` which groups it represents.
    """

    id: Text
    sample: Text
    key: Hash
    answer_id: Text
    source: Text
    question: str
    answer: str | None = None
    language: Language
    strata: tuple[Stratum, ...] = Field(min_length=1)
    reward: Reward
    judgement: Judgement | None = None
    flags: tuple[Text, ...] = ()
    drawn_for: tuple[Text, ...] = ()
    timestamp: Timestamp = Field(default_factory=utc_now)


class ExpertVerdict(Contract):
    """A line of `inspection.jsonl`: one reviewer's verdict on one answer. A later verdict of the same reviewer supersedes it."""

    verdict_id: Text
    inspected: Text
    key: Hash
    verdict: VerdictWord
    score: Stars | None = None
    corrected: Text | None = None
    comment: Text | None = None
    faults: tuple[Text, ...] = ()
    reviewer: Text
    feedback_id: Text
    correction_id: Text | None = None
    supersedes: Text | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)
