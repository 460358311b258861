"""Feedback about answers, what was taken back, the traces of the answers, and what follows: scores, incidents, red-team cases."""

from sqlalchemy import JSON, Boolean, CheckConstraint, Column, Float, Integer, String, false

from medloop.store.tables.columns import (
    UtcDateTime,
    encrypted,
    key_columns,
    mac,
    new_table,
    processed,
    received,
    sender,
    serial,
    timestamp,
)

rlhf_feedback = new_table(
    "rlhf_feedback", serial(), Column("feedback_id", String, nullable=False, unique=True),
    Column("session_id", String, nullable=False, index=True), Column("agent_name", String, nullable=False),
    encrypted("user_query"), encrypted("agent_response"), Column("rating", Integer), Column("thumb", String),
    Column("feedback_type", String), Column("axes", JSON, nullable=False),
    Column("critical", Boolean, nullable=False, server_default=false()), Column("clinician_id", String, index=True),
    encrypted("comments", nullable=True), Column("consent", JSON, nullable=False), Column("model_version", String),
    Column("trace_id", String, index=True), Column("supersedes", String), *sender(), timestamp(), received(), processed(),
    *key_columns(), mac(), CheckConstraint("rating >= 1 AND rating <= 5", name="rating"),
    CheckConstraint("thumb IN ('up', 'down')", name="thumb"),
    CheckConstraint("feedback_type IN ('positive', 'negative', 'neutral')", name="feedback_type"),
)  # fmt: skip

rlhf_preferences = new_table(
    "rlhf_preferences", serial(), Column("preference_id", String, nullable=False, unique=True), encrypted("prompt"),
    encrypted("response_a"), encrypted("response_b"), Column("preferred", String, nullable=False),
    Column("critical", JSON, nullable=False),
    Column("shown_first", String(1)), Column("clinician_id", String, index=True), encrypted("comments", nullable=True),
    Column("consent", JSON, nullable=False), Column("trace_id", String, index=True), Column("supersedes", String),
    Column("session_id", String, index=True), Column("model_a", String), Column("model_b", String),
    Column("axes", JSON, nullable=False), *sender(), timestamp(), received(), processed(), *key_columns(), mac(),
    CheckConstraint("preferred IN ('a', 'b', 'tie', 'both_bad')", name="preferred"),
    CheckConstraint("shown_first IN ('a', 'b')", name="shown_first"),
)  # fmt: skip

rlhf_corrections = new_table(
    "rlhf_corrections", serial(), Column("correction_id", String, nullable=False, unique=True),
    Column("feedback_id", String, index=True), Column("trace_id", String, index=True), encrypted("prompt"),
    encrypted("original"), encrypted("golden"), encrypted("reason", nullable=True), Column("clinician_id", String, index=True),
    Column("consent", JSON, nullable=False), Column("supersedes", String), *sender(), timestamp(), received(), processed(),
    *key_columns(), mac(),
)  # fmt: skip

# Judgements that their author took back a moment after sending (records/withdrawals.py); the records themselves stay.
withdrawals = new_table(
    "withdrawals", serial(), Column("record_id", String, nullable=False, unique=True), Column("kind", String, nullable=False),
    Column("withdrawn_by", String, nullable=False), timestamp(), mac(),
)  # fmt: skip

# The site that a judgement came from, where it is not `main`: what its author's site was when it was sent.
record_sites = new_table(
    "record_sites", serial(), Column("record_id", String, nullable=False, unique=True), Column("site", String, nullable=False),
    timestamp(), mac(),
)  # fmt: skip

traces = new_table(
    "traces", serial(), Column("trace_id", String, nullable=False, unique=True),
    Column("session_id", String, nullable=False, index=True), Column("agent_name", String, nullable=False),
    encrypted("conversation"), Column("model_version", String, nullable=False), Column("snapshot", String),
    encrypted("contexts"), Column("user_hash", String, index=True), Column("sampling_share", Float), timestamp(),
    encrypted("meta"), processed(), *key_columns(), mac(),
)  # fmt: skip

scored_answers = new_table(
    "scored_answers", serial(), Column("score_id", String, nullable=False, unique=True),
    Column("sample_id", String, nullable=False, index=True), Column("version", String, nullable=False, index=True),
    Column("value", Float), encrypted("reward"), processed(), *key_columns(),
)  # fmt: skip

incidents = new_table(
    "incidents", serial(), Column("incident_id", String, nullable=False, unique=True),
    Column("record_id", String, nullable=False, index=True), Column("model_version", String, index=True),
    Column("state", String, nullable=False, index=True), Column("language", String), Column("opened_by", String), timestamp(),
    Column("proposed_by", String), Column("closed_by", String), Column("closed", UtcDateTime),
    Column("steps", JSON, nullable=False), encrypted("notes", nullable=True), processed(), *key_columns(), mac(),
    CheckConstraint("state IN ('open', 'closed')", name="state"),
)  # fmt: skip

red_team_cases = new_table(
    "red_team_cases", serial(), Column("case_id", String, nullable=False, unique=True),
    Column("record_id", String, nullable=False, index=True), Column("incident_id", String, index=True), encrypted("prompt"),
    encrypted("answer"), encrypted("reason", nullable=True), timestamp(), processed(), *key_columns(), mac(),
)  # fmt: skip

retrain_triggers = new_table(
    "retrain_triggers", serial(), Column("trigger_id", String, nullable=False, unique=True),
    Column("reason", String, nullable=False), Column("evidence", JSON, nullable=False),
    Column("records", Integer, nullable=False), Column("jobs", JSON(none_as_null=True)), timestamp(), mac(),
)  # fmt: skip
