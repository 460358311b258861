"""The tables, as they are after the last migration. A change here needs a migration; a test compares the two.

Columns that hold what people wrote are blobs: AES-256-GCM under the data key named in the row's `key_id`
(`crypto.py`). Ids, names of agents and models, numbers and times stay readable, for queries need them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
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


class UtcDateTime(TypeDecorator[datetime]):
    """Times with a zone in, UTC out; SQLite keeps no zone, so none is handed to it."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _serial() -> Column[int]:
    """Rising numbers; on SQLite only `INTEGER` keys count by themselves."""
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def _encrypted(name: str, *, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable, info={"encrypted": True})


def _key_id() -> Column[str]:
    return Column("key_id", String, ForeignKey("data_keys.key_id"), nullable=False, index=True)


def _timestamp() -> Column[datetime]:
    return Column("timestamp", UtcDateTime, nullable=False, server_default=func.now())


def _processed() -> Column[bool]:
    return Column("processed", Boolean, nullable=False, server_default=false(), index=True)


def _sender() -> tuple[Column[str], Column[str]]:
    """Whom a record is about (a keyed hash, for consent and erasure), and which user or key sent it."""
    return Column("subject", String, index=True), Column("recorded_by", String, index=True)


def _table(name: str, *parts: Any) -> Table:
    return Table(name, metadata, *parts, sqlite_autoincrement=True)  # never hand out a number twice


audit_log = Table(
    "audit_log",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    # Texts, not types: the hash covers exactly what is stored.
    Column("timestamp", String, nullable=False),
    Column("actor", String, nullable=False),
    Column("action", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("detail", Text, nullable=False),
    Column("hash", String(64), nullable=False),
)

data_keys = _table(
    "data_keys",
    _serial(),
    Column("key_id", String, nullable=False, unique=True),
    Column("purpose", String, nullable=False),
    Column("wrapped", LargeBinary, nullable=False),
    Column("master_id", String, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    CheckConstraint("purpose IN ('data', 'audit')", name="purpose"),
)

rlhf_feedback = _table(
    "rlhf_feedback",
    _serial(),
    Column("feedback_id", String, nullable=False, unique=True),
    Column("session_id", String, nullable=False, index=True),
    Column("agent_name", String, nullable=False),
    _encrypted("user_query"),
    _encrypted("agent_response"),
    Column("rating", Integer),
    Column("thumb", String),
    Column("feedback_type", String),
    Column("axes", JSON, nullable=False),
    Column("critical", Boolean, nullable=False, server_default=false()),
    Column("clinician_id", String, index=True),
    _encrypted("comments", nullable=True),
    Column("consent", JSON, nullable=False),
    Column("model_version", String),
    Column("trace_id", String, index=True),
    Column("supersedes", String),
    *_sender(),
    _timestamp(),
    _processed(),
    _key_id(),
    CheckConstraint("rating >= 1 AND rating <= 5", name="rating"),
    CheckConstraint("thumb IN ('up', 'down')", name="thumb"),
    CheckConstraint("feedback_type IN ('positive', 'negative', 'neutral')", name="feedback_type"),
)

rlhf_preferences = _table(
    "rlhf_preferences",
    _serial(),
    Column("preference_id", String, nullable=False, unique=True),
    _encrypted("prompt"),
    _encrypted("response_a"),
    _encrypted("response_b"),
    Column("preferred", String(1), nullable=False),
    Column("shown_first", String(1)),
    Column("clinician_id", String, index=True),
    _encrypted("comments", nullable=True),
    Column("consent", JSON, nullable=False),
    Column("trace_id", String, index=True),
    Column("supersedes", String),
    Column("session_id", String, index=True),
    Column("model_a", String),
    Column("model_b", String),
    Column("axes", JSON, nullable=False),
    *_sender(),
    _timestamp(),
    _processed(),
    _key_id(),
    CheckConstraint("preferred IN ('a', 'b')", name="preferred"),
    CheckConstraint("shown_first IN ('a', 'b')", name="shown_first"),
)

rlhf_corrections = _table(
    "rlhf_corrections",
    _serial(),
    Column("correction_id", String, nullable=False, unique=True),
    Column("feedback_id", String, index=True),
    Column("trace_id", String, index=True),
    _encrypted("prompt"),
    _encrypted("original"),
    _encrypted("golden"),
    _encrypted("reason", nullable=True),
    Column("clinician_id", String, index=True),
    Column("consent", JSON, nullable=False),
    Column("supersedes", String),
    *_sender(),
    _timestamp(),
    _processed(),
    _key_id(),
)

traces = _table(
    "traces",
    _serial(),
    Column("trace_id", String, nullable=False, unique=True),
    Column("session_id", String, nullable=False, index=True),
    Column("agent_name", String, nullable=False),
    _encrypted("conversation"),
    Column("model_version", String, nullable=False),
    Column("snapshot", String),
    _encrypted("contexts"),
    Column("user_hash", String, index=True),
    Column("sampling_share", Float),
    _timestamp(),
    _encrypted("meta"),
    _processed(),
    _key_id(),
)

scored_answers = _table(
    "scored_answers",
    _serial(),
    Column("score_id", String, nullable=False, unique=True),
    Column("sample_id", String, nullable=False, index=True),
    Column("version", String, nullable=False, index=True),
    Column("value", Float),
    _encrypted("reward"),
    _processed(),
    _key_id(),
)

users = _table(
    "users",
    _serial(),
    Column("user_id", String, nullable=False, unique=True),
    Column("name", String, nullable=False, unique=True),
    Column("role", String, nullable=False),
    Column("password", String),  # a slow hash with its parameters; none: keys only
    Column("created", UtcDateTime, nullable=False),
    Column("disabled", Boolean, nullable=False, server_default=false()),
    CheckConstraint("role IN ('clinician', 'annotator', 'engineer', 'auditor', 'admin')", name="role"),
)

api_keys = _table(
    "api_keys",
    _serial(),
    Column("api_key_id", String, nullable=False, unique=True),
    Column("user_id", String, ForeignKey("users.user_id"), nullable=False, index=True),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("scopes", JSON, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("expires", UtcDateTime),
    Column("last_used", UtcDateTime),
    Column("revoked", UtcDateTime),
)

sessions = _table(
    "sessions",
    _serial(),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("user_id", String, ForeignKey("users.user_id"), nullable=False, index=True),
    Column("csrf", String, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("expires", UtcDateTime, nullable=False, index=True),
)

idempotency_keys = _table(
    "idempotency_keys",
    _serial(),
    Column("caller", String, nullable=False),
    Column("key", String, nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("answer", JSON, nullable=False),  # ids and times only, never what somebody wrote
    Column("created", UtcDateTime, nullable=False, index=True),
    UniqueConstraint("caller", "key"),
)

incidents = _table(
    "incidents",
    _serial(),
    Column("incident_id", String, nullable=False, unique=True),
    Column("record_id", String, nullable=False, index=True),
    Column("model_version", String, index=True),
    Column("state", String, nullable=False, index=True),
    Column("opened_by", String),
    _timestamp(),
    Column("closed_by", String),
    Column("closed", UtcDateTime),
    _encrypted("note", nullable=True),
    _processed(),
    _key_id(),
    CheckConstraint("state IN ('open', 'closed')", name="state"),
)

red_team_cases = _table(
    "red_team_cases",
    _serial(),
    Column("case_id", String, nullable=False, unique=True),
    Column("record_id", String, nullable=False, index=True),
    Column("incident_id", String, index=True),
    _encrypted("prompt"),
    _encrypted("answer"),
    _encrypted("reason", nullable=True),
    _timestamp(),
    _processed(),
    _key_id(),
)

consents = _table(
    "consents",
    _serial(),
    Column("consent_id", String, nullable=False, unique=True),
    Column("subject", String, nullable=False, index=True),
    Column("purposes", JSON, nullable=False),
    Column("granted", Boolean, nullable=False),
    Column("text_version", String, nullable=False),
    Column("recorded_by", String),
    _timestamp(),
)

quarantine = _table(
    "quarantine",
    _serial(),
    Column("record_id", String, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("doubt", Float, nullable=False),
    Column("reasons", JSON, nullable=False),
    Column("state", String, nullable=False, index=True),
    Column("decided_by", String),
    Column("decided", UtcDateTime),
    _timestamp(),
    CheckConstraint("state IN ('waiting', 'released', 'refused')", name="state"),
)

tombstones = _table(
    "tombstones",
    _serial(),
    Column("record_id", String, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("erasure_id", String, nullable=False, index=True),
    Column("reason", String, nullable=False),
    Column("erased_by", String, nullable=False),
    Column("proof", String, nullable=False),  # hash of the sealed row that was there
    _timestamp(),
)

lineage = _table(
    "lineage",
    _serial(),
    Column("dataset", String, nullable=False),
    Column("record_id", String, nullable=False, index=True),
    UniqueConstraint("dataset", "record_id"),
)

artifact_flags = _table(
    "artifact_flags",
    _serial(),
    Column("sha256", String, nullable=False, index=True),
    Column("flag", String, nullable=False),
    Column("reason", String, nullable=False),
    _timestamp(),
    UniqueConstraint("sha256", "flag", "reason"),
)

queue_items = _table(
    "queue_items",
    _serial(),
    Column("item_id", String, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("trace_id", String, index=True),
    _encrypted("content"),
    Column("priority", Float, nullable=False),
    Column("reasons", JSON, nullable=False),
    Column("stratum", String, nullable=False),
    Column("raters", Integer, nullable=False),
    Column("state", String, nullable=False),
    _timestamp(),
    _processed(),
    _key_id(),
    CheckConstraint("kind IN ('rate', 'compare', 'correct')", name="kind"),
    CheckConstraint("state IN ('open', 'disputed', 'done')", name="state"),
    Index(None, "state", "stratum", "priority"),  # the next item of a stratum is the end of one range
)

queue_turns = _table(
    "queue_turns",
    _serial(),
    Column("item_id", String, ForeignKey("queue_items.item_id"), nullable=False),
    Column("rater", String, nullable=False, index=True),
    Column("state", String, nullable=False),
    Column("until", UtcDateTime, nullable=False),
    Column("shown_first", String(1)),
    Column("adjudicates", Boolean, nullable=False, server_default=false()),
    Column("record_id", String, index=True),
    _timestamp(),
    UniqueConstraint("item_id", "rater"),
    CheckConstraint("state IN ('held', 'done', 'skipped')", name="state"),
)

retrain_triggers = _table(
    "retrain_triggers",
    _serial(),
    Column("trigger_id", String, nullable=False, unique=True),
    Column("reason", String, nullable=False),
    Column("evidence", JSON, nullable=False),
    Column("records", Integer, nullable=False),
    Column("job_id", String),
    _timestamp(),
)

artifacts = _table(
    "artifacts",
    _serial(),
    Column("kind", String, nullable=False),
    Column("path", String, nullable=False),
    Column("sha256", String, nullable=False),
    Column("card", JSON, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    UniqueConstraint("kind", "path", "sha256"),
    Index(None, "sha256"),
)


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
