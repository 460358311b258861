"""A version has everything that led to it, here and in MLflow, once; its bytes come back as they were."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from medloop.contracts import EvalReport, Interval, ModelRef, ModelResult, sha256_id, utc_now
from medloop.errors import InputError, IntegrityError, ModelError, StoreError
from medloop.registry.mirror import open_mirror
from medloop.registry.promote import promote_in
from medloop.registry.pull import pull, push
from medloop.registry.reconcile import reconcile
from medloop.registry.register import register, register_in
from medloop.registry.verify import verify
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.files.artifacts import verify_artifact
from medloop.store.integrity import verify_store
from medloop.store.records import lineage, registry
from medloop.testing.registry import BASE, examine, make_adapter


def write_report(path: Path, adapter: str) -> str:
    report = EvalReport(
        name="r", results=(ModelResult(label="m", model=ModelRef(base="embedded:tiny", adapter=adapter), metrics={
            "gold": {"emergency": Interval(mean=0.75, low=0.7, high=0.8, n=20)}}),),
        inputs={}, rules={}, config={}, timestamp=utc_now(),
    )  # fmt: skip
    path.write_text(report.canonical_json(), encoding="utf-8")
    return report.content_id()


def test_a_version_has_its_history_here_and_in_mlflow(store, settings: Settings, tmp_path: Path) -> None:
    artifact = make_adapter(store, "first", parent=sha256_id("parent"))
    gate, report = examine(store, artifact), write_report(tmp_path / "report.json", "first")
    outcome = register_in(store, "first", actor="test", report=tmp_path / "report.json")
    record = outcome.stored.record
    assert (record.version, record.artifact, record.gate, record.report) == (1, artifact, gate, report) and outcome.lag is None
    assert (record.reward, record.parent, record.base_sha256) == ("mix-1", sha256_id("parent"), BASE)
    with open_mirror(settings) as mirror:
        version = mirror._client.get_model_version(settings.registry.model, "1")
        run = mirror._client.get_run(outcome.stored.mlflow_run).data
    assert version.tags["medloop.artifact"] == artifact and version.tags["data.train"] == sha256_id("data")
    assert version.tags["reward"] == "mix-1" and version.tags["eval.gold.emergency"] == "0.75" and version.tags["gate"] == gate
    assert run.metrics == {"train_loss_last": 0.5, "eval.gold.emergency": 0.75} and run.params["parent"] == record.parent
    lines = [line for line in audit.show(store, 20) if line["action"] == "registry.register"]
    assert [line["subject"] for line in lines] == [record.label] and verify_store(store).ok


def test_the_same_bytes_are_one_version_and_others_the_next(store, settings: Settings) -> None:
    make_adapter(store, "first"), make_adapter(store, "second")
    numbers = [register_in(store, name, actor="test").stored.record.version for name in ("first", "first", "second", "first")]
    with open_mirror(settings) as mirror:
        assert numbers == [1, 1, 2, 1] and len(mirror.versions()) == 2


def test_bytes_come_back_as_they_were_registered(store, settings: Settings, tmp_path: Path) -> None:
    artifact = make_adapter(store, "first")
    register(settings, "models/lora/first", actor="test")
    assert verify_artifact(pull(store, 1, tmp_path / "back")).sha256 == artifact
    with pytest.raises(StoreError, match="already exists"):
        pull(store, 1, tmp_path / "back")


def test_a_hub_folder_has_the_weights_and_a_card_but_no_answers(store, tmp_path: Path) -> None:
    artifact = make_adapter(store, "first")
    examine(store, artifact)
    register_in(store, "first", actor="test", report=None)
    folder = push(store, 1, tmp_path / "hub/med")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "adapter_model.safetensors",
        "adapter_config.json",
        "chat_template.jinja",
        "card.json",
        "README.md",
        "MANIFEST.json",
    }
    _, front, body = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["library_name"] == "peft" and card["medloop"]["artifact"] == artifact and "base_model" not in card
    assert "critical_failures | passed" in body and "not a medical device" in body


def test_what_cannot_be_registered_is_told(store, tmp_path: Path) -> None:
    make_adapter(store, "first")
    write_report(tmp_path / "report.json", "first")
    make_adapter(store, "second")
    with pytest.raises(InputError, match="not about second"):
        register_in(store, "second", actor="test", report=tmp_path / "report.json")
    weights = store.settings.workspace.models / "lora/first/adapter_config.json"
    weights.write_text("{}", encoding="utf-8")
    with pytest.raises(IntegrityError):
        register_in(store, "first", actor="test")
    (weights.parent / "MANIFEST.json").unlink()
    with pytest.raises(ModelError, match="no manifest"):
        register_in(store, "first", actor="test")
    assert registry.versions(store, store.settings.registry.model) == []


def test_a_moved_workspace_makes_its_copy_anew_and_leaves_the_old_place_alone(settings: Settings, tmp_path: Path) -> None:
    if settings.registry.url:
        return  # a server notes no path of the workspace
    with open_store(settings) as store:
        artifact = make_adapter(store, "first")
        register_in(store, "first", actor="test")
        examine(store, artifact)
    home = settings.home.rename(tmp_path / "moved")
    shutil.rmtree(home / "models/lora/first")  # the copy in MLflow's folder is the only one
    with open_store(Settings(home=home)) as store:
        assert promote_in(store, 1, actor="test").lag is None and verify(store).problems == ()
        assert verify_artifact(pull(store, 1, tmp_path / "back")).sha256 == artifact
    assert not settings.home.exists()


def test_an_erasure_is_told_which_server_has_a_copy(store, settings: Settings) -> None:
    make_adapter(store, "first")
    register_in(store, "first", actor="test")
    flags = dict(lineage.flags_of(store, sha256_id("data")))
    assert flags == (
        {"exported": f"{settings.registry.url} {settings.registry.model} version 1"} if settings.registry.url else {}
    )


def test_a_version_that_mlflow_could_not_take_is_sent_by_the_next_command(store, settings: Settings, monkeypatch) -> None:
    make_adapter(store, "first")
    away = settings.model_copy(update={"registry": settings.registry.model_copy(update={"url": "http://127.0.0.1:9"})})
    monkeypatch.setattr(store, "settings", away)
    monkeypatch.setitem(__import__("medloop.registry.mirror").registry.mirror.QUIET, "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    outcome = register_in(store, "first", actor="test")
    assert outcome.stored.record.version == 1 and outcome.stored.mirrored is None and "127.0.0.1:9" in (outcome.lag or "")
    monkeypatch.setattr(store, "settings", settings)
    assert reconcile(store) is None and registry.get_version(store, settings.registry.model, 1).mirrored is not None
