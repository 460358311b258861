"""Items of the review queue: one answer to rate or correct, or two to compare."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from medloop.contracts.base import Contract, Text, canonical_json, sha256_id
from medloop.contracts.chat import Message
from medloop.contracts.dataset import Stratum

QueueKind = Literal["rate", "compare", "correct"]


class QueueContent(Contract):
    """What a rater sees. Of two answers the first is `a`; which one is shown first is random for each rater. `contexts` are
    the passages that the assistant was given."""

    prompt: tuple[Message, ...] = Field(min_length=1)
    answers: tuple[Text, ...] = Field(min_length=1, max_length=2)
    models: tuple[str | None, ...] = ()
    traces: tuple[str | None, ...] = ()
    contexts: tuple[Text, ...] = ()
    records: tuple[str, ...] = ()  # the feedback it came from, where there is no trace

    @property
    def exchange(self) -> tuple[str, ...]:
        """The last question and the answers to it."""
        question = next((message.content for message in reversed(self.prompt) if message.role == "user"), "")
        return (question, *self.answers)


class QueueItem(Contract):
    """One task for raters. The id is the hash of kind and content, so nothing is queued twice; `reasons` say why it is queued."""

    kind: QueueKind
    content: QueueContent
    priority: float = Field(ge=0, le=1)
    reasons: dict[str, float] = Field(default_factory=dict)
    stratum: Stratum = "routine"
    raters: int = Field(2, ge=1, le=25)
    trace_id: Text | None = None
    expected: Literal["a", "b"] | None = None  # the better answer, where it is known: the item checks its raters

    @model_validator(mode="after")
    def _as_many_answers_as_the_kind_needs(self) -> QueueItem:
        if len(self.content.answers) != (2 if self.kind == "compare" else 1):
            raise ValueError("compare needs two answers, rate and correct need one")
        return self

    @property
    def item_id(self) -> str:
        content = [self.kind, [message.model_dump() for message in self.content.prompt], sorted(self.content.answers)]
        return "qi_" + sha256_id(canonical_json(content)).removeprefix("sha256:")[:32]
