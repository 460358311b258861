"""How a command names the model with some bytes: `embedded:tiny+models/lora/sft`, as far as the workspace knows them."""

import shlex

from sqlalchemy import select

from medloop.store import catalog
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.tables import registry_versions

UNKNOWN = "BASE+ADAPTER"


def spec_of(store: Store, artifact: str) -> str:
    """Quoted for a shell; a placeholder for bytes that neither the catalog nor the registry has."""
    entry = catalog.find(store, artifact)
    if entry is not None and entry.kind == "adapter" and entry.card.get("base"):
        home = store.settings.workspace.home
        path = entry.path.relative_to(home).as_posix() if entry.path.is_relative_to(home) else str(entry.path)
        return shlex.quote(f"{entry.card['base']}+{path}")
    rows = genuine_rows(store, registry_versions, select(registry_versions).where(registry_versions.c.artifact == artifact))
    return shlex.quote(f"{rows[-1].record['base']}+{rows[-1].path}") if rows else UNKNOWN
