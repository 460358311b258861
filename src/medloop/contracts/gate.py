"""The gate's verdict on one model, what people added to it, and the promotion it allows."""

import shlex
from typing import Any, Literal, Self

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now
from medloop.contracts.evaluation import Interval
from medloop.contracts.gate_reasons import ReasonPart, said

GateOutcome = Literal["pass", "fail", "not_enough_evidence"]


class GateCheck(Contract):
    """One condition: what was measured, against which bound, and why that passes or not. `waiver` is the id that lifts it.

    `parts` is the reason as keys and values, for readers of other languages.
    """

    name: Text
    outcome: GateOutcome
    reason: Text
    suite: Text | None = None
    metric: Text | None = None
    stratum: Text | None = None
    value: Interval | None = None
    bound: float | None = None
    waiver: Text | None = None
    parts: tuple[ReasonPart, ...] | None = None

    @classmethod
    def because(cls, name: str, outcome: GateOutcome, *parts: ReasonPart, **more: Any) -> Self:
        return cls(name=name, outcome=outcome, reason=said(parts), parts=parts, **more)


class Waiver(Contract):
    """A failed check that a person lifts for one artifact, for a reason and until a day. It stays visible for ever."""

    waiver_id: Text
    artifact: Hash
    check: Text
    reason: Text
    author: Text
    approver: Text
    expires: Timestamp
    timestamp: Timestamp = Field(default_factory=utc_now)


class SignOff(Contract):
    """A person who read the gate's verdict on an artifact and stands for it (or refuses it)."""

    artifact: Hash
    gate: Hash
    person: Text
    approved: bool
    comment: str = ""
    timestamp: Timestamp = Field(default_factory=utc_now)


class GateResult(Contract):
    """The verdict on the artifact with this hash, by this evaluation report and these settings; its content id is `gate`.

    `model` is the name that it was given by, for another run of the gate; None in older verdicts and for files of answers.
    `weights` identifies the adapter's weights alone, wherever they are copied. `baseline_artifact` is what it was compared with.
    `changed_settings` are those that differ from the defaults, for people who sign. `needs_sign_offs` is how many people must
    sign before a promotion; sign-offs are kept apart, because they come later.
    """

    artifact: Hash
    weights: Hash
    base: Hash
    label: Text
    model: Text | None = None
    baseline: Text
    baseline_artifact: Hash
    report: Hash
    config: Hash
    changed_settings: dict[str, str] = Field(default_factory=dict)
    outcome: GateOutcome
    checks: tuple[GateCheck, ...] = Field(min_length=1)
    needs_sign_offs: int = Field(0, ge=0)
    timestamp: Timestamp = Field(default_factory=utc_now)

    @property
    def command(self) -> str:
        """What runs the gate on this model again, after 'medloop'."""
        return f"gate --model {shlex.quote(self.model or self.label)}"
