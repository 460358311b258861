"""No model becomes champion unless the gate passed exactly its bytes, no incident is open, and no erasure touched its data."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from medloop.errors import InputError, IntegrityError
from medloop.registry.mirror import open_mirror
from medloop.registry.promote import champion, demote_in, holder, promote, promote_in, rollback_in
from medloop.registry.pull import pull
from medloop.registry.register import register_in
from medloop.registry.verify import repair, verify
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.files.artifacts import new_artifact
from medloop.store.integrity import verify_store
from medloop.store.records import gates, lineage, registry
from medloop.store.records.registry import NoSuchVersionError, PromotionRefusedError
from medloop.testing.registry import BASE, examine, make_adapter


def add(store, name: str, outcome="pass") -> int:
    """A registered adapter with a verdict of the gate; its version."""
    artifact = make_adapter(store, name)
    if outcome is not None:
        examine(store, artifact, outcome)
    return register_in(store, name, actor="test").stored.record.version


def mirrored_aliases(settings: Settings) -> dict[str, int]:
    with open_mirror(settings) as mirror:
        return mirror.aliases()


def test_a_version_that_passed_becomes_champion_here_and_in_mlflow(store, settings: Settings) -> None:
    assert champion(settings) is None
    version = add(store, "first")
    outcome = promote(settings, version, actor="usr_1", reason="better triage")
    assert champion(settings) == outcome.stored and mirrored_aliases(settings) == {"champion": version}
    change = registry.current(store, settings.registry.model)["champion"]
    assert change.gate is not None and change.changed_by == "usr_1" and change.reason == "better triage"
    line = next(row for row in audit.show(store, 20) if row["action"] == "registry.promote")
    assert line["actor"] == "usr_1" and line["detail"]["gate"] == change.gate and verify_store(store).ok


@pytest.mark.parametrize(
    "outcome, reason", [(None, "has not examined"), ("fail", "critical_failures"), ("not_enough_evidence", "enough evidence")]
)
def test_no_promotion_without_a_passed_gate(store, settings: Settings, outcome, reason: str) -> None:
    version = add(store, "first", outcome)
    for alias in ("champion", "challenger"):
        with pytest.raises(PromotionRefusedError, match=reason):
            promote_in(store, version, actor="test", alias=alias)
    assert holder(store, "champion") is None and mirrored_aliases(settings) == {}
    assert [row["action"] for row in audit.show(store, 2)] == ["registry.refuse"] * 2


def test_a_gate_that_passed_other_bytes_allows_nothing(store, settings: Settings) -> None:
    add(store, "first")
    changed = settings.workspace.models / "lora/changed"
    with new_artifact(changed) as temp:
        for path in (settings.workspace.models / "lora/first").iterdir():
            if path.name != "MANIFEST.json":
                (temp / path.name).write_bytes(path.read_bytes() + (b" " if path.name == "chat_template.jinja" else b""))
    version = register_in(store, "changed", actor="test").stored.record.version
    assert version == 2
    with pytest.raises(
        PromotionRefusedError,
        match=r"has not examined a model with these bytes .*: medloop gate --model \S+\+models/lora/changed",
    ):
        promote_in(store, version, actor="test")


def test_no_promotion_with_an_open_incident_but_a_rollback(store, open_incident) -> None:
    first, second = add(store, "first"), add(store, "second")
    promote_in(store, first, actor="test"), promote_in(store, second, actor="test")
    open_incident(store)
    with pytest.raises(PromotionRefusedError, match="open safety incidents"):
        promote_in(store, first, actor="test")
    assert rollback_in(store, actor="test", reason="unsafe answers").stored.record.version == first
    assert holder(store, "champion").record.version == first
    with pytest.raises(NoSuchVersionError, match="No other version"):
        rollback_in(store, actor="test")


def test_a_tainted_model_is_neither_promoted_nor_rolled_back_to(store) -> None:
    first, second = add(store, "first"), add(store, "second")
    promote_in(store, first, actor="test"), promote_in(store, second, actor="test")
    with store.write() as conn:
        artifact = registry.get_version(store, store.settings.registry.model, first).record.artifact
        lineage.flag_artifact(conn, artifact, "tainted", "trained on data erased in er_1", actor="test")
    with pytest.raises(PromotionRefusedError, match="tainted"):
        promote_in(store, first, actor="test")
    with pytest.raises(PromotionRefusedError, match="tainted"):
        rollback_in(store, actor="test")


def test_the_new_champion_is_no_longer_the_challenger(store, settings: Settings) -> None:
    first, second = add(store, "first"), add(store, "second")
    promote_in(store, first, actor="test"), promote_in(store, second, actor="test", alias="challenger")
    assert mirrored_aliases(settings) == {"champion": first, "challenger": second}
    promote_in(store, second, actor="test")
    assert mirrored_aliases(settings) == {"champion": second}
    demote_in(store, "champion", actor="test", reason="withdrawn")
    assert mirrored_aliases(settings) == {} and holder(store, "champion") is None


def test_a_reason_that_names_a_patient_is_refused(store) -> None:
    version = add(store, "first")
    with pytest.raises(InputError, match="may name a person"):
        promote_in(store, version, actor="test", reason="Mr. John Smith, born 3 May 1961, complained")
    assert holder(store, "champion") is None


def test_an_alias_moved_in_mlflow_is_reported_with_the_reason_and_set_back(store, settings: Settings) -> None:
    first, bad = add(store, "first"), add(store, "bad", "fail")
    promote_in(store, first, actor="test")
    assert verify(store).problems == ()
    with open_mirror(settings) as mirror:
        mirror.set_alias("champion", bad)
    assert champion(settings).record.version == first
    (problem,) = verify(store).problems
    assert "In MLflow its version 2 is the champion" in problem and "critical_failures" in problem
    repair(store, actor="test")
    assert verify(store).problems == () and mirrored_aliases(settings) == {"champion": first}


def test_changed_bytes_and_lost_versions_in_mlflow_are_reported_and_sent_again(store, settings: Settings, tmp_path: Path) -> None:
    version = add(store, "first")
    promote_in(store, version, actor="test")
    with open_mirror(settings) as mirror:
        run = registry.get_version(store, settings.registry.model, version).mlflow_run
        mirror._client.log_text(run, "{}", "adapter/adapter_config.json")
    assert "bytes in MLflow are not those" in verify(store).problems[0]
    with pytest.raises(IntegrityError):
        pull(store, version, tmp_path / "back")
    repair(store, actor="test")
    assert verify(store).problems == () and holder(store, "champion").mlflow_version == 2
    with open_mirror(settings) as mirror:
        mirror._client.delete_registered_model(settings.registry.model)
    assert any("gone from MLflow" in problem for problem in verify(store).problems)
    repair(store, actor="test")
    assert verify(store).problems == () and len(mirrored_aliases(settings)) == 1


def test_a_row_that_was_changed_past_medloop_promotes_nothing(store, settings: Settings) -> None:
    first, bad = add(store, "first"), add(store, "bad", "fail")
    promote_in(store, first, actor="test")
    with store.transaction() as conn:
        conn.execute(text(f"UPDATE registry_aliases SET version = {bad}"))
    with pytest.raises(IntegrityError, match="registry_aliases was changed"):
        champion(settings)
    assert not verify_store(store).ok


def test_taking_the_alias_away_makes_no_older_verdict_good_again(store) -> None:
    first, second, late = (add(store, name) for name in ("first", "second", "late"))
    artifacts = {
        number: registry.get_version(store, store.settings.registry.model, number).record.artifact
        for number in (first, second, late)
    }
    promote_in(store, first, actor="test")
    for number in (second, late):
        examine(store, artifacts[number], baseline=artifacts[first])
    promote_in(store, second, actor="test")
    demote_in(store, "champion", actor="test")
    with pytest.raises(PromotionRefusedError, match=r"the last champion was another one.*medloop gate --model candidate"):
        promote_in(store, late, actor="test")
    examine(store, artifacts[late], baseline=BASE)  # what the printed command compares with while there is no champion
    promote_in(store, late, actor="test")
    demote_in(store, "champion", actor="test")
    examine(store, artifacts[second], baseline=artifacts[late])
    promote_in(store, second, actor="test")


def test_a_former_champion_that_is_worse_than_the_one_of_now_is_still_the_way_back(store) -> None:
    first, second = add(store, "first"), add(store, "second")
    promote_in(store, first, actor="test"), promote_in(store, second, actor="test")
    artifact = registry.get_version(store, store.settings.registry.model, first).record.artifact
    refusal = gates.promotion_refusal(store, artifact)
    assert "medloop registry rollback" in refusal and "medloop gate" not in refusal, "no command that stores a loss"
    examine(store, artifact, "fail")  # against the champion of now
    assert registry.reuse_refusal(store, artifact) is None
    assert rollback_in(store, actor="test").stored.record.version == first
    promote_in(store, second, actor="test")
    examine(store, artifact, "fail", baseline=BASE)  # against what it has replaced
    examine(store, artifact, "fail")
    with pytest.raises(PromotionRefusedError, match="critical_failures"):
        rollback_in(store, actor="test")
