"""Versions to deploy: registered and with a verdict of the gate, without MLflow."""

from __future__ import annotations

from medloop.contracts import ModelVersion
from medloop.store.db import Store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import registry
from medloop.store.records.gates import latest_gate, stale_baseline
from medloop.store.records.routes import live_route
from medloop.testing.registry import BASE, examine, make_adapter

MODEL = "med-assistant"


def add_versions(store: Store, *names: str) -> None:
    """Register `first` (promoted) and `second`, or the adapters named; each has passed the gate."""
    for name in names or ("first", "second"):
        artifact = make_adapter(store, name)
        examine(store, artifact)
        register(store, name, artifact)
    if not names:
        promote(store, 1)


def register(store: Store, name: str, artifact: str) -> int:
    draft = ModelVersion(
        model=MODEL, version=1, artifact=artifact, name=name, method="sft", base="embedded:tiny", base_sha256=BASE, inputs={},
        registered_by="test",
    )  # fmt: skip
    return registry.add_version(store, draft, f"models/lora/{name}", actor="test").record.version


def promote(store: Store, version: int, alias: str = "champion") -> None:
    """Versions go to and fro in these tests, so a verdict against an earlier champion is measured again."""
    result = latest_gate(store, artifact_of(store, version))
    if result is not None and result.outcome == "pass" and stale_baseline(store, result):
        examine(store, result.artifact)
    registry.change_alias(store, MODEL, alias, version, action="promote", actor="test")


def artifact_of(store: Store, version: int) -> str:
    return registry.get_version(store, MODEL, version).record.artifact


def name_of(store: Store, version: int) -> str:
    return f"{MODEL}-v{version}-{artifact_of(store, version)[7:15]}"


def live_version(store: Store) -> int | None:
    route = live_route(store)
    return None if route is None else route.version


def bytes_of(store: Store, version: int) -> str:
    return verify_artifact(store.settings.home / registry.get_version(store, MODEL, version).path).sha256
