"""What a live answer is made of: the route that is live, the rules and passages it used, the acts of its guards.

A snapshot names everything that could change an answer; its hash stands in every answer, in its trace and in its feedback. The
seams at the end are how the parts meet in the assistant without knowing one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, Unit, canonical_json, sha256_id, utc_now
from medloop.contracts.rule import ForbiddenAct

Champion = Literal["champion", "challenger"]


class AnswerSnapshot(Contract):
    """Everything that could change an answer, each by hash or version; None where there is none."""

    model: Text
    adapter: Hash | None = None
    codebook: Hash | None = None
    prompt: Hash | None = None
    index: Hash | None = None
    guard: Hash | None = None

    @property
    def hash(self) -> str:
        return sha256_id(canonical_json(self.model_dump(mode="json", exclude_none=True)))


class Route(Contract):
    """What answers now: the name that the model servers know it by, and the version of the registry behind it."""

    served_name: Text
    model: Text
    version: int | None = None
    artifact: Hash | None = None
    previous: Text | None = Field(None, description="The name that served before; where a rollback leads.")
    reason: Text = "first route"
    changed_by: Text = "medloop"
    timestamp: Timestamp = Field(default_factory=utc_now)


class RuleUse(Contract):
    """A rule of the codebook (or an example) that fitted the question of an answer."""

    rule_id: Text
    text: Text
    first_sentence: str = Field("", description="A vetted sentence that the guard puts before the answer.")
    forbids: tuple[ForbiddenAct, ...] = Field((), description="What the guard takes out of the answer, sentence by sentence.")
    answer: str = Field("", description="The vetted answer that stands where the guard left nothing.")
    told: bool = Field(True, description="Whether it stood in the prompt. In an emergency others than emergency rules do not.")


class RulesFound(Contract):
    """The rules that fit a question, and the version of the codebook they are from."""

    codebook: Hash
    rules: tuple[RuleUse, ...] = ()
    system: str = Field("", description="The system prompt that people approved; empty: the assistant's own.")


class Passage(Contract):
    """A piece of a document that an answer may cite: characters `start` to `end` of its page."""

    passage_id: Text
    document: Text
    title: str = ""
    page: int | None = None
    start: int = Field(0, ge=0)
    end: int = Field(0, ge=0)
    text: Text
    score: float = 0.0


class PassagesFound(Contract):
    """The passages that fit a question, best first; none means that it is not in the documents."""

    index: Hash
    passages: tuple[Passage, ...] = ()


class GuardAct(Contract):
    """What a guard did to one exchange. `notice` is put before the answer; `stop` ends it; `replacement` takes its place;
    `drop` takes the sentence out. `rule` is the rule of the codebook that wanted it."""

    guard: Text
    finding: Text
    confidence: Unit | None = None
    notice: str = ""
    stop: bool = False
    replacement: str = ""
    drop: bool = False
    rule: Text | None = None


class FindRules(Protocol):
    def __call__(self, question: str, /) -> RulesFound: ...


class FindPassages(Protocol):
    def __call__(self, question: str, /) -> PassagesFound: ...


class InputGuard(Protocol):
    """Reads what the user wrote (all their messages, oldest first) before the model does."""

    def __call__(self, texts: Sequence[str], /) -> GuardAct | None: ...


class OutputGuard(Protocol):
    """Reads question and finished answer; while an answer streams, called at the ends of its sentences."""

    def __call__(self, question: str, answer: str, /) -> GuardAct | None: ...


class ChooseArm(Protocol):
    """Champion or challenger for a user (a keyed hash) and an episode; the same for the same pair."""

    def __call__(self, user: str, episode: str, /) -> Champion: ...
