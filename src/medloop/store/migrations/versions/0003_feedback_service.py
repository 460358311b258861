"""The feedback service: users, keys, sessions, idempotency, incidents, consent, quarantine, erasure, lineage, queue, triggers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "artifact_flags",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("flag", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_artifact_flags")),
        sa.UniqueConstraint("sha256", "flag", "reason", name=op.f("uq_artifact_flags_sha256_flag_reason")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("artifact_flags") as batch_op:
        batch_op.create_index(batch_op.f("ix_artifact_flags_sha256"), ["sha256"])

    op.create_table(
        "consents",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("consent_id", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("purposes", sa.JSON(), nullable=False),
        sa.Column("granted", sa.Boolean(), nullable=False),
        sa.Column("text_version", sa.String(), nullable=False),
        sa.Column("recorded_by", sa.String(), nullable=True),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consents")),
        sa.UniqueConstraint("consent_id", name=op.f("uq_consents_consent_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("consents") as batch_op:
        batch_op.create_index(batch_op.f("ix_consents_subject"), ["subject"])

    op.create_table(
        "idempotency_keys",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("caller", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        sa.UniqueConstraint("caller", "key", name=op.f("uq_idempotency_keys_caller_key")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("idempotency_keys") as batch_op:
        batch_op.create_index(batch_op.f("ix_idempotency_keys_created"), ["created"])

    op.create_table(
        "lineage",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("dataset", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lineage")),
        sa.UniqueConstraint("dataset", "record_id", name=op.f("uq_lineage_dataset_record_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("lineage") as batch_op:
        batch_op.create_index(batch_op.f("ix_lineage_record_id"), ["record_id"])

    op.create_table(
        "quarantine",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("doubt", sa.Float(), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("decided_by", sa.String(), nullable=True),
        sa.Column("decided", TIME, nullable=True),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint("state IN ('waiting', 'released', 'refused')", name=op.f("ck_quarantine_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quarantine")),
        sa.UniqueConstraint("record_id", name=op.f("uq_quarantine_record_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("quarantine") as batch_op:
        batch_op.create_index(batch_op.f("ix_quarantine_state"), ["state"])

    op.create_table(
        "retrain_triggers",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("trigger_id", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retrain_triggers")),
        sa.UniqueConstraint("trigger_id", name=op.f("uq_retrain_triggers_trigger_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tombstones",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("erasure_id", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("erased_by", sa.String(), nullable=False),
        sa.Column("proof", sa.String(), nullable=False),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstones")),
        sa.UniqueConstraint("record_id", name=op.f("uq_tombstones_record_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("tombstones") as batch_op:
        batch_op.create_index(batch_op.f("ix_tombstones_erasure_id"), ["erasure_id"])

    op.create_table(
        "users",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("password", sa.String(), nullable=True),
        sa.Column("created", TIME, nullable=False),
        sa.Column("disabled", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.CheckConstraint("role IN ('clinician', 'annotator', 'engineer', 'auditor', 'admin')", name=op.f("ck_users_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
        sa.UniqueConstraint("user_id", name=op.f("uq_users_user_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "api_keys",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("api_key_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.Column("expires", TIME, nullable=True),
        sa.Column("last_used", TIME, nullable=True),
        sa.Column("revoked", TIME, nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name=op.f("fk_api_keys_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("api_key_id", name=op.f("uq_api_keys_api_key_id")),
        sa.UniqueConstraint("sha256", name=op.f("uq_api_keys_sha256")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("api_keys") as batch_op:
        batch_op.create_index(batch_op.f("ix_api_keys_user_id"), ["user_id"])

    op.create_table(
        "incidents",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("incident_id", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("model_version", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("opened_by", sa.String(), nullable=True),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("closed_by", sa.String(), nullable=True),
        sa.Column("closed", TIME, nullable=True),
        sa.Column("note", sa.LargeBinary(), nullable=True),
        sa.Column("processed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.CheckConstraint("state IN ('open', 'closed')", name=op.f("ck_incidents_state")),
        sa.ForeignKeyConstraint(["key_id"], ["data_keys.key_id"], name=op.f("fk_incidents_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
        sa.UniqueConstraint("incident_id", name=op.f("uq_incidents_incident_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("incidents") as batch_op:
        batch_op.create_index(batch_op.f("ix_incidents_key_id"), ["key_id"])
        batch_op.create_index(batch_op.f("ix_incidents_model_version"), ["model_version"])
        batch_op.create_index(batch_op.f("ix_incidents_processed"), ["processed"])
        batch_op.create_index(batch_op.f("ix_incidents_record_id"), ["record_id"])
        batch_op.create_index(batch_op.f("ix_incidents_state"), ["state"])

    op.create_table(
        "queue_items",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("trace_id", sa.String(), nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("priority", sa.Float(), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("stratum", sa.String(), nullable=False),
        sa.Column("raters", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("processed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.CheckConstraint("kind IN ('rate', 'compare', 'correct')", name=op.f("ck_queue_items_kind")),
        sa.CheckConstraint("state IN ('open', 'disputed', 'done')", name=op.f("ck_queue_items_state")),
        sa.ForeignKeyConstraint(["key_id"], ["data_keys.key_id"], name=op.f("fk_queue_items_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue_items")),
        sa.UniqueConstraint("item_id", name=op.f("uq_queue_items_item_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("queue_items") as batch_op:
        batch_op.create_index(batch_op.f("ix_queue_items_key_id"), ["key_id"])
        batch_op.create_index(batch_op.f("ix_queue_items_processed"), ["processed"])
        batch_op.create_index(batch_op.f("ix_queue_items_state_stratum_priority"), ["state", "stratum", "priority"])
        batch_op.create_index(batch_op.f("ix_queue_items_trace_id"), ["trace_id"])

    op.create_table(
        "red_team_cases",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("case_id", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("incident_id", sa.String(), nullable=True),
        sa.Column("prompt", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("reason", sa.LargeBinary(), nullable=True),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("processed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["data_keys.key_id"], name=op.f("fk_red_team_cases_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_red_team_cases")),
        sa.UniqueConstraint("case_id", name=op.f("uq_red_team_cases_case_id")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("red_team_cases") as batch_op:
        batch_op.create_index(batch_op.f("ix_red_team_cases_incident_id"), ["incident_id"])
        batch_op.create_index(batch_op.f("ix_red_team_cases_key_id"), ["key_id"])
        batch_op.create_index(batch_op.f("ix_red_team_cases_processed"), ["processed"])
        batch_op.create_index(batch_op.f("ix_red_team_cases_record_id"), ["record_id"])

    op.create_table(
        "sessions",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("csrf", sa.String(), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.Column("expires", TIME, nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name=op.f("fk_sessions_user_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("sha256", name=op.f("uq_sessions_sha256")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("sessions") as batch_op:
        batch_op.create_index(batch_op.f("ix_sessions_expires"), ["expires"])
        batch_op.create_index(batch_op.f("ix_sessions_user_id"), ["user_id"])

    op.create_table(
        "queue_turns",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("item_id", sa.String(), nullable=False),
        sa.Column("rater", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("until", TIME, nullable=False),
        sa.Column("shown_first", sa.String(length=1), nullable=True),
        sa.Column("adjudicates", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=True),
        sa.Column("timestamp", TIME, server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint("state IN ('held', 'done', 'skipped')", name=op.f("ck_queue_turns_state")),
        sa.ForeignKeyConstraint(["item_id"], ["queue_items.item_id"], name=op.f("fk_queue_turns_item_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue_turns")),
        sa.UniqueConstraint("item_id", "rater", name=op.f("uq_queue_turns_item_id_rater")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("queue_turns") as batch_op:
        batch_op.create_index(batch_op.f("ix_queue_turns_rater"), ["rater"])
        batch_op.create_index(batch_op.f("ix_queue_turns_record_id"), ["record_id"])

    with op.batch_alter_table("rlhf_corrections") as batch_op:
        batch_op.add_column(sa.Column("subject", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("recorded_by", sa.String(), nullable=True))
        batch_op.create_index(batch_op.f("ix_rlhf_corrections_recorded_by"), ["recorded_by"])
        batch_op.create_index(batch_op.f("ix_rlhf_corrections_subject"), ["subject"])

    with op.batch_alter_table("rlhf_feedback") as batch_op:
        batch_op.add_column(sa.Column("subject", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("recorded_by", sa.String(), nullable=True))
        batch_op.create_index(batch_op.f("ix_rlhf_feedback_recorded_by"), ["recorded_by"])
        batch_op.create_index(batch_op.f("ix_rlhf_feedback_subject"), ["subject"])

    with op.batch_alter_table("rlhf_preferences") as batch_op:
        batch_op.add_column(sa.Column("session_id", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("model_a", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("model_b", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("axes", sa.JSON(), server_default="{}", nullable=False))  # for the rows that are there
        batch_op.add_column(sa.Column("subject", sa.String(), nullable=True))
        batch_op.add_column(sa.Column("recorded_by", sa.String(), nullable=True))
        batch_op.create_index(batch_op.f("ix_rlhf_preferences_recorded_by"), ["recorded_by"])
        batch_op.create_index(batch_op.f("ix_rlhf_preferences_session_id"), ["session_id"])
        batch_op.create_index(batch_op.f("ix_rlhf_preferences_subject"), ["subject"])
    with op.batch_alter_table("rlhf_preferences") as batch_op:
        batch_op.alter_column("axes", server_default=None)
