"""Feedback on answers: ratings, choices, corrections, and consent. Append-only.

`subject` is the person the text is about (a keyed hash, never a name), for consent and erasure; `recorded_by` is the user or key
that sent the record, set by the server and never read from a body. `timestamp` is when somebody said it, `received` when the
server got it: old feedback keeps its date.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from medloop.contracts.base import Contract, Text, Timestamp, utc_now, uuid7
from medloop.contracts.dataset import Language

FeedbackType = Literal["positive", "negative", "neutral"]
Purpose = Literal["training", "evaluation", "teacher", "publication"]
Stars = Annotated[int, Field(ge=1, le=5)]
Side = Literal["a", "b"]
AXES = ("correctness", "safety", "completeness", "clarity", "empathy")  # until an admin chooses others
FAULT_AXES = ("risk", "false_reassurance", "emergency", "overtriage")  # axes that label the part of the reward of that name
ChoiceOutcome = Literal["a", "b", "tie", "both_bad"]  # tie: equally good; both_bad: neither may go to a patient


class Consent(Contract):
    """Who allowed what; a withdrawal is a new record with `granted=False`."""

    consent_id: Text = Field(default_factory=uuid7)
    subject: Text
    purposes: tuple[Purpose, ...] = Field(min_length=1)
    granted: bool = True
    text_version: Text
    timestamp: Timestamp = Field(default_factory=utc_now)


class Feedback(Contract):
    """One person's rating of one answer (table `rlhf_feedback`). Without question and answer it counts only in the numbers."""

    feedback_id: Text = Field(default_factory=lambda: f"fb_{uuid7()}")
    session_id: Text
    agent_name: Text
    user_query: str = ""
    agent_response: str = ""
    rating: Stars | None = None
    thumb: Literal["up", "down"] | None = None
    feedback_type: FeedbackType | None = None
    axes: dict[str, Stars] = Field(default_factory=dict)
    critical: bool = False
    clinician_id: Text | None = None
    comments: str | None = None
    consent: tuple[Purpose, ...] = ()
    model_version: Text | None = None
    trace_id: Text | None = None
    supersedes: Text | None = None
    subject: Text | None = None
    recorded_by: Text | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)
    received: Timestamp | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Feedback:
        signals = (self.rating, self.thumb, self.feedback_type, self.comments)
        if all(signal is None for signal in signals) and not self.axes and not self.critical:
            raise ValueError("feedback needs a rating, a thumb, a type, an axis, a comment or the critical flag")
        return self

    @property
    def exchange(self) -> tuple[str, ...]:
        """The question and the answer that it is about."""
        return self.user_query, self.agent_response


class Preference(Contract):
    """One person's choice between two answers (table `rlhf_preferences`); `critical` names those that could harm a patient."""

    preference_id: Text = Field(default_factory=lambda: f"pref_{uuid7()}")
    prompt: Text
    response_a: Text
    response_b: Text
    preferred: ChoiceOutcome
    critical: tuple[Side, ...] = ()
    shown_first: Side | None = None
    clinician_id: Text | None = None
    comments: str | None = None
    axes: dict[str, Literal["a", "b", "tie"]] = Field(default_factory=dict)
    consent: tuple[Purpose, ...] = ()
    session_id: Text | None = None
    model_a: Text | None = None
    model_b: Text | None = None
    trace_id: Text | None = None
    supersedes: Text | None = None
    subject: Text | None = None
    recorded_by: Text | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)
    received: Timestamp | None = None

    @property
    def exchange(self) -> tuple[str, ...]:
        """The question and the two answers."""
        return self.prompt, self.response_a, self.response_b


class Correction(Contract):
    """The answer an expert would have given."""

    correction_id: Text = Field(default_factory=lambda: f"cor_{uuid7()}")
    feedback_id: Text | None = None
    trace_id: Text | None = None
    prompt: Text
    original: Text
    golden: Text
    reason: str | None = None
    clinician_id: Text | None = None
    consent: tuple[Purpose, ...] = ()
    supersedes: Text | None = None
    subject: Text | None = None
    recorded_by: Text | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)
    received: Timestamp | None = None

    @property
    def exchange(self) -> tuple[str, ...]:
        """The question and the answer that it corrects."""
        return self.prompt, self.original


def same_texts(texts: Iterable[str], others: Iterable[str]) -> bool:
    """Whether these are the same texts in the same order; white space does not make another text."""
    return [text.split() for text in texts] == [text.split() for text in others]


class IncidentStep(Contract):
    """What somebody did about an incident. The note about it is in `Incident.notes`, at the same place."""

    step: Literal["proposed", "declined", "closed"]
    by: Text
    timestamp: Timestamp = Field(default_factory=utc_now)


class Incident(Contract):
    """An answer that somebody flagged as a critical failure. One person proposes to close it, another one confirms.

    `notes` are encrypted, one for each step; None after an erasure.
    """

    incident_id: Text = Field(default_factory=lambda: f"inc_{uuid7()}")
    record_id: Text
    model_version: Text | None = None
    state: Literal["open", "closed"] = "open"
    language: Language | None = None
    opened_by: Text | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)
    proposed_by: Text | None = None
    closed_by: Text | None = None
    closed: Timestamp | None = None
    steps: tuple[IncidentStep, ...] = ()
    notes: tuple[str, ...] | None = None


class RedTeamCase(Contract):
    """A question whose answer was a critical failure, for testing later models: `medloop data build` writes it into a file."""

    case_id: Text = Field(default_factory=lambda: f"case_{uuid7()}")
    record_id: Text
    incident_id: Text | None = None
    prompt: Text
    answer: Text
    reason: str | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)


class AuditEvent(Contract):
    """Who did what to which thing; the store chains these by hash."""

    actor: Text
    action: Text
    subject: Text
    detail: dict[str, str | int | float | bool] = Field(default_factory=dict)
    timestamp: Timestamp = Field(default_factory=utc_now)
