"""A score has a value, a reason, an author and a version, or it is missing. Missing is never 0."""

from collections.abc import Sequence
from typing import Literal, Protocol

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, Unit, canonical_json, sha256_id, utc_now

SERIOUS = 0.5  # of a penalty: such an answer earns nothing where it is a gate, and IRS never learns from it


class Span(Contract):
    """Evidence of a rule: characters `start` to `end` of the question or the answer."""

    where: Literal["question", "answer"]
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    label: Text


class Score(Contract):
    """One number with its reason. `applies=False`: the rule does not apply to this sample (no red flag in the question).

    `unsure`: the value shapes the reward, but the evidence is too weak to assert a fault of this answer; nobody should call it
    a verdict. `suggested_answer` is a teacher's better answer, where it gave one.
    """

    name: Text
    value: Unit
    reason: Text
    author: Text
    version: Text
    applies: bool = True
    unsure: bool = False
    spans: tuple[Span, ...] = ()
    suggested_answer: str | None = None


class Missing(Contract):
    """There is no score: timeout, refusal, unreadable reply, no key."""

    name: Text
    reason: Text
    author: Text
    version: Text


def asserts_fault(score: Score | Missing, threshold: float) -> bool:
    """Whether a penalty's score is a verdict: it applies, reaches the threshold, and the rule is sure of it."""
    return isinstance(score, Score) and score.applies and not score.unsure and score.value >= threshold


class RewardPart(Protocol):
    """A named part of a reward. `version` changes with it; a high value of a `penalty` is bad."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def penalty(self) -> bool: ...


class Rule(RewardPart, Protocol):
    """Scores one answer."""

    def score(self, question: str, answer: str) -> Score | Missing: ...


class Reward(Contract):
    """The mix of several scores; without a value when a required one is missing.

    `weights` are those used for this sample; `gate` is the share of the positive parts that counts, below 1 for a risky answer;
    `reason` says which parts were left out, or why there is no value.
    """

    value: float | None = None
    parts: tuple[Score | Missing, ...]
    weights: dict[str, float]
    gate: Unit = 1.0
    version: Text
    reason: Text | None = None


ABSENT = "absent"  # the version of a part that was not given


class ObjectivePart(Contract):
    """One part of an objective. `weight` is negative for a penalty; where it is `dynamic`, it is the first one."""

    weight: float
    version: Text
    dynamic: bool = False


class Objective(Contract):
    """What a run is rewarded for: the same settings give the same objective, wherever they come from.

    `notes` say what is used instead of something better, and what that costs.
    """

    version: Text
    parts: dict[str, ObjectivePart]
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        """What is rewarded, in one line; a part that was not given is marked."""
        marks = {
            name: " (dynamic)" if part.dynamic else " (absent)" if part.version == ABSENT else ""
            for name, part in self.parts.items()
        }
        parts = ", ".join(f"{name} {part.weight:+.3g}{marks[name]}" for name, part in self.parts.items())
        return f"The reward is {parts}; version {self.version}."


class ScoredAnswer(Contract):
    """A reward as stored; `score_id` is the hash of answer and reward version, so scoring again adds no row."""

    score_id: Hash
    sample_id: Text
    version: Text
    value: float | None = None
    reward: Reward


class Sample(Contract):
    """An answer to be scored, or None with `why_missing`; `group` joins answers to the same prompt."""

    id: Text
    question: str
    answer: str | None = None
    group: Text | None = None
    context: str | None = None
    why_missing: Text = "no answer"

    def score_key(self, version: str) -> str:
        """The key of this sample's score by one version of a reward; another answer or version has another key."""
        return sha256_id(canonical_json([self.model_dump(mode="json", exclude_none=True), version]))


class Component(RewardPart, Protocol):
    """One part of a reward that scores many samples at once (teacher, reward model); as many results as samples, in order."""

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]: ...


class Scorer(Protocol):
    """What trainers, evaluation and the console receive: samples in, rewards out, in the same order."""

    @property
    def version(self) -> str: ...

    def score(self, samples: Sequence[Sample]) -> list[Reward]: ...


class Judgement(Contract):
    """A teacher's verdict, as kept in `teacher_judgements.jsonl`."""

    key: Hash
    prompt_id: Text
    teacher_score: Unit
    safety_flag: bool
    critique: str
    suggested_answer: str | None = None
    rubric: dict[str, bool] = Field(default_factory=dict)
    evidence: dict[str, str] = Field(default_factory=dict)
    model: Text
    served_model: Text
    fingerprint: str | None = None
    proposals: tuple[str, ...] | None = None
    group: Hash | None = Field(None, description="Of a ranking: the question and all its answers, by hash.")
    rank: int | None = Field(None, ge=1, description="Of a ranking: 1 for the best; equal answers share a rank.")
    agreement: Unit | None = Field(
        None, description="Of a ranking that was repeated in the opposite order: the share of pairs that both order alike."
    )
    template: Text
    template_version: Text
    prompt_tokens: int = Field(0, ge=0)
    completion_tokens: int = Field(0, ge=0)
    cost: float = Field(0.0, ge=0)
    timestamp: Timestamp = Field(default_factory=utc_now)
