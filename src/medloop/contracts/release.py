"""A release: a model that the gate let pass, with its safety ledger: what changed, who taught it, who signed, how to go back."""

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now
from medloop.contracts.evaluation import CriticalFailure, Difference
from medloop.contracts.gate import GateResult, Waiver
from medloop.contracts.lineage import RecordKind


class LedgerChange(Contract):
    """One thing that differs from the release before."""

    what: Text
    before: str = ""
    after: str = ""


class TaughtCount(Contract):
    """How many records of a kind people of a role gave; an empty role: no person is named in the record."""

    kind: RecordKind
    role: str = ""
    records: int = Field(ge=0)


class Ancestor(Contract):
    """A model of the chain that led to the release, the released one first."""

    path: Text
    method: Text
    artifact: Hash
    finished: Timestamp
    inputs: dict[str, Hash] = Field(default_factory=dict)


class LedgerSignOff(Contract):
    """A sign-off with the name of the user, as a printed page needs it."""

    name: Text
    role: str
    approved: bool
    comment: str = ""
    timestamp: Timestamp


class SafetyLedger(Contract):
    """`safety_ledger.json`. `missing` says for each thing that a release should have and this one lacks, why it lacks it.

    `new_records` and `left_records` compare with the release before; None without one.
    """

    release: Text
    previous: Text | None = None
    base: Text
    base_sha256: Hash
    adapter: Text
    artifact: Hash
    fingerprint: Hash
    method: Text
    changes: tuple[LedgerChange, ...] = ()
    ancestors: tuple[Ancestor, ...] = Field(min_length=1)
    taught: tuple[TaughtCount, ...] = ()
    records: int = Field(0, ge=0)
    new_records: int | None = None
    left_records: int | None = None
    gate_id: Hash
    gate: GateResult
    sign_offs: tuple[LedgerSignOff, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    red_team: tuple[Difference, ...] = ()
    critical: tuple[CriticalFailure, ...] = ()
    reward: Text | None = None
    teacher: Text | None = None
    warnings: tuple[Text, ...] = ()
    missing: dict[str, Text] = Field(default_factory=dict)
    rollback: tuple[Text, ...] = ()
    files: tuple[Text, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    made_by: Text
    timestamp: Timestamp = Field(default_factory=utc_now)
