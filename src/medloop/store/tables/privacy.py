"""Consents, and the tombstones of erased records."""

from sqlalchemy import JSON, Boolean, Column, String

from medloop.store.tables.columns import mac, new_table, serial, timestamp

consents = new_table(
    "consents", serial(), Column("consent_id", String, nullable=False, unique=True),
    Column("subject", String, nullable=False, index=True), Column("purposes", JSON, nullable=False),
    Column("granted", Boolean, nullable=False), Column("text_version", String, nullable=False), Column("recorded_by", String),
    timestamp(), mac(),
)  # fmt: skip

tombstones = new_table(
    "tombstones",
    serial(),
    Column("record_id", String, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("erasure_id", String, nullable=False, index=True),
    Column("reason", String, nullable=False),
    Column("erased_by", String, nullable=False),
    Column("proof", String, nullable=False),  # hash of the encrypted row that was erased
    timestamp(),
    mac(),
)
