"""The first schema: every table that medloop has.

Frozen: it says what was created then, in its own words. A later change of the tables is a new file beside this one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True)
Columns = list[sa.Column[Any]]


def columns(kind: Any, *names: str, null: bool = False, default: Any = None) -> Columns:
    return [sa.Column(name, kind, nullable=null, server_default=default) for name in names]


def text(*names: str, null: bool = False) -> Columns:
    return columns(sa.String(), *names, null=null)


def letter(*names: str, null: bool = False) -> Columns:
    return columns(sa.String(1), *names, null=null)


def digest(*names: str) -> Columns:
    return columns(sa.String(64), *names)


def sealed(*names: str, null: bool = False) -> Columns:
    return columns(sa.LargeBinary(), *names, null=null)


def number(*names: str, null: bool = False) -> Columns:
    return columns(sa.Integer(), *names, null=null)


def share(*names: str, null: bool = False) -> Columns:
    return columns(sa.Float(), *names, null=null)


def json(*names: str) -> Columns:
    return columns(sa.JSON(), *names)


def switch(*names: str) -> Columns:
    return columns(sa.Boolean(), *names, default=sa.false())


def time(*names: str, null: bool = False) -> Columns:
    return columns(TIME, *names, null=null)


def recorded() -> Columns:
    return columns(TIME, "timestamp", default=sa.func.now())


def create(
    name: str,
    *parts: sa.Column[Any],
    unique: Sequence[str] = (),
    together: Sequence[tuple[str, ...]] = (),
    checks: Mapping[str, str] | None = None,
    keys: Mapping[str, str] | None = None,
    indexes: Sequence[str | tuple[str, ...]] = (),
) -> None:
    """A table with a rising number as its primary key; constraints and indexes get the names of the naming convention."""
    constraints: list[sa.Constraint] = [sa.PrimaryKeyConstraint("id", name=f"pk_{name}")]
    for columns_ in [*((column,) for column in unique), *together]:
        constraints.append(sa.UniqueConstraint(*columns_, name=f"uq_{name}_{'_'.join(columns_)}"))
    for check, condition in (checks or {}).items():
        constraints.append(sa.CheckConstraint(condition, name=op.f(f"ck_{name}_{check}")))
    for column, target in (keys or {}).items():
        constraints.append(sa.ForeignKeyConstraint([column], [target], name=f"fk_{name}_{column}"))
    serial = sa.Column("id", SERIAL, autoincrement=True, nullable=False)
    op.create_table(name, serial, *parts, *constraints, sqlite_autoincrement=True)
    for index in indexes:
        names = [index] if isinstance(index, str) else list(index)
        op.create_index(f"ix_{name}_{'_'.join(names)}", name, names)


def create_sealed(name: str, *parts: sa.Column[Any], indexes: Sequence[str | tuple[str, ...]] = (), **more: Any) -> None:
    """A table with encrypted columns: each row names its data key and whether a dataset has taken it."""
    own = (*switch("processed"), *text("key_id"))
    create(name, *parts, *own, keys={"key_id": "data_keys.key_id"}, indexes=(*indexes, "processed", "key_id"), **more)


def upgrade() -> None:
    core()
    feedback()
    review()
    access()
    privacy()
    artifacts()


def core() -> None:
    op.create_table(
        "audit_log",
        sa.Column("seq", SERIAL, autoincrement=False, nullable=False),
        *text("timestamp", "actor", "action", "subject"),
        *columns(sa.Text(), "detail"),
        *digest("hash"),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_log"),
    )
    create(
        "data_keys",
        *text("key_id", "purpose"),
        *sealed("wrapped"),
        *text("master_id"),
        *time("created"),
        unique=["key_id"],
        checks={"purpose": "purpose IN ('data', 'audit')"},
    )


def feedback() -> None:
    create_sealed(
        "rlhf_feedback",
        *text("feedback_id", "session_id", "agent_name"),
        *sealed("user_query", "agent_response"),
        *number("rating", null=True),
        *text("thumb", "feedback_type", null=True),
        *json("axes"),
        *switch("critical"),
        *text("clinician_id", null=True),
        *sealed("comments", null=True),
        *json("consent"),
        *text("model_version", "trace_id", "supersedes", "subject", "recorded_by", null=True),
        *recorded(),
        unique=["feedback_id"],
        checks={
            "rating": "rating >= 1 AND rating <= 5",
            "thumb": "thumb IN ('up', 'down')",
            "feedback_type": "feedback_type IN ('positive', 'negative', 'neutral')",
        },
        indexes=["session_id", "clinician_id", "trace_id", "subject", "recorded_by"],
    )
    create_sealed(
        "rlhf_preferences",
        *text("preference_id"),
        *sealed("prompt", "response_a", "response_b"),
        *letter("preferred"),
        *letter("shown_first", null=True),
        *text("clinician_id", null=True),
        *sealed("comments", null=True),
        *json("consent"),
        *text("trace_id", "supersedes", "session_id", "model_a", "model_b", null=True),
        *json("axes"),
        *text("subject", "recorded_by", null=True),
        *recorded(),
        unique=["preference_id"],
        checks={"preferred": "preferred IN ('a', 'b')", "shown_first": "shown_first IN ('a', 'b')"},
        indexes=["clinician_id", "trace_id", "session_id", "subject", "recorded_by"],
    )
    create_sealed(
        "rlhf_corrections",
        *text("correction_id"),
        *text("feedback_id", "trace_id", null=True),
        *sealed("prompt", "original", "golden"),
        *sealed("reason", null=True),
        *text("clinician_id", null=True),
        *json("consent"),
        *text("supersedes", "subject", "recorded_by", null=True),
        *recorded(),
        unique=["correction_id"],
        indexes=["feedback_id", "trace_id", "clinician_id", "subject", "recorded_by"],
    )
    create_sealed(
        "traces",
        *text("trace_id", "session_id", "agent_name"),
        *sealed("conversation"),
        *text("model_version"),
        *text("snapshot", null=True),
        *sealed("contexts"),
        *text("user_hash", null=True),
        *share("sampling_share", null=True),
        *recorded(),
        *sealed("meta"),
        unique=["trace_id"],
        indexes=["session_id", "user_hash"],
    )
    create_sealed(
        "scored_answers",
        *text("score_id", "sample_id", "version"),
        *share("value", null=True),
        *sealed("reward"),
        unique=["score_id"],
        indexes=["sample_id", "version"],
    )
    create_sealed(
        "incidents",
        *text("incident_id", "record_id"),
        *text("model_version", null=True),
        *text("state"),
        *text("opened_by", null=True),
        *recorded(),
        *text("closed_by", null=True),
        *time("closed", null=True),
        *sealed("note", null=True),
        unique=["incident_id"],
        checks={"state": "state IN ('open', 'closed')"},
        indexes=["record_id", "model_version", "state"],
    )
    create_sealed(
        "red_team_cases",
        *text("case_id", "record_id"),
        *text("incident_id", null=True),
        *sealed("prompt", "answer"),
        *sealed("reason", null=True),
        *recorded(),
        unique=["case_id"],
        indexes=["record_id", "incident_id"],
    )
    create(
        "retrain_triggers",
        *text("trigger_id", "reason"),
        *json("evidence"),
        *number("records"),
        *text("job_id", null=True),
        *recorded(),
        unique=["trigger_id"],
    )


def review() -> None:
    create_sealed(
        "queue_items",
        *text("item_id", "kind"),
        *text("trace_id", null=True),
        *sealed("content"),
        *share("priority"),
        *json("reasons"),
        *text("stratum"),
        *number("raters"),
        *text("state"),
        *recorded(),
        unique=["item_id"],
        checks={"kind": "kind IN ('rate', 'compare', 'correct')", "state": "state IN ('open', 'disputed', 'done')"},
        indexes=["trace_id", ("state", "stratum", "priority")],
    )
    create(
        "queue_turns",
        *text("item_id", "rater", "state"),
        *time("until"),
        *letter("shown_first", null=True),
        *switch("adjudicates"),
        *text("record_id", null=True),
        *recorded(),
        together=[("item_id", "rater")],
        checks={"state": "state IN ('held', 'done', 'skipped')"},
        keys={"item_id": "queue_items.item_id"},
        indexes=["rater", "record_id"],
    )
    create(
        "quarantine",
        *text("record_id", "kind"),
        *share("doubt"),
        *json("reasons"),
        *text("state"),
        *text("decided_by", null=True),
        *time("decided", null=True),
        *recorded(),
        unique=["record_id"],
        checks={"state": "state IN ('waiting', 'released', 'refused')"},
        indexes=["state"],
    )


def access() -> None:
    create(
        "users",
        *text("user_id", "name", "role"),
        *text("password", null=True),
        *time("created"),
        *switch("disabled"),
        unique=["user_id", "name"],
        checks={"role": "role IN ('clinician', 'annotator', 'engineer', 'auditor', 'admin')"},
    )
    create(
        "api_keys",
        *text("api_key_id", "user_id"),
        *digest("sha256"),
        *json("scopes"),
        *time("created"),
        *time("expires", "last_used", "revoked", null=True),
        unique=["api_key_id", "sha256"],
        keys={"user_id": "users.user_id"},
        indexes=["user_id"],
    )
    create(
        "sessions",
        *digest("sha256"),
        *text("user_id", "csrf"),
        *time("created", "expires"),
        unique=["sha256"],
        keys={"user_id": "users.user_id"},
        indexes=["user_id", "expires"],
    )
    create(
        "idempotency_keys",
        *text("caller", "key"),
        *digest("fingerprint"),
        *number("status"),
        *json("answer"),
        *time("created"),
        together=[("caller", "key")],
        indexes=["created"],
    )


def privacy() -> None:
    create(
        "consents",
        *text("consent_id", "subject"),
        *json("purposes"),
        *columns(sa.Boolean(), "granted"),
        *text("text_version"),
        *text("recorded_by", null=True),
        *recorded(),
        unique=["consent_id"],
        indexes=["subject"],
    )
    create(
        "tombstones",
        *text("record_id", "kind", "erasure_id", "reason", "erased_by", "proof"),
        *recorded(),
        unique=["record_id"],
        indexes=["erasure_id"],
    )


def artifacts() -> None:
    create(
        "artifacts",
        *text("kind", "path", "sha256"),
        *json("card"),
        *time("created"),
        together=[("kind", "path", "sha256")],
        indexes=["sha256"],
    )
    create(
        "artifact_flags",
        *text("sha256", "flag", "reason"),
        *recorded(),
        together=[("sha256", "flag", "reason")],
        indexes=["sha256"],
    )
    create("lineage", *text("dataset", "record_id"), together=[("dataset", "record_id")], indexes=["record_id"])
