"""The first schema: the tables as store/tables says.

Before the first release nothing has to be upgraded, so the schema is defined once. With the first release this file is frozen:
its tables are written out here, and each later change is a new file beside it (docs/decisions/0018-first-schema.md).
"""

from alembic import op

from medloop.store.tables import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
