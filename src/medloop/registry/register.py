"""Register a trained adapter: a version with its number, its history and its bytes.

    outcome = register(settings, "models/rl/round1", report=Path("reports/rl_stage/eval_report_round1.json"), actor=actor())
    outcome.stored.record.version, outcome.lag              # 3, None (or why MLflow does not have it yet)

The row is committed first, with its line in the audit log; then MLflow gets a copy (reconcile.py). A kill between the two leaves
the row, and the next command sends the copy. Registering the same bytes again changes nothing.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from medloop.contracts import EvalReport, Interval, ModelVersion, TrainingCard
from medloop.errors import InputError, ModelError, explain_os_errors
from medloop.models.find import adapter_folder
from medloop.registry.reconcile import reconcile
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.files.artifacts import Manifest, is_sealed, verify_artifact
from medloop.store.records.gates import latest_gate
from medloop.store.records.registry import StoredVersion, add_version, get_version

TEMPLATE = "chat_template.jinja"


@dataclass(frozen=True)
class RegistryOutcome:
    """A version after a command; `lag` says why MLflow does not have the change yet, None when it has."""

    stored: StoredVersion
    lag: str | None


def register(settings: Settings, adapter: str, *, actor: str, report: Path | None = None) -> RegistryOutcome:
    """The version of an adapter, which may be named as everywhere: a folder, or a name under models/."""
    with open_store(settings) as store:
        return register_in(store, adapter, actor=actor, report=report)


def register_in(store: Store, adapter: str, *, actor: str, report: Path | None = None) -> RegistryOutcome:
    settings = store.settings
    folder = adapter_folder(adapter, settings).absolute()
    if not is_sealed(folder):
        raise ModelError(f"{adapter} has no manifest, so its bytes cannot be told apart", "Register what medloop trained")
    manifest = verify_artifact(folder)
    draft = _draft(store, folder, manifest, None if report is None else read_report(report), actor)
    path = folder.relative_to(settings.home).as_posix() if folder.is_relative_to(settings.home) else str(folder)
    stored = add_version(store, draft, path, actor=actor)
    lag = reconcile(store)
    return RegistryOutcome(get_version(store, stored.record.model, stored.record.version), lag)


def _draft(store: Store, folder: Path, manifest: Manifest, report: EvalReport | None, actor: str) -> ModelVersion:
    """Everything that the card, the report and the gate say; add_version gives it its number."""
    card = _read_card(folder)
    gate = latest_gate(store, manifest.sha256)
    files = {file.path: file.sha256 for file in manifest.files}
    return ModelVersion(
        model=store.settings.registry.model, version=1, artifact=manifest.sha256, name=card.name, method=card.method,
        base=card.base, base_sha256=card.base_sha256, parent=card.parent, inputs=card.inputs, losses=card.metrics,
        scores={} if report is None else _scores(report, folder, store.settings),
        report=report.content_id() if report is not None else gate.report if gate is not None else None,
        gate=None if gate is None else gate.content_id(), template=files.get(TEMPLATE),
        reward=(card.config.get("objective") or {}).get("version"), versions=card.versions,
        warnings=(*card.warnings, *card.alarms), registered_by=actor,
    )  # fmt: skip


def _read_card(folder: Path) -> TrainingCard:
    path = folder / "card.json"
    with explain_os_errors(path):
        text = path.read_text(encoding="utf-8")
    try:
        return TrainingCard.from_json(text)
    except ValidationError:
        raise ModelError(f"{path} is not a training card", "Train the adapter again") from None


def read_report(path: Path) -> EvalReport:
    """`eval_report.json`, as `medloop eval` writes it."""
    with explain_os_errors(path):
        text = path.read_text(encoding="utf-8")
    try:
        return EvalReport.from_json(text)
    except ValidationError:
        raise InputError(f"{path} is not an evaluation report", "Name the .json file that 'medloop eval' wrote") from None


def _scores(report: EvalReport, folder: Path, settings: Settings) -> dict[str, Interval]:
    """The numbers of this adapter in the report, by split or suite and metric."""
    for result in report.results:
        named = result.model.adapter if result.model is not None else None
        if named is not None and adapter_folder(named, settings).absolute() == folder:
            return {f"{split}.{name}": value for split, values in result.metrics.items() for name, value in values.items()}
    labels = ", ".join(result.label for result in report.results)
    raise InputError(f"The report is not about {folder.name}; it compares {labels}", "Evaluate it with: medloop eval")
