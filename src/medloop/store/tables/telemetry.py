"""How far an exchange with another system has come, and which records it was given; ids and times, never a text."""

from sqlalchemy import JSON, Column, String, UniqueConstraint

from medloop.store.tables.columns import new_table, serial, timestamp

# How far a reader has come, by its name: an import from Langfuse, an export of traces.
sync_cursors = new_table(
    "sync_cursors", serial(), Column("name", String, nullable=False, unique=True), Column("position", JSON, nullable=False),
)  # fmt: skip

# What a destination has received, under which id it knows the record; an erased record is deleted there by this row.
sent_records = new_table(
    "sent_records", serial(), Column("record_id", String, nullable=False, index=True),
    Column("destination", String, nullable=False), Column("kind", String, nullable=False),
    Column("remote_id", String, nullable=False, index=True), timestamp(), UniqueConstraint("destination", "record_id"),
)  # fmt: skip
