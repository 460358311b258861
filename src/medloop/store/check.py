"""`medloop db check`: is every byte of the store still what was written?"""

from dataclasses import dataclass

from sqlalchemy import Connection, Table, func, select

from medloop.errors import IntegrityError
from medloop.store.db import Store, schema_version
from medloop.store.records.crud import PAGE_SIZE, decrypt_row
from medloop.store.tables import encrypted_tables, metadata

MOST = 20  # problems that are listed; a badly damaged file has thousands


@dataclass(frozen=True)
class CheckReport:
    schema: str
    rows: dict[str, int]
    problems: tuple[str, ...]


def check(store: Store) -> CheckReport:
    """Count the rows, let SQLite check its file, and decrypt every encrypted column, which proves that it is unchanged."""
    problems: list[str] = []
    with store.read() as conn:
        version = schema_version(conn) or "none"
        if store.is_sqlite:
            problems += _sqlite_problems(conn)
        rows = {
            table.name: int(conn.execute(select(func.count()).select_from(table)).scalar_one())
            for table in metadata.sorted_tables
        }
    for table in encrypted_tables():
        problems += _unreadable(store, table)
    return CheckReport(version, rows, tuple(problems[:MOST]))


def _sqlite_problems(conn: Connection) -> list[str]:
    results = [str(row[0]) for row in conn.exec_driver_sql(f"PRAGMA integrity_check({MOST})")]
    dangling = [
        f"{row[0]}: row {row[1]} points at a missing row of {row[2]}" for row in conn.exec_driver_sql("PRAGMA foreign_key_check")
    ]
    return ([] if results == ["ok"] else results) + dangling


def _unreadable(store: Store, table: Table) -> list[str]:
    problems: list[str] = []
    after = 0
    while len(problems) < MOST:
        with store.read() as conn:
            rows = conn.execute(select(table).where(table.c.id > after).order_by(table.c.id).limit(PAGE_SIZE)).all()
            for row in rows:
                try:
                    decrypt_row(table, row, store.keys.reading(conn, row))
                except IntegrityError as error:
                    problems.append(error.what)
        if not rows:
            break
        after = rows[-1].id
    return problems
