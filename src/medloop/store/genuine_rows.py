"""Rows that decide what may go live: read only if medloop wrote each of them and none is gone."""

from typing import Any

from sqlalchemy import Row, Select, Table

from medloop.errors import IntegrityError
from medloop.store import row_macs
from medloop.store.db import Store


def genuine_rows(store: Store, table: Table, query: Select[Any]) -> list[Row[Any]]:
    """The rows; IntegrityError if one of them was not written by medloop, or if one that the audit log knows is gone.

    The audit log does not announce every table row by row (row_macs.ANNOUNCED): there a missing row is just missing.
    """
    with store.read() as conn:
        rows = list(conn.execute(query))
        if table.name in row_macs.ANNOUNCED and row_macs.check_announced(conn, table.name):
            raise changed_rows(table)
        if rows:
            key = row_macs.row_key(store, conn)
            if not all(row_macs.fits(key, table, row) for row in rows):
                raise changed_rows(table)
    return rows


def changed_rows(table: Table) -> IntegrityError:
    return IntegrityError(
        f"A row of {table.name} was changed, added or removed past medloop", "Run 'medloop audit verify', which names the row"
    )
