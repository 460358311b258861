"""Consents in the store. Rows are added and never changed. A subject is a keyed hash, not a name (privacy/consent.py)."""

from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Row, insert, select

from medloop.contracts import AuditEvent, Consent
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.tables import consents

_CONTRACT = tuple(Consent.model_fields)


def add_consent(store: Store, consent: Consent, *, actor: str, recorded_by: str | None = None) -> None:
    """Add a grant or a withdrawal; the audit line has the subject's hash, the purposes and the id of the row."""
    with store.write() as conn:
        row = {name: getattr(consent, name) for name in _CONTRACT} | {"purposes": list(consent.purposes)}
        conn.execute(insert(consents).values(**row, recorded_by=recorded_by))
        action = "consents.grant" if consent.granted else "consents.withdraw"
        detail: dict[str, str | int | float | bool] = {"purposes": ",".join(consent.purposes), "text": consent.text_version}
        detail["consent"] = consent.consent_id  # without its row, the line is an alarm (row_macs.py)
        audit.append(conn, AuditEvent(actor=actor, action=action, subject=consent.subject, detail=detail))


def list_consents(store: Store, subject: str) -> list[Consent]:
    """All grants and withdrawals of one subject, oldest first."""
    with store.read() as conn:
        rows = conn.execute(select(consents).where(consents.c.subject == subject).order_by(consents.c.id)).all()
    return [_consent(row) for row in rows]


def all_consents(store: Store) -> list[Consent]:
    """All rows, oldest first, for a dataset build."""
    with store.read() as conn:
        rows = conn.execute(select(consents).order_by(consents.c.id)).all()
    return [_consent(row) for row in rows]


_KEYS: WeakKeyDictionary[Store, bytes] = WeakKeyDictionary()  # without it, each incoming record would need a transaction


def hashing_key(store: Store) -> bytes:
    """The key of the audit log. The master key wraps it and it never changes, so a subject always has the same hash."""
    if store not in _KEYS:
        _KEYS[store] = _hashing_key(store)
    return _KEYS[store]


def _hashing_key(store: Store) -> bytes:
    with store.read() as conn:
        if store.keys.exists(conn, "audit"):
            return store.keys.auditing(conn).raw
    with store.transaction() as conn:
        return store.keys.auditing(conn).raw


def _consent(row: Row[Any]) -> Consent:
    return Consent.model_validate({name: row._mapping[name] for name in _CONTRACT})
