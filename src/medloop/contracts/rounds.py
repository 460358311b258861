"""Rounds of RL: what was decided about each, and which one is in use. Round 0 is the SFT adapter that all of them came from."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now

RoundDecision = Literal["accepted", "refused", "rolled_back"]


class RoundEvent(Contract):
    """A decision. Accepted: this round is in use. Refused: what was in use stays. Rolled back: this earlier one is in use."""

    event_id: Text
    number: int = Field(ge=0)
    event: RoundDecision
    path: Text
    artifact: Hash
    gate: Hash | None = None
    reason: str = ""
    decided_by: Text
    timestamp: Timestamp = Field(default_factory=utc_now)
