"""Which version of the model answers: one row for each change of the route, and the newest one is live."""

from sqlalchemy import Column, Integer, String

from medloop.store.tables.columns import mac, new_table, serial, timestamp

serving_routes = new_table(
    "serving_routes", serial(), Column("route_id", String, nullable=False, unique=True),
    Column("served_name", String, nullable=False), Column("model", String, nullable=False), Column("version", Integer),
    Column("artifact", String), Column("previous", String), Column("reason", String, nullable=False),
    Column("changed_by", String, nullable=False), timestamp(), mac(),
)  # fmt: skip
