"""What all tables share: the metadata with its naming convention, and common columns."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TypeDecorator,
    false,
    func,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


MAC = "mac"  # tables with this column are guarded (store/row_macs.py)
UNSIGNED = "unsigned"  # of a column: changing it needs no new MAC


class UtcDateTime(TypeDecorator[datetime]):
    """Takes times with a zone and returns UTC. SQLite stores no zone, so it gets the time in UTC without one."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any] | None:
        """For SQLite in one step: a rating has four times, and SQLAlchemy's way takes half as long again."""
        return _sqlite_time if dialect.name == "sqlite" else super().bind_processor(dialect)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _sqlite_time(value: datetime | None) -> str | None:
    """As SQLAlchemy's own processor writes it."""
    return None if value is None else value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def serial() -> Column[int]:
    """Increasing row numbers; on SQLite only an `INTEGER` key increases by itself."""
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def encrypted(name: str, *, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable, info={"encrypted": True})


def key_columns() -> tuple[Column[str], Column[str]]:
    """The data key and the leaf of the key tree, which together make the key of the row's text (`crypto.py`)."""
    data_key = Column("key_id", String, ForeignKey("data_keys.key_id"), nullable=False, index=True, info={UNSIGNED: True})
    return data_key, Column("text_key", String(14), nullable=False, info={UNSIGNED: True})


def mac() -> Column[bytes]:
    """The MAC of the row, which `row_macs.py` writes; an empty one fits no row."""
    return Column(MAC, LargeBinary, info={UNSIGNED: True})


def timestamp() -> Column[datetime]:
    return Column("timestamp", UtcDateTime, nullable=False, server_default=func.now())


def received() -> Column[datetime]:
    """When the server got a record whose `timestamp` its sender may set; empty for records that no server received."""
    return Column("received", UtcDateTime)


def processed() -> Column[bool]:
    return Column("processed", Boolean, nullable=False, server_default=false(), index=True, info={UNSIGNED: True})


def sender() -> tuple[Column[str], Column[str]]:
    """The person a record is about (a keyed hash, for consent and erasure), and the user or key that sent it."""
    return Column("subject", String, index=True), Column("recorded_by", String, index=True)


def new_table(name: str, *parts: Any) -> Table:
    return Table(name, metadata, *parts, sqlite_autoincrement=True)  # never reuse a number


@cache
def encrypted_columns(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if column.info.get("encrypted"))


@cache
def time_columns(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if isinstance(column.type, UtcDateTime))


def encrypted_tables() -> tuple[Table, ...]:
    return tuple(table for table in metadata.sorted_tables if encrypted_columns(table))


@cache
def natural_id(table: Table) -> str:
    """The id a record carries through the loop (`feedback_id`), the second column of every encrypted table."""
    return str(table.columns.keys()[1])


def id_column(table: Table) -> Column[str]:
    return table.c[natural_id(table)]
