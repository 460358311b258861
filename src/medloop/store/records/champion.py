"""The bytes of the champion, for rules that stand below the registry: a verdict holds against the model that it would replace.

champion_artifact(store)        # sha256:…, or None before the first promotion
"""

from sqlalchemy import select

from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.tables import registry_aliases, registry_versions


def champion_artifact(store: Store) -> str | None:
    """The hash of the version that is the champion now; None where none is."""
    model = store.settings.registry.model
    newest = select(registry_aliases).where(registry_aliases.c.model == model, registry_aliases.c.alias == "champion")
    changes = genuine_rows(store, registry_aliases, newest.order_by(registry_aliases.c.id))
    if not changes or changes[-1].version is None:
        return None
    mine = registry_versions.c.model == model, registry_versions.c.version == changes[-1].version
    rows = genuine_rows(store, registry_versions, select(registry_versions).where(*mine))
    return str(rows[0].artifact) if rows else None
