"""A waiver of one check of the gate, as lists show it, and which checks it lifts."""

from dataclasses import asdict, dataclass
from datetime import datetime

from medloop.contracts.base import iso_utc
from medloop.contracts.gate import GateCheck

# Close the incident with two people; train again on what is left; a critical failure is what the gate is for.
NEVER_WAIVED = ("incidents", "erasure", "critical_failures")
WORSE = {"pass": 0, "not_enough_evidence": 1, "fail": 2}


@dataclass(frozen=True)
class WaiverRow:
    """A waiver as lists show it; without an approver it waits and lifts nothing."""

    waiver_id: str
    artifact: str
    check: str
    outcome: str
    reason: str
    author: str
    approver: str | None
    approved: datetime | None
    expires: datetime
    timestamp: datetime

    def is_active(self, now: datetime) -> bool:
        return self.approver is not None and now < self.expires

    def lifts(self, check: GateCheck, now: datetime) -> bool:
        """What was waived for want of evidence is not waived once it has failed."""
        same = check.name == self.check and check.name not in NEVER_WAIVED
        return same and self.is_active(now) and WORSE[check.outcome] <= WORSE[self.outcome]

    def as_json(self) -> dict[str, str | None]:
        approved = None if self.approved is None else iso_utc(self.approved)
        return {
            **asdict(self), "approved": approved, "expires": iso_utc(self.expires), "timestamp": iso_utc(self.timestamp),
        }  # fmt: skip
