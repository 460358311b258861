"""The catalog of datasets, models and reports, the records inside them, the flags that erasures set, and the rounds of RL."""

from sqlalchemy import JSON, CheckConstraint, Column, Index, Integer, String, UniqueConstraint

from medloop.store.tables.columns import UtcDateTime, mac, new_table, serial, timestamp

artifacts = new_table(
    "artifacts", serial(), Column("kind", String, nullable=False), Column("path", String, nullable=False),
    Column("sha256", String, nullable=False), Column("card", JSON, nullable=False),
    Column("fingerprint", String, index=True),  # of a model: of the files that decide how it behaves (models/safety.py)
    Column("created", UtcDateTime, nullable=False), mac(), UniqueConstraint("kind", "path", "sha256"), Index(None, "sha256"),
)  # fmt: skip

artifact_flags = new_table(
    "artifact_flags", serial(), Column("flag_id", String, nullable=False, unique=True),
    Column("sha256", String, nullable=False, index=True), Column("flag", String, nullable=False),
    Column("reason", String, nullable=False), timestamp(), mac(), UniqueConstraint("sha256", "flag", "reason"),
)  # fmt: skip

lineage = new_table(
    "lineage", serial(), Column("dataset", String, nullable=False), Column("record_id", String, nullable=False, index=True),
    UniqueConstraint("dataset", "record_id"),
)  # fmt: skip

# What people decided about rounds of RL: the newest event says which round is in use (records/rounds.py). Round 0 is SFT.
round_events = new_table(
    "round_events", serial(), Column("event_id", String, nullable=False, unique=True), Column("number", Integer, nullable=False),
    Column("event", String, nullable=False), Column("path", String, nullable=False), Column("artifact", String, nullable=False),
    Column("gate", String), Column("reason", String, nullable=False), Column("decided_by", String, nullable=False),
    timestamp(), mac(), CheckConstraint("event IN ('accepted', 'refused', 'rolled_back')", name="event"),
)  # fmt: skip
