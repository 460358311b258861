"""Versions as lists, pages and programs show them: the record, its aliases, the gate's newest verdict, MLflow's number."""

from dataclasses import dataclass
from typing import Any

from medloop.contracts import AliasChange
from medloop.contracts.gate import GateOutcome
from medloop.contracts.registry import Alias
from medloop.store.db import Store
from medloop.store.records import registry
from medloop.store.records.gates import latest_gate, promotion_refusal, waived_checks
from medloop.store.records.registry import StoredVersion


@dataclass(frozen=True)
class ListedVersion:
    """A version as it stands now. `refusal` says why it cannot be promoted, `tainted` which erasure touched its data."""

    stored: StoredVersion
    aliases: tuple[Alias, ...]
    gate: str | None
    gate_outcome: GateOutcome | None
    refusal: str | None
    tainted: str | None
    waived: int = 0  # checks of the verdict that two clinicians have lifted, where no other forbids a promotion

    def fields(self) -> dict[str, Any]:
        """For JSON: the record, and beside it what stands now."""
        stored = self.stored
        mlflow = {
            "mlflow_version": stored.mlflow_version,
            "mlflow_run": stored.mlflow_run,
            "mirrored": stored.mirrored is not None,
        }
        now = {"aliases": list(self.aliases), "gate": self.gate, "gate_outcome": self.gate_outcome}
        return {
            **stored.record.model_dump(mode="json"), "path": stored.path, **mlflow, **now, "refusal": self.refusal,
            "tainted": self.tainted,
        }  # fmt: skip


def list_versions(store: Store) -> list[ListedVersion]:
    """All versions, newest first."""
    model = store.settings.registry.model
    held = registry.current(store, model)
    return [_listed(store, stored, held) for stored in reversed(registry.versions(store, model))]


def get_listed(store: Store, version: int) -> ListedVersion:
    model = store.settings.registry.model
    return _listed(store, registry.get_version(store, model, version), registry.current(store, model))


def _listed(store: Store, stored: StoredVersion, held: dict[Alias, AliasChange]) -> ListedVersion:
    artifact = stored.record.artifact
    gate = latest_gate(store, artifact)
    return ListedVersion(
        stored, tuple(alias for alias, change in held.items() if change.version == stored.record.version),
        None if gate is None else gate.content_id(), None if gate is None else gate.outcome, promotion_refusal(store, artifact),
        registry.taint_of(store, artifact),
        0 if gate is None else waived_checks(store, gate),
    )  # fmt: skip
