"""Bring MLflow up to what the store says: after each change, and again with the next command if something came between.

The store has every version and every alias first. `mirrored` of a row is empty until MLflow has it, so a kill, a server that is
down or a full disk leaves rows to send, and sending one twice changes nothing.
"""

import logging
from pathlib import Path

from medloop.errors import MedloopError
from medloop.registry.hub_card import hub_card
from medloop.registry.mirror import BYTES, Mirror, MirrorError, open_mirror
from medloop.store.db import Store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import lineage, registry
from medloop.store.records.registry import StoredVersion

EXPORTED = "exported"  # a flag of data that left the workspace; an erasure names the place (privacy/erasure/flags.py)

log = logging.getLogger(__name__)


def reconcile(store: Store) -> str | None:
    """Send what MLflow does not have yet; None, or why that is not possible now. If there is nothing, MLflow is not loaded."""
    model = store.settings.registry.model
    if not registry.pending(store, model):
        return None
    try:
        with open_mirror(store.settings) as mirror:
            send_pending(store, mirror)
    except MirrorError as error:
        log.warning("MLflow lags behind the registry: %s", error)
        return str(error)
    return None


def send_pending(store: Store, mirror: Mirror) -> None:
    """Versions first, in their order, then the aliases as they are now."""
    model = store.settings.registry.model
    if mirror.is_empty and any(
        stored.mirrored for stored in registry.versions(store, model)
    ):  # a new database, or a server that lost everything
        registry.mirror_again(store, model)
    changes = [change.change_id for change in registry.history(store, model)]  # what is added from here on is sent next time
    waiting = registry.pending(store, model)
    for stored in waiting.versions:
        _send(store, mirror, stored)
    held = registry.current(store, model)
    for alias in waiting.aliases:
        version = held[alias].version if alias in held else None
        number = None if version is None else registry.get_version(store, model, version).mlflow_version
        mirror.set_alias(alias, number)
    if waiting.aliases:
        registry.mark_aliases(store, changes)


def _send(store: Store, mirror: Mirror, stored: StoredVersion) -> None:
    folder = store.settings.home / stored.path
    if mirror.find(stored.record.artifact) is None:
        folder = find_bytes(store, mirror, stored)
    number, run = mirror.add(stored.record, folder, hub_card(store, stored.record))
    registry.mark_version(store, stored, mlflow_version=number, mlflow_run=run)
    if url := store.settings.registry.url:
        with store.write() as conn:  # the copy is out of reach of an erasure, which tells people so
            for sha256 in sorted({*stored.record.inputs.values(), stored.record.artifact}):
                place = f"{url} {stored.record.model} version {number}"
                lineage.flag_artifact(conn, sha256, EXPORTED, place, actor="medloop")


def find_bytes(store: Store, mirror: Mirror, stored: StoredVersion) -> Path:
    """The folder that was registered; else a copy of it that MLflow's store in this workspace had before it was made anew."""
    copies = sorted(mirror.artifacts.glob(f"*/*/{BYTES}")) if mirror.artifacts is not None else []
    for folder in (store.settings.home / stored.path, *copies):
        try:
            if verify_artifact(folder).sha256 == stored.record.artifact:
                return folder
        except MedloopError:
            continue
    raise MirrorError(
        f"{stored.path} no longer has the bytes of {stored.record.label}", "Put them back, or train and register the model again"
    )
