"""Users, API keys, sessions, and the idempotency keys of requests."""

from sqlalchemy import JSON, Boolean, CheckConstraint, Column, ForeignKey, Integer, String, UniqueConstraint, false

from medloop.store.tables.columns import UNSIGNED, UtcDateTime, mac, new_table, serial

users = new_table(
    "users",
    serial(),
    Column("user_id", String, nullable=False, unique=True),
    Column("name", String, nullable=False, unique=True),
    Column("role", String, nullable=False),
    Column("password", String),  # a slow hash with its parameters; none: keys only
    Column("created", UtcDateTime, nullable=False),
    Column("disabled", Boolean, nullable=False, server_default=false()),
    Column("must_change", Boolean, nullable=False, server_default=false()),  # the password was chosen by somebody else
    Column("requested_by", String),  # the admin whose grant of this role waits for a second one; until then nothing works
    Column("site", String, nullable=False),  # a user of another site reads nothing of the others
    mac(),
    CheckConstraint("role IN ('clinician', 'annotator', 'engineer', 'auditor', 'admin')", name="role"),
)

api_keys = new_table(
    "api_keys", serial(), Column("api_key_id", String, nullable=False, unique=True),
    Column("user_id", String, ForeignKey("users.user_id"), nullable=False, index=True),
    Column("sha256", String(64), nullable=False, unique=True), Column("scopes", JSON, nullable=False),
    Column("created", UtcDateTime, nullable=False), Column("expires", UtcDateTime),
    Column("last_used", UtcDateTime, info={UNSIGNED: True}), Column("revoked", UtcDateTime),
    Column("speaks_for", JSON, nullable=False),  # ids of the clinicians whom it may name
    mac(),
)  # fmt: skip

sessions = new_table(
    "sessions", serial(), Column("sha256", String(64), nullable=False, unique=True),
    Column("user_id", String, ForeignKey("users.user_id"), nullable=False, index=True), Column("csrf", String, nullable=False),
    Column("created", UtcDateTime, nullable=False), Column("expires", UtcDateTime, nullable=False, index=True),
)  # fmt: skip

idempotency_keys = new_table(
    "idempotency_keys",
    serial(),
    Column("caller", String, nullable=False),
    Column("key", String, nullable=False),  # a keyed hash of what the caller sent, which may name somebody
    Column("fingerprint", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("answer", JSON, nullable=False),  # ids and times only, never what somebody wrote
    Column("created", UtcDateTime, nullable=False, index=True),
    UniqueConstraint("caller", "key"),
)
