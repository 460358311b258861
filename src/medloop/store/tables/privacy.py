"""Consents, the tombstones of erased records, and erasures that wait for a second person."""

from sqlalchemy import JSON, Boolean, Column, String, false

from medloop.store.tables.columns import UtcDateTime, mac, new_table, serial, timestamp

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

erasure_requests = new_table(
    "erasure_requests", serial(), Column("request_id", String, nullable=False, unique=True), Column("subject", String),
    Column("records", JSON, nullable=False), Column("reason", String, nullable=False),
    Column("keep_jobs", Boolean, nullable=False, server_default=false()), Column("requested_by", String, nullable=False),
    Column("ids_sha256", String(64), nullable=False),  # of the set of records that two people agree on
    Column("ids", JSON, nullable=False), Column("evidence", JSON, nullable=False),  # by table, and how many of each
    timestamp(), Column("approved_by", String), Column("approved", UtcDateTime), Column("refused_by", String),
    Column("refused", UtcDateTime), Column("note", String),
    Column("erasure_id", String),  # the erasure that carried it out
    mac(),
)  # fmt: skip
