"""What people asked the gate to demand in this workspace: each row is one person's word for a policy, added and never changed.

add_word(store, settings={…}, by="usr_1")       # a clinician stands for these settings
words(store)                                    # oldest first; loop/gate_policy.py says which policy they put in force
"""

from typing import Any, NamedTuple

from sqlalchemy import insert, select

from medloop.contracts import AuditEvent, canonical_json, sha256_id, utc_now, uuid7
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records.gates import SIGNERS, check_person
from medloop.store.tables import gate_policies


class PolicyWord(NamedTuple):
    """One clinician's word for a policy; `policy` is the hash of its settings."""

    policy: str
    settings: dict[str, Any]
    person: str
    timestamp: Any


def add_word(store: Store, settings: dict[str, Any], *, by: str) -> PolicyWord:
    """A clinician stands for these settings of the gate; GatePersonError for anybody else."""
    word_id, policy, now = f"pol_{uuid7()}", sha256_id(canonical_json(settings)), utc_now()
    with store.write() as conn:
        check_person(conn, by, SIGNERS, "decide what the gate demands")
        values = {"word_id": word_id, "policy": policy, "settings": settings, "person": by, "timestamp": now}
        conn.execute(insert(gate_policies).values(**values))
        audit.append(conn, AuditEvent(actor=by, action="gate.policy", subject=word_id, detail={"policy": policy}))
    return PolicyWord(policy, settings, by, now)


def words(store: Store) -> list[PolicyWord]:
    """Every word that was given, oldest first."""
    rows = genuine_rows(store, gate_policies, select(gate_policies).order_by(gate_policies.c.id))
    return [PolicyWord(row.policy, row.settings, row.person, row.timestamp) for row in rows]
