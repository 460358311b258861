"""Many new rows in one INSERT.

    insert_rows(store, conn, rlhf_feedback, rows)     # signed, if the table is guarded (row_macs.py)
    insert_unsigned(conn, audit_log, rows)            # for tables without MACs

SQLAlchemy prepares the values of each row by itself, and SQLite's driver gives Python's lock away after each: while a server
answers, the thread that writes would wait for it hundreds of times in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Dialect, Table

from medloop.store import row_macs
from medloop.store.tables.columns import MAC

if TYPE_CHECKING:
    from medloop.store.db import Store

MOST_ROWS = 32  # of one statement: SQLite keeps one prepared for each number of rows
Rows = Sequence[Mapping[str, Any]]


def insert_rows(store: Store, conn: Connection, table: Table, rows: Rows) -> None:
    """Insert rows that have the same columns."""
    if rows and MAC in table.c:
        key = row_macs.row_key(store, conn)
        rows = [row_macs.signed(key, table, row) for row in rows]
    _insert(conn, table, rows)


def insert_unsigned(conn: Connection, table: Table, rows: Rows) -> None:
    assert MAC not in table.c, f"the rows of {table.name} are signed"
    _insert(conn, table, rows)


def _insert(conn: Connection, table: Table, rows: Rows) -> None:
    if not rows:
        return
    form = _form(table, tuple(rows[0]), conn.dialect)
    assert all(len(row) == len(form.processors) for row in rows), "the rows of one INSERT have the same columns"
    for start in range(0, len(rows), MOST_ROWS):
        some = [form.values_of(row) for row in rows[start : start + MOST_ROWS]]
        columns = [
            values if process is None else [process(value) for value in values]
            for process, values in zip(form.processors, zip(*some, strict=True), strict=True)
        ]
        values = tuple(value for row in zip(*columns, strict=True) for value in row)
        conn.exec_driver_sql(f"{form.head}{', '.join([form.places] * len(some))}", values)


@dataclass(frozen=True)
class _InsertForm:
    """An INSERT into some columns of a table: its text before the values, the places of one row, and what makes the values."""

    head: str
    places: str
    values_of: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    processors: tuple[Callable[[Any], Any] | None, ...]


@lru_cache(maxsize=256)
def _form(table: Table, names: tuple[str, ...], dialect: Dialect) -> _InsertForm:
    assert len(names) > 1
    quoted = ", ".join(dialect.identifier_preparer.format_column(table.c[name]) for name in names)
    place = "?" if dialect.paramstyle == "qmark" else "%s"
    return _InsertForm(
        head=f"INSERT INTO {dialect.identifier_preparer.format_table(table)} ({quoted}) VALUES ",
        places=f"({', '.join([place] * len(names))})",
        values_of=itemgetter(*names),
        processors=tuple(table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in names),
    )
