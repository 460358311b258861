"""`medloop audit verify`: the hash chain, the rows that carry a MAC, and what was said about the log outside the workspace."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from medloop.store import audit, row_macs
from medloop.store.anchors import AnchorReport, check_anchors
from medloop.store.db import Store
from medloop.store.tables import audit_log

RESTORED = "workspace.restore"  # the audit line of a restore


@dataclass(frozen=True)
class RestoreNote:
    """That this store was restored, from which backup, and how many rows of the log came with it."""

    timestamp: str
    actor: str
    backup: str
    rows: int


@dataclass(frozen=True)
class IntegrityReport:
    audit: audit.AuditReport
    rows: row_macs.RowReport
    anchors: AnchorReport
    restored: RestoreNote | None

    @property
    def ok(self) -> bool:
        return self.audit.ok and not self.rows.wrong and self.anchors.problem is None


def verify_store(store: Store) -> IntegrityReport:
    """Check everything and change nothing."""
    report, anchors = audit.verify(store), check_anchors(store)
    with store.read() as conn:
        return IntegrityReport(report, row_macs.check_rows(store, conn), anchors, last_restore(conn))


def last_restore(conn: Connection) -> RestoreNote | None:
    query = select(audit_log).where(audit_log.c.action == RESTORED).order_by(audit_log.c.seq.desc()).limit(1)
    row = conn.execute(query).first()
    if row is None:
        return None
    detail = json.loads(row.detail)
    return RestoreNote(row.timestamp, row.actor, str(detail.get("backup", "")), int(detail.get("rows", 0)))


def alarm_text(wrong: int) -> str:
    return f"{wrong:,} row(s) do not fit: somebody changed the database without medloop"


def listed(rows: Sequence[row_macs.ChangedRow]) -> list[str]:
    """One line for each row, by table and id."""
    words = {"changed": "was changed", "missing": "is missing", "unannounced": "is not in the audit log"}
    return [f"{row.table} {row.row_id} {words[row.kind]}" for row in rows]
