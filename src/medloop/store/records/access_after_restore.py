"""Access after a restore: a backup is older than what was revoked, disabled or changed since.

    carry_access(store, read_access(old), actor="cli")  # `old`: a connection to the database that the restore set aside
    revoke_all(store, actor="cli")               # without it: no key works, and each password has to be changed at the next login

Only rows of the old database whose MAC fits are believed: whoever edited it must not get in through a restore. Sessions always
end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, select, update
from sqlalchemy.exc import DBAPIError

from medloop.contracts import AuditEvent, utc_now
from medloop.store import audit, row_macs
from medloop.store.db import Store
from medloop.store.tables import api_keys, data_keys, sessions, users

CARRIED = ("password", "must_change", "disabled", "role", "requested_by")  # of a user; the rest never changes
AUDIT_KEY = select(data_keys.c.key_id).where(data_keys.c.purpose == "audit")


@dataclass(frozen=True)
class AccessChanges:
    """How many accounts were brought up to date, how many keys were revoked, and how many rows could not be believed."""

    users: int
    keys: int
    unfit: int


@dataclass(frozen=True)
class OldAccess:
    """Users and keys of the database that was set aside, by id."""

    audit_key: str | None
    users: dict[str, Row[Any]]
    keys: dict[str, Row[Any]]


def read_access(old: Connection) -> OldAccess | None:
    """None if the database cannot be read: a damaged one is why people restore."""
    try:
        people, keys = (_by_id(old, table, id_name) for table, id_name in ((users, "user_id"), (api_keys, "api_key_id")))
        return OldAccess(old.execute(AUDIT_KEY).scalar(), people, keys)
    except DBAPIError:
        return None


def end_sessions(store: Store) -> None:
    with store.write() as conn:
        conn.execute(delete(sessions))


def carry_access(store: Store, old: OldAccess, *, actor: str) -> AccessChanges | None:
    """Apply what the old database says about users and keys; None if it is of another workspace."""
    with store.write() as conn:
        if old.audit_key != conn.execute(AUDIT_KEY).scalar():
            return None
        key, people, keys = row_macs.row_key(store, conn), old.users, old.keys
        fits = {
            id(row): row_macs.fits(key, table, row)
            for table, rows in ((users, people), (api_keys, keys))
            for row in rows.values()
        }
        present = conn.execute(select(users)).all()
        changed = [row for row in present if _carry_user(conn, row, people, fits, actor)]
        live = conn.execute(select(api_keys).where(api_keys.c.revoked.is_(None))).all()
        revoked = [row.api_key_id for row in live if not _still_valid(keys.get(row.api_key_id), fits)]
        _revoke(conn, revoked, actor)
    gone = sum(row.user_id not in people for row in present)
    return AccessChanges(len(changed), len(revoked), gone + sum(not fit for fit in fits.values()))


def revoke_all(store: Store, *, actor: str) -> AccessChanges:
    """Revoke every key, and make every password one that has to be changed at the next login."""
    with store.write() as conn:
        keys = list(conn.execute(select(api_keys.c.api_key_id).where(api_keys.c.revoked.is_(None))).scalars())
        _revoke(conn, keys, actor)
        people = conn.execute(select(users).where(users.c.password.is_not(None))).all()
        for row in people:
            _change(conn, row, {"must_change": True}, actor)
    return AccessChanges(len(people), len(keys), 0)


def _by_id(conn: Connection, table: Table, id_name: str) -> dict[str, Row[Any]]:
    return {row._mapping[id_name]: row for row in conn.execute(select(table)).all()}


def _carry_user(conn: Connection, row: Row[Any], people: Mapping[str, Row[Any]], fits: Mapping[int, bool], actor: str) -> bool:
    before = people.get(row.user_id)
    if before is None or not fits[id(before)]:  # users are never deleted: one that is gone or was edited may have been disabled
        values: dict[str, Any] = {} if row.disabled else {"disabled": True}
    else:
        values = {name: before._mapping[name] for name in CARRIED if before._mapping[name] != row._mapping[name]}
    if values:
        _change(conn, row, values, actor)
    return bool(values)


def _change(conn: Connection, row: Row[Any], values: Mapping[str, Any], actor: str) -> None:
    conn.execute(update(users).where(users.c.user_id == row.user_id).values(**values))
    detail: dict[str, str | int | float | bool] = {"name": row.name, "restored": True, "changed": ", ".join(sorted(values))}
    audit.append(conn, AuditEvent(actor=actor, action="users.change", subject=row.user_id, detail=detail))


def _still_valid(before: Row[Any] | None, fits: Mapping[int, bool]) -> bool:
    """Keys are never deleted: one that is gone from the old database, or was edited there, is not believed."""
    return before is not None and fits[id(before)] and before.revoked is None


def _revoke(conn: Connection, key_ids: list[str], actor: str) -> None:
    for key_id in key_ids:
        conn.execute(update(api_keys).where(api_keys.c.api_key_id == key_id).values(revoked=utc_now()))
        audit.append(conn, AuditEvent(actor=actor, action="api_keys.revoke", subject=key_id, detail={"restored": True}))
