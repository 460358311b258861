"""Which version of the model answers, and how it got there: changes of the route, steps of deployments, alarms, blocks."""

from sqlalchemy import JSON, CheckConstraint, Column, Index, Integer, String

from medloop.store.tables.columns import mac, new_table, serial, timestamp

# One row for each change of the route of an arm at a site; the newest one is live.
serving_routes = new_table(
    "serving_routes", serial(), Column("route_id", String, nullable=False, unique=True),
    Column("arm", String, nullable=False), Column("site", String, nullable=False),
    Column("served_name", String, nullable=False),
    Column("model", String, nullable=False), Column("version", Integer),
    Column("artifact", String), Column("previous", String), Column("reason", String, nullable=False),
    Column("changed_by", String, nullable=False), timestamp(), mac(), Index(None, "site", "arm", "id"),
    CheckConstraint("arm IN ('champion', 'challenger')", name="arm"),
)  # fmt: skip

# What happened to a served name: each step of a deployment, and what the reconcile loop noticed or did.
deploy_events = new_table(
    "deploy_events", serial(), Column("event_id", String, nullable=False, unique=True),
    Column("kind", String, nullable=False, index=True), Column("deployment", String, index=True),
    Column("served_name", String, nullable=False, index=True), Column("artifact", String, index=True),
    Column("version", Integer), Column("replica", String, nullable=False), Column("reason", String, nullable=False),
    Column("numbers", JSON, nullable=False), Column("changed_by", String, nullable=False), timestamp(), mac(),
)  # fmt: skip
