"""Cycles of the loop: what each step did, with what, and what a cycle waits for. Rows are added and never changed."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now, uuid7

StepEvent = Literal["started", "done", "waiting", "failed", "ended"]
Fact = str | int | float | bool | None


class CycleEvent(Contract):
    """One thing that happened to a step. `inputs` is the hash of everything it depends on, `outputs` what later steps use.

    Ended: the cycle is over without its later steps, `reason` says why (the gate refused the model, somebody cancelled it).
    """

    event_id: Text = Field(default_factory=lambda: f"step_{uuid7()}")
    cycle: Text
    step: Text
    event: StepEvent
    inputs: Hash
    outputs: dict[str, Fact] = Field(default_factory=dict)
    reason: str = ""
    decided_by: Text = "medloop"
    timestamp: Timestamp = Field(default_factory=utc_now)
