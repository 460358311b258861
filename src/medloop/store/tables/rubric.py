"""Criteria from corrections. Their words and the question are encrypted."""

from sqlalchemy import Boolean, CheckConstraint, Column, Float, String

from medloop.store.tables.columns import UtcDateTime, encrypted, key_columns, mac, new_table, serial, timestamp

rubric_criteria = new_table(
    "rubric_criteria", serial(), Column("criterion_id", String, nullable=False, unique=True),
    Column("correction_id", String, nullable=False, index=True), encrypted("content"), Column("points", Float, nullable=False),
    Column("critical", Boolean, nullable=False), Column("scope", String, nullable=False),
    Column("language", String, nullable=False), Column("state", String, nullable=False, index=True),
    Column("maker", String, nullable=False),
    Column("author", String, nullable=False, index=True), Column("supersedes", String), Column("reviewer", String),
    Column("reviewed", UtcDateTime), timestamp(), *key_columns(), mac(),
    CheckConstraint("state IN ('draft', 'accepted', 'dropped', 'replaced')", name="state"),
)  # fmt: skip
