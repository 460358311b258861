"""The bytes of the champion, for rules that stand below the registry: a verdict holds against the model that it would replace.

    champion_artifact(store)        # sha256:…, the champion or the last one there was; None before the first promotion
    has_been_champion(store, sha)   # whether going back to these bytes is a rollback
    emptied(store)                  # since when no version is the champion although one was; else None

Taking the alias away does not lower what the next model has to show: a verdict against an older model stays without effect.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import Row, select

from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.tables import registry_aliases, registry_versions


def _changes(store: Store) -> list[Row[Any]]:
    mine = registry_aliases.c.model == store.settings.registry.model, registry_aliases.c.alias == "champion"
    return genuine_rows(store, registry_aliases, select(registry_aliases).where(*mine).order_by(registry_aliases.c.id))


def _artifacts(store: Store, versions: set[int]) -> dict[int, str]:
    mine = registry_versions.c.model == store.settings.registry.model, registry_versions.c.version.in_(versions)
    return {row.version: row.artifact for row in genuine_rows(store, registry_versions, select(registry_versions).where(*mine))}


def champion_artifact(store: Store) -> str | None:
    """The hash of the version that is the champion, else of the last one that was; None where there has never been one."""
    held = [int(change.version) for change in _changes(store) if change.version is not None]
    return _artifacts(store, {held[-1]}).get(held[-1]) if held else None


def has_been_champion(store: Store, artifact: str) -> bool:
    """Not if somebody took the alias from them: then they come back only as a model that may be promoted."""
    holders = [change.version for change in _changes(store)]
    after = dict(zip(holders, [*holders[1:], 0], strict=True))  # by version, what came after its last time
    return (
        artifact
        in _artifacts(store, {int(version) for version in holders if version is not None and after[version] is not None}).values()
    )


def emptied(store: Store) -> datetime | None:
    """When the alias was taken away, where no version has it now."""
    changes = _changes(store)
    return changes[-1].timestamp if changes and changes[-1].version is None else None


def promotion_gates(store: Store, artifact: str) -> set[str]:
    """The verdicts on which these bytes were promoted, as champion or as challenger."""
    model = store.settings.registry.model
    versions = select(registry_versions).where(registry_versions.c.model == model, registry_versions.c.artifact == artifact)
    numbers = {row.version for row in genuine_rows(store, registry_versions, versions)}
    changes = select(registry_aliases).where(registry_aliases.c.model == model, registry_aliases.c.version.in_(numbers))
    rows = genuine_rows(store, registry_aliases, changes.order_by(registry_aliases.c.id))
    return {row.gate for row in rows if row.action == "promote" and row.gate is not None}
