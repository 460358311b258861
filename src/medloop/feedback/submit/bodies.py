"""The request bodies: the records of contracts/feedback.py without what the server sets itself (who sent it, and when it came).

With a `trace_id` the trace fills what is left out: session, agent, model, question and answer; for a program a `session_id` alone
does the same with the newest trace of that session. A rating of a session without a trace is stored without question and answer.
Names that are stored in clear say nothing about a person (privacy/clear_names.py).
Id and time of a record may be given, so that old feedback keeps both. Lengths are bounded here, whole bodies by the guard.
Unknown fields are refused, so that a misspelt `comment` is an error and does not get lost.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from medloop.contracts.base import Hash, Unit, to_utc, utc_now
from medloop.contracts.chat import Role
from medloop.contracts.feedback import ChoiceOutcome, FeedbackType, Purpose, Side
from medloop.privacy.clear_names import SafeName

MAX_TEXT = 20_000  # characters of one text
MAX_AXES = 20
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)  # feedback on an assistant is not older
CLOCK_SKEW = timedelta(minutes=5)


def _as_text(value: object) -> object:
    """Some systems number their clinicians."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _no_repeats(value: object) -> object:
    return list(dict.fromkeys(value)) if isinstance(value, list) and all(isinstance(item, str) for item in value) else value


def _plausible(value: datetime) -> datetime:
    value = value.replace(tzinfo=UTC) if value.tzinfo is None else to_utc(value)
    if value < EARLIEST:
        raise ValueError(f"this time is before {EARLIEST:%Y}; send when the feedback was given, for example 2026-02-03T12:00:00Z")
    if value > utc_now() + CLOCK_SKEW:
        raise ValueError("this time is in the future; send when the feedback was given, or leave it out")
    return value


Id = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
BodyText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
ClinicianId = Annotated[Id, BeforeValidator(_as_text, json_schema_input_type=str | int)]
Purposes = Annotated[tuple[Purpose, ...], BeforeValidator(_no_repeats), Field(max_length=4)]
Sides = Annotated[tuple[Side, ...], BeforeValidator(_no_repeats), Field(max_length=2)]
Axis = Annotated[str, Field(min_length=1, max_length=64)]  # the workspace says which there are
MetaName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]
Stars = Annotated[int, Field(ge=1, le=5, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
GivenTime = Annotated[datetime, AfterValidator(_plausible)]


class StrictBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class _RatingBody(StrictBody):
    """What every kind of record may carry."""

    clinician_id: ClinicianId | None = Field(
        None, description="Who judged, when a program passes it on: name or id of a user; otherwise the caller."
    )
    timestamp: GivenTime | None = Field(
        None, description="When it was said, if not just now; UTC without a zone. `received` keeps when the server got it."
    )
    consent: Purposes = Field((), description="What the record may be used for; nothing by default.")
    trace_id: Id | None = Field(None, description="The logged exchange this is about.")
    supersedes: Id | None = Field(None, description="Your earlier record of the same kind that this one replaces.")
    subject: Id | None = Field(None, description="Your id of the person the text is about; only a keyed hash of it is stored.")


class FeedbackBody(_RatingBody):
    """A rating of one answer: stars, a thumb, a type, axes, a comment, the critical flag; at least one of them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"trace_id": "0199c0de-0000-7000-8000-000000000001", "thumb": "down", "comments": "Misses the red flag."},
                {
                    "feedback_id": "fb_2026_0001",
                    "timestamp": "2026-02-03T12:00:00Z",
                    "session_id": "sess_xyz789",
                    "agent_name": "prescription_agent",
                    "user_query": "Prescribe treatment for hypertension",
                    "agent_response": "I recommend starting with lisinopril 10mg...",
                    "rating": 5,
                    "feedback_type": "positive",
                    "clinician_id": "dr.li",
                    "comments": "Appropriate first-line treatment",
                    "axes": {"safety": 5, "clarity": 4},
                    "consent": ["training"],
                },
            ]
        }
    )

    feedback_id: SafeName | None = Field(None, description="Your id of this record; sent again, it is stored once.")
    session_id: SafeName | None = None
    agent_name: SafeName | None = None
    user_query: BodyText | None = None
    agent_response: BodyText | None = None
    rating: Stars | None = Field(None, description="One to five stars.")
    thumb: Literal["up", "down"] | None = None
    feedback_type: FeedbackType | None = Field(None, description="Follows from thumb, stars and the critical flag when left out.")
    axes: dict[Axis, Stars] = Field(
        default_factory=dict,
        max_length=MAX_AXES,
        description="Stars by named axis, of those that the workspace uses. risk, false_reassurance, emergency and overtriage "
        "are always there and also label these parts of the reward: 1 or 2 stars say that the answer has the fault, 4 or 5 "
        "that it does not.",
    )
    critical: Flag = Field(False, description="The answer could harm a patient: opens a safety incident.")
    comments: BodyText | None = None
    golden: BodyText | None = Field(None, description="The answer you would have given; stored as a correction.")
    model_version: SafeName | None = None

    @model_validator(mode="after")
    def _says_something(self) -> FeedbackBody:
        signals = (self.rating, self.thumb, self.feedback_type, self.comments, self.golden)
        if all(signal is None for signal in signals) and not self.axes and not self.critical:
            raise ValueError("send at least one of rating, thumb, feedback_type, axes, comments, golden, critical")
        if (self.user_query is None) != (self.agent_response is None):
            raise ValueError("send user_query and agent_response together, or neither")
        if self.trace_id is None and self.session_id is None:
            raise ValueError("name the trace_id, or the session_id")
        if self.trace_id is None and self.user_query is not None and self.agent_name is None:
            raise ValueError("without a trace, agent_name is needed")
        return self


class PreferenceBody(_RatingBody):
    """A choice between two answers to one prompt."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "prompt": "What medication for type 2 diabetes?",
                    "response_a": "Metformin 500mg twice daily...",
                    "response_b": "Insulin immediately...",
                    "preferred": "a",
                    "shown_first": "b",
                    "axes": {"safety": "a", "clarity": "tie"},
                    "consent": ["training"],
                }
            ]
        }
    )

    preference_id: SafeName | None = Field(None, description="Your id of this record; sent again, it is stored once.")
    prompt: BodyText
    response_a: BodyText
    response_b: BodyText
    preferred: ChoiceOutcome = Field(description="The better answer; 'tie' if they are equal, 'both_bad' if both are unusable.")
    critical: Sides = Field((), description="The answers that could harm a patient: each opens a safety incident.")
    shown_first: Side | None = Field(None, description="Which answer was shown first (left, or on top).")
    comments: BodyText | None = None
    axes: dict[Axis, Literal["a", "b", "tie"]] = Field(default_factory=dict, max_length=MAX_AXES)
    session_id: SafeName | None = None
    model_a: SafeName | None = None
    model_b: SafeName | None = None


class CorrectionBody(_RatingBody):
    """The answer an expert would have given."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "prompt": "Crushing chest pain for an hour, what should I do?",
                    "original": "Drink tea and rest.",
                    "golden": "Call an ambulance now; do not drive yourself.",
                    "reason": "Red flag: possible infarction.",
                    "consent": ["training"],
                }
            ]
        }
    )

    correction_id: SafeName | None = Field(None, description="Your id of this record; sent again, it is stored once.")
    golden: BodyText
    prompt: BodyText | None = None
    original: BodyText | None = None
    reason: BodyText | None = None
    feedback_id: Id | None = Field(None, description="The rating that led to this correction.")

    @model_validator(mode="after")
    def _of_something(self) -> CorrectionBody:
        if (self.prompt is None) != (self.original is None):
            raise ValueError("send prompt and original together, or neither")
        if self.prompt is None and self.trace_id is None and self.feedback_id is None:
            raise ValueError("name the trace_id or the feedback_id, or send prompt and original")
        return self


class TurnBody(StrictBody):
    role: Role
    content: BodyText


class TraceBody(StrictBody):
    """One exchange with the assistant, as the agent logs it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "session_id": "sess_xyz789",
                    "agent_name": "triage",
                    "model_version": "clinic-7b@3",
                    "messages": [
                        {"role": "user", "content": "I have had a cough for two weeks."},
                        {"role": "assistant", "content": "Do you also have a fever?"},
                    ],
                }
            ]
        }
    )

    session_id: SafeName
    agent_name: SafeName
    model_version: SafeName
    messages: tuple[TurnBody, ...] = Field(
        min_length=1, max_length=200, description="The conversation; a system message may come first."
    )
    contexts: tuple[BodyText, ...] = Field((), max_length=50, description="Passages the answer was based on.")
    snapshot: Hash | None = None
    subject: Id | None = Field(None, description="Your id of the person it is about; only a keyed hash of it is stored.")
    sampling_share: Unit | None = None
    meta: dict[MetaName, str | int | float | bool | None] = Field(default_factory=dict, max_length=50)

    @field_validator("meta")
    @classmethod
    def _site_is_not_sent(cls, meta: dict[str, Any]) -> dict[str, Any]:
        if "site" in meta:
            raise ValueError("'site' is the server's: it comes from the key; choose another name")
        return meta

    @model_validator(mode="after")
    def _roles_alternate(self) -> TraceBody:
        roles = [message.role for message in self.messages]
        body = roles[1:] if roles[0] == "system" else roles
        if not body or any(role != ("assistant" if index % 2 else "user") for index, role in enumerate(body)):
            raise ValueError("user and assistant must alternate, the user first; a system message may come before them")
        return self


SubmissionBody = FeedbackBody | PreferenceBody | CorrectionBody | TraceBody
BODY_OF_KIND: dict[str, Any] = {
    "feedback": FeedbackBody,
    "preference": PreferenceBody,
    "correction": CorrectionBody,
    "trace": TraceBody,
}
