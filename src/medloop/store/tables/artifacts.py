"""The catalog of datasets, models and reports, the records inside them, and the flags that erasures set."""

from sqlalchemy import JSON, Column, Index, String, UniqueConstraint

from medloop.store.tables.columns import UtcDateTime, mac, new_table, serial, timestamp

artifacts = new_table(
    "artifacts", serial(), Column("kind", String, nullable=False), Column("path", String, nullable=False),
    Column("sha256", String, nullable=False), Column("card", JSON, nullable=False),
    Column("created", UtcDateTime, nullable=False), mac(), UniqueConstraint("kind", "path", "sha256"), Index(None, "sha256"),
)  # fmt: skip

artifact_flags = new_table(
    "artifact_flags", serial(), Column("sha256", String, nullable=False, index=True), Column("flag", String, nullable=False),
    Column("reason", String, nullable=False), timestamp(), mac(), UniqueConstraint("sha256", "flag", "reason"),
)  # fmt: skip

lineage = new_table(
    "lineage", serial(), Column("dataset", String, nullable=False), Column("record_id", String, nullable=False, index=True),
    UniqueConstraint("dataset", "record_id"),
)  # fmt: skip
