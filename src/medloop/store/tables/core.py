"""The audit log and the data keys, on which every other table stands, and what is changed while the server runs."""

from sqlalchemy import JSON, BigInteger, CheckConstraint, Column, Integer, LargeBinary, String, Table, Text, UniqueConstraint

from medloop.store.tables.columns import UtcDateTime, mac, metadata, new_table, serial, timestamp

audit_log = Table(
    "audit_log",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    # Plain text columns, so that the hash covers exactly what is stored.
    Column("timestamp", String, nullable=False),
    Column("actor", String, nullable=False),
    Column("action", String, nullable=False, index=True),  # every read of rows that decide asks what the log announced
    Column("subject", String, nullable=False),
    Column("detail", Text, nullable=False),
    Column("hash", String(64), nullable=False),
)

data_keys = new_table(
    "data_keys", serial(), Column("key_id", String, nullable=False, unique=True), Column("purpose", String, nullable=False),
    Column("wrapped", LargeBinary, nullable=False), Column("master_id", String, nullable=False),
    Column("created", UtcDateTime, nullable=False), CheckConstraint("purpose IN ('data', 'audit', 'texts')", name="purpose"),
)  # fmt: skip

# The versions of the guidelines for raters: text for people, never about a patient.
guidelines = new_table(
    "guidelines", serial(), Column("guidelines_id", String, nullable=False, unique=True),  # en-3
    Column("language", String, nullable=False), Column("version", Integer, nullable=False),
    Column("text", Text, nullable=False), Column("edited_by", String, nullable=False), timestamp(), mac(),
    UniqueConstraint("language", "version"),
)  # fmt: skip

workspace_settings = new_table(
    "workspace_settings", serial(), Column("name", String, nullable=False, unique=True), Column("value", JSON, nullable=False),
    mac(),
)  # fmt: skip
