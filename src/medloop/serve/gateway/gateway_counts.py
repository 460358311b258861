"""What the gateway did, in numbers: for `/metrics` and for the alarms of a rollback. Never an id, an address or a text.

answered    a model server of the live route (or any of them, where no route is live) wrote the answer
fallback    the fallback wrote it
refused     a guard answered instead of the model
unavailable a notice was shown, and no model server answered
failed      no answer, or a stream that broke
cancelled   the reader left
rejected    the request was not accepted: malformed, another model, too many at once
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Protocol

Outcome = Literal["answered", "fallback", "refused", "unavailable", "failed", "cancelled", "rejected"]
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# A request that no version could answer; a server that has too much to do, is away or slow; a fault of the gateway itself.
NOT_ITS_FAULT = ("refused", "busy", "unreachable", "timeout", "internal")


class OnAnswer(Protocol):
    """Each answer of a live version: whether it came, and how long the model server took."""

    def __call__(self, served_name: str, *, ok: bool, seconds: float) -> None: ...


@dataclass
class GatewayCounts:
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    acts: Counter[tuple[str, str]] = field(default_factory=Counter)  # of guards, by name and finding
    tools: Counter[tuple[str, str]] = field(default_factory=Counter)  # calls, by name and whether they gave a result
    buckets: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    seconds: float = 0.0

    def add(self, outcome: Outcome, seconds: float) -> None:
        """One answer, from the question to its last word."""
        self.outcomes[outcome] += 1
        self.buckets[bisect.bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds


def outcome_of(finish: str, error: str | None, *, refused: bool, fallback: bool) -> Outcome:
    if finish == "cancelled":
        return "cancelled"
    if error is not None:
        return "failed" if finish == "error" else "unavailable"
    return "refused" if refused else "fallback" if fallback else "answered"


def is_about_version(outcome: Outcome, error: str | None) -> bool:
    """Whether an answer says something about the version that was asked; a guard's refusal and a reader who left do not.
    `error`: why the version gave no answer, also where the fallback gave one."""
    return outcome in ("answered", "fallback", "unavailable", "failed") and error not in NOT_ITS_FAULT
