"""First tables: audit log, data keys, feedback, preferences, corrections, traces, artifacts."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True)


def serial() -> sa.Column[int]:
    return sa.Column("id", SERIAL, autoincrement=True, nullable=False)


def common(table: str) -> tuple[sa.schema.SchemaItem, ...]:
    """What every table of records ends with."""
    return (
        sa.Column("processed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
        sa.ForeignKeyConstraint(["key_id"], ["data_keys.key_id"], name=f"fk_{table}_key_id"),
    )


def timestamp() -> sa.Column[datetime]:
    return sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "audit_log",
        sa.Column("seq", SERIAL, autoincrement=False, nullable=False),
        sa.Column("timestamp", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_log"),
    )
    op.create_table(
        "data_keys",
        serial(),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column("master_id", sa.String(), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_data_keys"),
        sa.UniqueConstraint("key_id", name="uq_data_keys_key_id"),
        sa.CheckConstraint("purpose IN ('data', 'audit')", name=op.f("ck_data_keys_purpose")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "rlhf_feedback",
        serial(),
        sa.Column("feedback_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent_name", sa.String(), nullable=False),
        sa.Column("user_query", sa.LargeBinary(), nullable=False),
        sa.Column("agent_response", sa.LargeBinary(), nullable=False),
        sa.Column("rating", sa.Integer()),
        sa.Column("thumb", sa.String()),
        sa.Column("feedback_type", sa.String()),
        sa.Column("axes", sa.JSON(), nullable=False),
        sa.Column("critical", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("clinician_id", sa.String()),
        sa.Column("comments", sa.LargeBinary()),
        sa.Column("consent", sa.JSON(), nullable=False),
        sa.Column("model_version", sa.String()),
        sa.Column("trace_id", sa.String()),
        sa.Column("supersedes", sa.String()),
        timestamp(),
        *common("rlhf_feedback"),
        sa.UniqueConstraint("feedback_id", name="uq_rlhf_feedback_feedback_id"),
        sa.CheckConstraint("rating >= 1 AND rating <= 5", name=op.f("ck_rlhf_feedback_rating")),
        sa.CheckConstraint("thumb IN ('up', 'down')", name=op.f("ck_rlhf_feedback_thumb")),
        sa.CheckConstraint("feedback_type IN ('positive', 'negative', 'neutral')", name=op.f("ck_rlhf_feedback_feedback_type")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "rlhf_preferences",
        serial(),
        sa.Column("preference_id", sa.String(), nullable=False),
        sa.Column("prompt", sa.LargeBinary(), nullable=False),
        sa.Column("response_a", sa.LargeBinary(), nullable=False),
        sa.Column("response_b", sa.LargeBinary(), nullable=False),
        sa.Column("preferred", sa.String(1), nullable=False),
        sa.Column("shown_first", sa.String(1)),
        sa.Column("clinician_id", sa.String()),
        sa.Column("comments", sa.LargeBinary()),
        sa.Column("consent", sa.JSON(), nullable=False),
        sa.Column("trace_id", sa.String()),
        sa.Column("supersedes", sa.String()),
        timestamp(),
        *common("rlhf_preferences"),
        sa.UniqueConstraint("preference_id", name="uq_rlhf_preferences_preference_id"),
        sa.CheckConstraint("preferred IN ('a', 'b')", name=op.f("ck_rlhf_preferences_preferred")),
        sa.CheckConstraint("shown_first IN ('a', 'b')", name=op.f("ck_rlhf_preferences_shown_first")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "rlhf_corrections",
        serial(),
        sa.Column("correction_id", sa.String(), nullable=False),
        sa.Column("feedback_id", sa.String()),
        sa.Column("trace_id", sa.String()),
        sa.Column("prompt", sa.LargeBinary(), nullable=False),
        sa.Column("original", sa.LargeBinary(), nullable=False),
        sa.Column("golden", sa.LargeBinary(), nullable=False),
        sa.Column("reason", sa.LargeBinary()),
        sa.Column("clinician_id", sa.String()),
        sa.Column("consent", sa.JSON(), nullable=False),
        sa.Column("supersedes", sa.String()),
        timestamp(),
        *common("rlhf_corrections"),
        sa.UniqueConstraint("correction_id", name="uq_rlhf_corrections_correction_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "traces",
        serial(),
        sa.Column("trace_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent_name", sa.String(), nullable=False),
        sa.Column("conversation", sa.LargeBinary(), nullable=False),
        sa.Column("model_version", sa.String(), nullable=False),
        sa.Column("snapshot", sa.String()),
        sa.Column("contexts", sa.LargeBinary(), nullable=False),
        sa.Column("user_hash", sa.String()),
        sa.Column("sampling_share", sa.Float()),
        timestamp(),
        sa.Column("meta", sa.LargeBinary(), nullable=False),
        *common("traces"),
        sa.UniqueConstraint("trace_id", name="uq_traces_trace_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "artifacts",
        serial(),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("card", sa.JSON(), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_artifacts"),
        sa.UniqueConstraint("kind", "path", "sha256", name="uq_artifacts_kind_path_sha256"),
        sqlite_autoincrement=True,
    )
    for table, columns in {
        "rlhf_feedback": ("session_id", "clinician_id", "trace_id", "processed", "key_id"),
        "rlhf_preferences": ("clinician_id", "trace_id", "processed", "key_id"),
        "rlhf_corrections": ("feedback_id", "trace_id", "clinician_id", "processed", "key_id"),
        "traces": ("session_id", "user_hash", "processed", "key_id"),
        "artifacts": ("sha256",),
    }.items():
        for column in columns:
            op.create_index(f"ix_{table}_{column}", table, [column])
