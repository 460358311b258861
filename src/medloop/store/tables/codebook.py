"""The codebook: revisions of its entries, its versions, its trials, and votes of later feedback. Only entries hold text."""

from sqlalchemy import JSON, BigInteger, Boolean, CheckConstraint, Column, Integer, String, UniqueConstraint

from medloop.store.tables.columns import UtcDateTime, encrypted, key_columns, mac, new_table, serial, timestamp

codebook_entries = new_table(
    "codebook_entries", serial(), Column("revision_id", String, nullable=False, unique=True),
    Column("entry_id", String, nullable=False), Column("revision", Integer, nullable=False),
    Column("kind", String, nullable=False), Column("scope", String, nullable=False), Column("language", String, nullable=False),
    Column("site", String, nullable=False),
    Column("state", String, nullable=False, index=True), encrypted("content"), Column("evidence", JSON, nullable=False),
    Column("supersedes", JSON, nullable=False), Column("author", String, nullable=False), Column("approver", String),
    Column("second", String), Column("override", String), Column("approved", UtcDateTime), Column("expires", UtcDateTime),
    timestamp(), *key_columns(), mac(),
    UniqueConstraint("entry_id", "revision"), CheckConstraint("kind IN ('rule', 'example', 'prompt')", name="kind"),
    CheckConstraint("state IN ('proposed', 'active', 'retired', 'refused')", name="state"),
)  # fmt: skip

codebook_versions = new_table(
    "codebook_versions", serial(), Column("version_id", String, nullable=False, unique=True),
    Column("version", Integer, nullable=False, unique=True), Column("sha256", String, nullable=False),
    Column("revisions", JSON, nullable=False), Column("action", String, nullable=False), Column("entry_id", String),
    Column("actor", String, nullable=False), Column("reason", String, nullable=False), Column("trial_id", String),
    timestamp(), mac(),
)  # fmt: skip

codebook_trials = new_table(
    "codebook_trials", serial(), Column("trial_id", String, nullable=False, unique=True),
    Column("revision_id", String, nullable=False, index=True), Column("codebook", String, nullable=False),
    Column("model", String, nullable=False), Column("verdict", String, nullable=False), Column("cases", JSON, nullable=False),
    Column("unchanged", Integer, nullable=False), Column("actor", String, nullable=False), timestamp(), mac(),
)  # fmt: skip

# What later feedback says about a rule: a liked answer that used it, or one that somebody disliked, flagged or corrected.
codebook_votes = new_table(
    "codebook_votes", serial(), Column("vote_id", String, nullable=False, unique=True),
    Column("record_id", String, nullable=False, index=True), Column("entry_id", String, nullable=False, index=True),
    Column("trace_id", String, nullable=False), Column("helpful", Boolean, nullable=False), timestamp(), mac(),
)  # fmt: skip

# How far the codebook and the drafts of criteria have looked by themselves: one row.
codebook_cursor = new_table(
    "codebook_cursor", serial(), Column("feedback_row", BigInteger, nullable=False),
    Column("correction_row", BigInteger, nullable=False), Column("proposed_row", BigInteger, nullable=False),
    Column("criteria_row", BigInteger, nullable=False),
)  # fmt: skip
