"""Records in pages, as dictionaries ready for JSON: with the decrypted texts, or without them.

Conditions are column names with the value they must have, and `since` and `until`. The caller checks the names: none of them
may come from a request. A record that was sent again under an erased id is not shown.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, select

from medloop.contracts import Contract
from medloop.contracts.base import iso_utc
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.site_items import of_site
from medloop.store.tables import encrypted_columns, id_column, tombstones

Json = dict[str, Any]
_HIDDEN = {"id", "key_id", "text_key", "mac", "subject"}


def page(
    store: Store, kind: type[Contract], conditions: Mapping[str, Any], *, sender: str | None, texts: bool, after: str | None,
    limit: int, newest_first: bool, site: str = DEFAULT_SITE,
) -> tuple[list[Json], bool]:  # fmt: skip
    """Up to `limit` records after the record `after`, and whether there are more; with `sender`, only those of one sender, with a
    `site` other than main only those that were sent from there.

    All rows come from one read, so a page is consistent.
    """
    table = crud.TABLES[kind]
    query = _query(table, conditions, sender, site)
    with store.read() as conn:
        if after is not None:
            named = _query(table, {}, sender, site).where(id_column(table) == after)
            last = last_row(conn, named.with_only_columns(table.c.id), "record")
            query = query.where(table.c.id < last if newest_first else table.c.id > last)
        order = table.c.id.desc() if newest_first else table.c.id
        rows = conn.execute(query.order_by(order).limit(limit + 1)).all()
        return [_as_json(store, conn, table, row, texts) for row in rows[:limit]], len(rows) > limit


def last_row(conn: Connection, query: Select[Any], noun: str) -> int:
    """The row at which the page before ended; `query` finds its number."""
    row_id = conn.execute(query).scalar()
    if row_id is None:
        raise InputError(f"'after' names an unknown {noun}", "Pass the 'next' value of the previous page")
    return int(row_id)


def get(
    store: Store, kind: type[Contract], record_id: str, *, sender: str | None, texts: bool, site: str = DEFAULT_SITE
) -> Json | None:
    table = crud.TABLES[kind]
    with store.read() as conn:
        row = conn.execute(_query(table, {}, sender, site).where(id_column(table) == record_id)).first()
        return None if row is None else _as_json(store, conn, table, row, texts)


def columns(kind: type[Contract], *, texts: bool) -> list[str]:
    """The fields of a record on a page, in the table's order."""
    table = crud.TABLES[kind]
    hidden = _HIDDEN if texts else _HIDDEN | set(encrypted_columns(table))
    return [name for name in table.columns.keys() if name not in hidden]


def _query(table: Table, conditions: Mapping[str, Any], sender: str | None, site: str) -> Select[Any]:
    query = select(table).where(id_column(table).not_in(select(tombstones.c.record_id)), of_site(id_column(table), site))
    if sender is not None:
        query = query.where(table.c.recorded_by == sender)
    for name, value in conditions.items():
        if name == "since":
            query = query.where(table.c.timestamp >= value)
        elif name == "until":
            query = query.where(table.c.timestamp < value)
        else:
            query = query.where(table.c[name] == value)
    return query


def _as_json(store: Store, conn: Connection, table: Table, row: Row[Any], texts: bool) -> Json:
    values = {name: value for name, value in row._mapping.items() if name not in encrypted_columns(table)}
    if texts:
        opened = crud.decrypt_row(table, row, store.keys.reading(conn, row))
        values |= dict.fromkeys(encrypted_columns(table)) | {name: json.loads(text) for name, text in opened.items()}
    shown = [name for name in table.columns.keys() if name in values and name not in _HIDDEN]
    return {name: iso_utc(values[name]) if isinstance(values[name], datetime) else values[name] for name in shown}
