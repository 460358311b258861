"""The gate's verdicts, who signed them, the checks that people lifted for a while, and what people ask the gate to demand."""

from sqlalchemy import JSON, Boolean, CheckConstraint, Column, Integer, String

from medloop.store.tables.columns import UtcDateTime, mac, new_table, serial, timestamp

gate_results = new_table(
    "gate_results", serial(), Column("gate", String, nullable=False, unique=True),
    Column("artifact", String, nullable=False, index=True), Column("weights", String, nullable=False),
    Column("base", String, nullable=False), Column("label", String, nullable=False), Column("model", String),
    Column("baseline", String, nullable=False),
    Column("baseline_artifact", String, nullable=False), Column("report", String, nullable=False),
    Column("config", String, nullable=False), Column("changed_settings", JSON, nullable=False),
    Column("outcome", String, nullable=False), Column("checks", JSON, nullable=False),
    Column("needs_sign_offs", Integer, nullable=False), timestamp(), mac(),
    CheckConstraint("outcome IN ('pass', 'fail', 'not_enough_evidence')", name="outcome"),
)  # fmt: skip

gate_sign_offs = new_table(
    "gate_sign_offs", serial(), Column("sign_off_id", String, nullable=False, unique=True),
    Column("gate", String, nullable=False, index=True), Column("artifact", String, nullable=False),
    Column("person", String, nullable=False), Column("approved", Boolean, nullable=False),
    Column("comment", String, nullable=False), timestamp(), mac(),
)  # fmt: skip

# One without an approver waits for a second person and lifts nothing.
gate_waivers = new_table(
    "gate_waivers", serial(), Column("waiver_id", String, nullable=False, unique=True),
    Column("artifact", String, nullable=False, index=True), Column("check_name", String, nullable=False),
    Column("outcome", String, nullable=False), Column("reason", String, nullable=False),
    Column("author", String, nullable=False), Column("approver", String),
    Column("approved", UtcDateTime), Column("expires", UtcDateTime, nullable=False), timestamp(), mac(),
)  # fmt: skip

# One person's word for the settings that every model has to pass here.
gate_policies = new_table(
    "gate_policies", serial(), Column("word_id", String, nullable=False, unique=True),
    Column("policy", String, nullable=False), Column("settings", JSON, nullable=False),
    Column("person", String, nullable=False), timestamp(), mac(),
)  # fmt: skip
