"""The steps of the cycles of the loop: one row for each thing that happened."""

from sqlalchemy import JSON, CheckConstraint, Column, String

from medloop.store.tables.columns import mac, new_table, serial, timestamp

cycle_events = new_table(
    "cycle_events", serial(), Column("event_id", String, nullable=False, unique=True),
    Column("cycle", String, nullable=False, index=True), Column("step", String, nullable=False),
    Column("event", String, nullable=False), Column("inputs", String, nullable=False), Column("outputs", JSON, nullable=False),
    Column("reason", String, nullable=False), Column("decided_by", String, nullable=False), timestamp(), mac(),
    CheckConstraint("event IN ('started', 'done', 'waiting', 'failed', 'ended')", name="event"),
)  # fmt: skip
