"""Key rotation: `medloop keys rotate`.

A new data key encrypts the rows written from now on; rows under older keys stay readable. A new master key re-wraps all
data keys in one transaction. Re-encryption moves rows to the newest data key, batch by batch. After a kill it continues
where it stopped. At the end it destroys the data keys that no row uses.

The new master key is in `master.key.next` until the database has taken it, so after a kill at any moment one of the two
files has the right key (docs/decisions/0004-envelope-keys.md).
"""

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, func, select, update

from medloop.contracts import AuditEvent
from medloop.errors import ConfigError, explain_os_errors
from medloop.store import audit
from medloop.store.crypto import KEY_BYTES, MAKE_ONE, MasterKey, encode_key, next_key_file, read_key_file, wrap
from medloop.store.db import Store
from medloop.store.files.atomic import atomic_write, fsync_folder
from medloop.store.records.crud import decrypt_row
from medloop.store.tables import data_keys, encrypted_columns, encrypted_tables, natural_id

BATCH = 500  # rows per transaction: other writers wait for one batch, not for the whole table


@dataclass(frozen=True)
class KeyInfo:
    key_id: str
    purpose: str
    created: datetime
    rows: int
    in_use: bool


@dataclass(frozen=True)
class Rotation:
    master_id: str
    data_key: str | None


def list_keys(store: Store) -> tuple[MasterKey, list[KeyInfo]]:
    """The master key (only its id and origin may be shown), and every data key with the number of its rows."""
    with store.read() as conn:
        master = store.keys.master(conn)
        keys = conn.execute(select(data_keys).order_by(data_keys.c.id)).all()
        newest = {row.purpose: row.key_id for row in keys}
        rows = _rows_per_key(conn)
    return master, [
        KeyInfo(row.key_id, row.purpose, row.created, rows.get(row.key_id, 0), newest[row.purpose] == row.key_id) for row in keys
    ]


def rotate(store: Store, *, data: bool, master: bool, new_master: MasterKey | None = None, actor: str) -> Rotation:
    """Make a new data key, a new master key, or both. `new_master` comes from the environment; medloop does not store it."""
    settings = store.settings
    if master and new_master is None and settings.database.encryption_key.get_secret_value():
        raise ConfigError(
            "The master key comes from MEDLOOP_DATABASE__ENCRYPTION_KEY, which medloop cannot change for you",
            f"Make a new one ({MAKE_ONE}), put it in another variable and name that variable with --new-key-env",
        )
    with store.write() as conn:
        _finish_earlier(store, conn)
        key = store.keys.add(conn, "data") if data else None
        current = store.keys.master(conn)
        if master:
            current = new_master or _next_key(store)
            _rewrap(store, conn, current)
        detail: dict[str, str | int | float | bool] = {"master": current.id, "data": key.key_id if key else ""}
        audit.append(conn, AuditEvent(actor=actor, action="keys.rotate", subject="data_keys", detail=detail))
    if master and new_master is None:
        _put_in_place(store)
    return Rotation(current.id, key.key_id if key else None)


def reencrypt(store: Store, *, actor: str, batch: int = BATCH, progress: Callable[[int], None] = lambda rows: None) -> int:
    """Re-encrypt every row with the newest data key; returns how many rows changed. `progress` is called after each batch."""
    moved = 0
    for table in encrypted_tables():
        after = 0
        while True:
            with store.write() as conn:
                rows, after = _reencrypt_batch(store, conn, table, after, batch)
            if not rows:
                break
            moved += rows
            progress(rows)
    with store.write() as conn:
        dropped = _drop_unused(conn)
        detail: dict[str, str | int | float | bool] = {"rows": moved, "keys_destroyed": dropped}
        audit.append(conn, AuditEvent(actor=actor, action="keys.reencrypt", subject="data_keys", detail=detail))
    store.checkpoint()
    return moved


def rows_to_reencrypt(store: Store) -> int:
    _, keys = list_keys(store)
    return sum(key.rows for key in keys if key.purpose == "data" and not key.in_use)


def _next_key(store: Store) -> MasterKey:
    path = next_key_file(store.settings)
    atomic_write(path, encode_key(secrets.token_bytes(KEY_BYTES)), mode=0o600)
    return read_key_file(path)


def _finish_earlier(store: Store, conn: Connection) -> None:
    """Put a `.next` file in place if it has the key in use: a killed rotation left it, and a new one would overwrite it."""
    path = next_key_file(store.settings)
    master_id = conn.execute(select(data_keys.c.master_id).limit(1)).scalar()
    if path.exists() and master_id == read_key_file(path).id:
        _put_in_place(store)


def _put_in_place(store: Store) -> None:
    path = store.settings.master_key_file
    with explain_os_errors(path, writing=True):
        os.replace(next_key_file(store.settings), path)
        fsync_folder(path.parent)


def _rewrap(store: Store, conn: Connection, master: MasterKey) -> None:
    # Unwrap all keys before wrapping the first one again: in between, the table has two master keys.
    keys = [store.keys.data_key(conn, key_id) for key_id in conn.execute(select(data_keys.c.key_id)).scalars().all()]
    for key in keys:
        wrapped = wrap(master, key.key_id, key.raw)
        conn.execute(update(data_keys).where(data_keys.c.key_id == key.key_id).values(wrapped=wrapped, master_id=master.id))


def _reencrypt_batch(store: Store, conn: Connection, table: Table, after: int, batch: int) -> tuple[int, int]:
    keys = store.keys.writing(conn)
    newest = keys.data_key.key_id
    stale = select(table).where(table.c.key_id != newest, table.c.id > after).order_by(table.c.id).limit(batch)
    changes: list[dict[str, Any]] = []
    for row in conn.execute(stale).all():
        row_id = row._mapping[natural_id(table)]
        opened = decrypt_row(table, row, store.keys.reading(conn, row))
        sealed = keys.for_leaf(row.text_key).encrypt_row(table.name, row_id, opened)
        # An empty column stays empty, but every row of the batch must name the same columns.
        changes.append({"row": row.id, "key": newest, **{f"new_{name}": sealed.get(name) for name in encrypted_columns(table)}})
    if not changes:
        return 0, after
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in encrypted_columns(table)}
    conn.execute(update(table).where(table.c.id == bindparam("row")).values(key_id=bindparam("key"), **values), changes)
    return len(changes), changes[-1]["row"]


def _drop_unused(conn: Connection) -> int:
    rows = _rows_per_key(conn)
    keys = conn.execute(select(data_keys.c.key_id).where(data_keys.c.purpose == "data").order_by(data_keys.c.id)).scalars().all()
    unused = [key_id for key_id in keys[:-1] if key_id not in rows]
    if unused:
        conn.execute(delete(data_keys).where(data_keys.c.key_id.in_(unused)))
    return len(unused)


def _rows_per_key(conn: Connection) -> dict[str, int]:
    counts: dict[str, int] = {}
    for table in encrypted_tables():
        for key_id, rows in conn.execute(select(table.c.key_id, func.count()).group_by(table.c.key_id)):
            counts[key_id] = counts.get(key_id, 0) + rows
    return counts
