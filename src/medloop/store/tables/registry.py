"""The versions of the registry and every change of an alias. `mirrored` is empty until MLflow has the row, too."""

from sqlalchemy import JSON, Column, Index, Integer, String, UniqueConstraint

from medloop.store.tables.columns import UtcDateTime, mac, new_table, serial, timestamp

registry_versions = new_table(
    "registry_versions", serial(), Column("version_id", String, nullable=False, unique=True),
    Column("model", String, nullable=False), Column("version", Integer, nullable=False),
    Column("artifact", String, nullable=False, index=True), Column("path", String, nullable=False),
    Column("record", JSON, nullable=False), Column("mlflow_version", Integer), Column("mlflow_run", String), timestamp(),
    Column("mirrored", UtcDateTime), mac(), UniqueConstraint("model", "version"), UniqueConstraint("model", "artifact"),
)  # fmt: skip

registry_aliases = new_table(
    "registry_aliases", serial(), Column("change_id", String, nullable=False, unique=True),
    Column("model", String, nullable=False), Column("alias", String, nullable=False), Column("action", String, nullable=False),
    Column("version", Integer), Column("gate", String), Column("changed_by", String, nullable=False),
    Column("reason", String, nullable=False), timestamp(), Column("mirrored", UtcDateTime), mac(), Index(None, "model", "alias"),
)  # fmt: skip
