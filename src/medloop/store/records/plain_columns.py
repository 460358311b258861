"""Where a text stands in the columns of the database that are not encrypted: ids, names, the audit log.

    columns_with(store, lambda text: "4711" in text)      # ["audit_log.detail (row 12)", "traces.session_id (tr_7)"]

Nothing here rewrites them: other records and the chain of the audit log depend on their values.
"""

from collections.abc import Callable

from sqlalchemy import JSON, String, select

from medloop.contracts import canonical_json
from medloop.store import tables
from medloop.store.db import Store

APPEND_ONLY = "audit_log."  # each line holds the hash of the one before it, so none of them is ever changed
MOST_NAMED = 5


def columns_with(store: Store, holds: Callable[[str], bool]) -> list[str]:
    """The columns with some of their rows, by the ids that medloop uses; a row whose id holds the text has its number."""
    places = []
    with store.read() as conn:
        for table in tables.metadata.sorted_tables:
            first, name_column = list(table.columns)[:2]
            for column in table.columns:
                if not isinstance(column.type, String | JSON) or column.info.get("encrypted"):
                    continue
                query = select(first, name_column, column).where(column.is_not(None)).execution_options(yield_per=1000)
                rows = []
                for number, name, value in conn.execute(query):
                    if holds(value if isinstance(value, str) else canonical_json(value)):
                        rows.append(f"row {number}" if not isinstance(name, str) or holds(name) else name)
                if rows:
                    more = f" and {len(rows) - MOST_NAMED:,} more" if len(rows) > MOST_NAMED else ""
                    places.append(f"{table.name}.{column.name} ({', '.join(rows[:MOST_NAMED])}{more})")
    return places
