"""What people review: the queue and the quarantine."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    UniqueConstraint,
    false,
)

from medloop.store.tables.columns import UtcDateTime, encrypted, key_columns, mac, new_table, processed, serial, timestamp

queue_items = new_table(
    "queue_items",
    serial(),
    Column("item_id", String, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("trace_id", String, index=True),
    encrypted("content"),
    Column("priority", Float, nullable=False),
    Column("reasons", JSON, nullable=False),
    Column("stratum", String, nullable=False),
    Column("language", String, nullable=False),
    Column("raters", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("expected", String(1)),  # the better answer of an item that checks its raters; they never see it
    timestamp(),
    processed(),
    *key_columns(),
    CheckConstraint("kind IN ('rate', 'compare', 'correct')", name="kind"),
    CheckConstraint("state IN ('open', 'disputed', 'done')", name="state"),
    Index(None, "state", "stratum", "priority"),  # the next item of a stratum is the last of one index range
)

queue_turns = new_table(
    "queue_turns", serial(), Column("item_id", String, ForeignKey("queue_items.item_id"), nullable=False),
    Column("rater", String, nullable=False, index=True), Column("state", String, nullable=False),
    Column("until", UtcDateTime, nullable=False), Column("shown_first", String(1)),
    Column("adjudicates", Boolean, nullable=False, server_default=false()), Column("record_id", String, index=True),
    timestamp(), UniqueConstraint("item_id", "rater"), CheckConstraint("state IN ('held', 'done', 'skipped')", name="state"),
)  # fmt: skip

# How far the queue has looked by itself: one row.
queue_cursor = new_table(
    "queue_cursor", serial(), Column("feedback_row", BigInteger, nullable=False),
    Column("preference_row", BigInteger, nullable=False), Column("correction_row", BigInteger, nullable=False),
    Column("released", UtcDateTime, nullable=False),
)  # fmt: skip

quarantine = new_table(
    "quarantine", serial(), Column("record_id", String, nullable=False, unique=True), Column("kind", String, nullable=False),
    Column("doubt", Float, nullable=False), Column("reasons", JSON, nullable=False),
    Column("state", String, nullable=False, index=True), Column("decided_by", String), Column("decided", UtcDateTime),
    timestamp(), mac(), CheckConstraint("state IN ('waiting', 'released', 'refused')", name="state"),
)  # fmt: skip
