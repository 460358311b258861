"""Adapters and verdicts of the gate for tests of the registry: small, sealed, without torch."""

from medloop.contracts import GateCheck, GateResult, TrainingCard, sha256_id, utc_now
from medloop.contracts.gate import GateOutcome
from medloop.contracts.gate_reasons import reason
from medloop.store import catalog
from medloop.store.db import Store
from medloop.store.files.artifacts import new_artifact, verify_artifact
from medloop.store.records import registry
from medloop.store.records.champion import champion_artifact
from medloop.store.records.gates import save_gate

BASE = sha256_id("base")
EMPTY_WEIGHTS = (2).to_bytes(8, "little") + b"{}"  # a safetensors file without tensors


def make_adapter(store: Store, name: str, *, parent: str | None = None) -> str:
    """A sealed adapter under models/lora, in the catalog; returns its hash."""
    folder = store.settings.workspace.models / "lora" / name
    now = utc_now()
    card = TrainingCard(
        name=name, method="sft", base="embedded:tiny", base_sha256=BASE, parent=parent, inputs={"train": sha256_id("data")},
        config={"name": name, "objective": {"version": "mix-1"}}, seed=1, metrics={"train_loss_last": 0.5},
        trainable_parameters=1, total_parameters=2, versions={"medloop": "0"}, started=now, finished=now,
    )  # fmt: skip
    with new_artifact(folder) as temp:
        (temp / "adapter_model.safetensors").write_bytes(EMPTY_WEIGHTS)
        (temp / "adapter_config.json").write_text('{"peft_type": "LORA"}\n', encoding="utf-8")
        (temp / "chat_template.jinja").write_text("{{ messages }}\n", encoding="utf-8")
        (temp / "samples.jsonl").write_text('{"question": "Where does it hurt?"}\n', encoding="utf-8")
        (temp / "card.json").write_text(card.canonical_json() + "\n", encoding="utf-8")
    catalog.register(store, "adapter", folder, card.model_dump(mode="json", exclude_none=True), actor="test")
    return verify_artifact(folder).sha256


def examine(store: Store, artifact: str, outcome: GateOutcome = "pass", *, needs_sign_offs: int = 0, baseline: str = "") -> str:
    """A verdict of the gate on these bytes; returns its id. Without `baseline` it is measured against the champion, or against
    the version before, which a test may promote first."""
    known = [row.record.artifact for row in registry.versions(store, store.settings.registry.model)]
    others = [sha256 for sha256 in (champion_artifact(store), *reversed(known)) if sha256 not in (None, artifact)]
    before = baseline or next(iter(others), None) or BASE
    failed = reason("critical_failed", n=3, most=0, named="triage/missed case-1")
    check = GateCheck.because("critical_failures", outcome, failed if outcome == "fail" else reason("critical_none"))
    result = GateResult(
        artifact=artifact, weights=artifact, base=BASE, label="candidate", baseline="base", baseline_artifact=before,
        report=sha256_id("report"), config=sha256_id("gate"), outcome=outcome, checks=(check,), needs_sign_offs=needs_sign_offs,
    )  # fmt: skip
    return save_gate(store, result, actor="test")
