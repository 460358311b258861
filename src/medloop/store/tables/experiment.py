"""Experiments on live traffic: their plans, what happened to them, and a number about each record of each user. No texts."""

from sqlalchemy import JSON, BigInteger, CheckConstraint, Column, Float, Index, String, UniqueConstraint

from medloop.store.tables.columns import UtcDateTime, mac, new_table, serial, timestamp

experiments = new_table(
    "experiments", serial(), Column("experiment_id", String, nullable=False, unique=True),
    Column("site", String, nullable=False, index=True), Column("salt", String(64), nullable=False),  # draws the arms
    Column("plan", JSON, nullable=False), timestamp(), mac(),
)  # fmt: skip

experiment_events = new_table(
    "experiment_events", serial(), Column("event_id", String, nullable=False, unique=True),
    Column("experiment_id", String, nullable=False, index=True), Column("event", String, nullable=False),
    Column("detail", JSON, nullable=False), Column("by", String, nullable=False), timestamp(), mac(),
    CheckConstraint(
        "event IN ('started', 'ramped', 'stopped', 'decided', 'rolled_back', 'rollback_failed')", name="event",
    ),
)  # fmt: skip

# An erasure empties `unit`, `value` and `record_id` and sets `erased`; the row stays, so that a report can say how many are gone.
experiment_observations = new_table(
    "experiment_observations", serial(), Column("experiment_id", String, nullable=False), Column("site", String, nullable=False),
    Column("unit", String), Column("arm", String, nullable=False), Column("metric", String, nullable=False),
    Column("value", Float), Column("record_id", String, index=True), Column("language", String, nullable=False),
    Column("stratum", String, nullable=False), Column("erased", UtcDateTime), timestamp(), mac(),
    UniqueConstraint("experiment_id", "record_id", "metric"), Index(None, "experiment_id", "id"),
    CheckConstraint("arm IN ('champion', 'challenger')", name="arm"),
)  # fmt: skip

# How far an experiment has read traces and feedback: one row each.
experiment_cursors = new_table(
    "experiment_cursors", serial(), Column("experiment_id", String, nullable=False, unique=True),
    Column("trace_row", BigInteger, nullable=False), Column("feedback_row", BigInteger, nullable=False),
)  # fmt: skip
