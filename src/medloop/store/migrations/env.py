"""Alembic's entry point; `db.upgrade` hands over an open connection inside a transaction."""

from alembic import context

from medloop.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
