"""After the files have changed: enter the new hashes in catalog and lineage, and flag models trained on the old data."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medloop.contracts import AuditEvent
from medloop.errors import MedloopError
from medloop.models.safety import fingerprint_of
from medloop.store import audit, catalog
from medloop.store.db import Store
from medloop.store.files.artifacts import MANIFEST, Manifest, verify_artifact
from medloop.store.records import lineage

TAINTED, ERASED, JOB, EXPORTED = "tainted", "erased", "job", "exported"


def update_catalog(
    store: Store, erasure_id: str, actor: str, changes: Sequence[Mapping[str, Any]], datasets: Sequence[str]
) -> tuple[list[dict[str, str]], list[str], list[str]]:
    """(flagged models, jobs that started on the old data, files outside the workspace made from these records)."""
    home, old = store.settings.home, old_hashes(changes, datasets)
    for change in changes:
        _enter(store, home / change["path"], change, actor)
    flagged = _models(store, old)
    jobs = _jobs(home, old)
    reason = f"trained on data erased in {erasure_id}"
    with store.write() as conn:
        for sha256 in _both_hashes(flagged, home):
            lineage.flag_artifact(conn, sha256, TAINTED, reason, actor=actor)
        for change in changes:
            lineage.flag_artifact(conn, change["before"], ERASED, erasure_id, actor=actor)
        for name, sha256 in jobs:
            lineage.flag_artifact(conn, sha256, JOB, f"{name} started on data erased in {erasure_id}", actor=actor)
        if flagged or jobs:
            detail: dict[str, str | int | float | bool] = {"models": len(flagged), "jobs": len(jobs)}
            audit.append(conn, AuditEvent(actor=actor, action="erasure.flag", subject=erasure_id, detail=detail))
    return flagged, sorted({name for name, _ in jobs}), _exported(store, datasets)


def _enter(store: Store, path: Path, change: Mapping[str, Any], actor: str) -> None:
    """Enter the new folder in the catalog beside the old entry, and its remaining records in the lineage of the new hash."""
    pairs = dict(change["hashes"])
    if (path / MANIFEST).is_file():
        after = change.get("after") or verify_artifact(path).sha256
        pairs[change["before"]] = after
        entry = catalog.find(store, change["before"])
        if entry is not None and after != change["before"]:
            card = path / "card.json"
            content = json.loads(card.read_text(encoding="utf-8")) if card.is_file() else entry.card
            catalog.register(store, entry.kind, path, content, actor=actor)
    for before, after in pairs.items():
        if rest := lineage.records_of(store, before):
            with store.write() as conn:
                lineage.add_records(conn, after, rest)


def old_hashes(changes: Sequence[Mapping[str, Any]], datasets: Sequence[str]) -> set[str]:
    """The hashes of all files and folders that held erased records, including data that was replaced since."""
    return {
        *datasets,
        *(change["before"] for change in changes),
        *(file_hash for change in changes for file_hash in change["hashes"]),
    }


def tainted_models(store: Store, old: set[str]) -> tuple[set[str], list[str]]:
    """(hashes, paths) of the models that were trained on data with these hashes."""
    models = _models(store, old)
    return {model["sha256"] for model in models}, [model["path"] for model in models]


def _models(store: Store, old: set[str]) -> list[dict[str, str]]:
    """Models whose inputs are among the old hashes, and models that were trained from such a model."""
    known = list(_cards(store.settings.home / "models", store.settings.home))
    models: dict[str, dict[str, str]] = {}
    tainted: set[str] = set()
    while True:
        fresh = [
            (path, manifest)
            for path, manifest, card in known
            if manifest.sha256 not in models
            and (old | tainted) & {*card.get("inputs", {}).values(), card.get("parent"), card.get("base_sha256")}
        ]
        if not fresh:
            return sorted(models.values(), key=lambda model: model["path"])
        for path, manifest in fresh:
            models[manifest.sha256] = {"path": path, "sha256": manifest.sha256}
            tainted |= {manifest.sha256, fingerprint_of(manifest.hashes)}


def _both_hashes(models: Sequence[Mapping[str, str]], home: Path) -> Iterator[str]:
    """By folder, as the catalog names a model, and by weights, as the gate and the cards of later models do."""
    for model in models:
        yield from (model["sha256"], fingerprint_of(verify_artifact(home / model["path"]).hashes))


def _cards(folder: Path, home: Path) -> Iterator[tuple[str, Manifest, dict[str, Any]]]:
    """(path, manifest, card) of every sealed model."""
    for file in sorted(folder.rglob("card.json")) if folder.is_dir() else ():
        try:
            yield file.parent.relative_to(home).as_posix(), verify_artifact(file.parent), json.loads(file.read_bytes())
        except (MedloopError, ValueError):
            continue  # damaged: loading it gives an error


def _jobs(home: Path, old: set[str]) -> list[tuple[str, str]]:
    """Unfinished runs that started on the old data: (folder, hash of the input)."""
    runs = []
    for file in sorted((home / "jobs").glob("*/config.json")):
        try:
            inputs = json.loads(file.read_bytes()).get("identity", {}).get("inputs", {})
        except (ValueError, AttributeError):
            continue
        for sha256 in sorted(set(inputs.values()) & old):
            if (file.parent / "checkpoints").is_dir():
                runs.append((file.parent.relative_to(home).as_posix(), sha256))
    return runs


def _exported(store: Store, datasets: Sequence[str]) -> list[str]:
    """Files outside the workspace that were made from these records; a person has to remove them."""
    paths = (reason for sha256 in datasets for flag, reason in lineage.flags_of(store, sha256) if flag == EXPORTED)
    return sorted({path for path in paths if not Path(path).is_relative_to(store.settings.home)})
