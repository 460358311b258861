"""Rollbacks that must not go astray: merged weights are no base, a healthy version stays, visitors of a page are people."""

from __future__ import annotations

import pytest
from deploy_world import artifact_of, live_version, name_of, promote

from medloop.contracts import utc_now
from medloop.deploy import protocol
from medloop.deploy.copies import make_copy
from medloop.deploy.protocol import DeployFailedError, DeployOvertakenError
from medloop.loop.deploy import deploy_alias
from medloop.loop.live_watch import LiveWatch
from medloop.loop.rollback import roll_back
from medloop.store.files.artifacts import MANIFEST, new_artifact
from medloop.store.records import crud, registry
from medloop.store.records.deploy_events import block_of, events
from medloop.store.records.routes import add_route, live_route, routes
from medloop.testing.feedback import make_thumb


@pytest.fixture
def second_live(store, fleet) -> str:
    deploy_alias(fleet, actor="test")
    promote(store, 2)
    deploy_alias(fleet, actor="test")
    return name_of(store, 2)


def test_merged_weights_of_a_version_are_not_the_base(store, fleet, doubles, second_live: str) -> None:
    doubles[0].base = f"{second_live}-merged"
    assert roll_back(fleet, actor="test", reason="all bad", to="base").route.served_name == "base"
    doubles[1].base = f"{name_of(store, 1)}-merged"
    with pytest.raises(DeployFailedError, match="No model server has the base"):
        roll_back(fleet, actor="test", reason="all bad", to="base")


def test_a_server_that_refuses_a_load_does_not_hold_up_the_others(store, fleet, doubles) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2)
    doubles[0].faults.append("refuse_load")
    assert deploy_alias(fleet, actor="test").changed and live_version(store) == 2
    assert name_of(store, 2) in doubles[1].adapters
    assert any(doubles[0].url in event.reason for event in events(store, kinds=("problem",)))


def test_a_server_with_the_name_from_another_folder_still_stops_a_deployment(store, fleet, doubles) -> None:
    doubles[0].adapters[name_of(store, 1)] = "/somewhere/else"
    with pytest.raises(DeployFailedError, match="from another folder"):
        deploy_alias(fleet, actor="test")
    assert live_version(store) is None


def test_an_alarm_about_one_version_does_not_remove_the_next(store, fleet, second_live: str) -> None:
    first = routes(store)[-1]
    with pytest.raises(DeployOvertakenError, match="does not answer any more"):
        roll_back(fleet, actor="medloop", reason="red_team", automatic=True, expected=first)
    assert live_version(store) == 2 and block_of(store, artifact_of(store, 2)) is None


def test_a_rollback_ends_when_the_route_moves_under_it(store, fleet, second_live: str, monkeypatch) -> None:
    fixed = live_route(store).model_copy(update={"served_name": "fixed", "timestamp": utc_now()})
    load = protocol.Deployment._load_in_waves

    def load_while_another_deploys(self):
        if live_route(store).served_name != "fixed":
            add_route(store, fixed)
        return load(self)

    monkeypatch.setattr(protocol.Deployment, "_load_in_waves", load_while_another_deploys)
    with pytest.raises(DeployOvertakenError, match="changed by somebody else"):
        roll_back(fleet, actor="test", reason="worse in triage")
    assert live_route(store).served_name == "fixed"


def test_the_challenger_arm_leaves_the_champion_alias_and_goes_along_with_the_champion(store, fleet) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2, "challenger")
    deploy_alias(fleet, "challenger", actor="test")
    promote(store, 2)
    deploy_alias(fleet, actor="test")
    roll_back(fleet, actor="test", reason="worse in triage")
    assert live_version(store) == 1 and live_route(store, "challenger").version == 1
    assert registry.current(store, "med-assistant")["champion"].version == 1
    roll_back(fleet, actor="test", reason="worse in triage", to="base", arm="challenger")
    assert registry.current(store, "med-assistant")["champion"].version == 1 and live_version(store) == 1


def test_visitors_who_share_the_key_of_a_page_are_different_people(store, fleet, second_live: str) -> None:
    def flag(number: int, subject: str | None):
        said = {"critical": True, "model_version": second_live, "clinician_id": None, "subject": subject, "timestamp": utc_now()}
        return make_thumb(number, "Stay at home.", False).model_copy(update={**said, "recorded_by": "usr_page"})

    crud.add(store, [flag(1, "sub_1"), flag(2, "sub_1")], actor="test")
    assert LiveWatch(fleet).check().rollback is None
    crud.add(store, [flag(3, "sub_2")], actor="test")
    assert LiveWatch(fleet).check().rollback.route.version == 1


def test_a_copy_that_was_changed_together_with_its_manifest_is_not_used(store, fleet) -> None:
    stored = registry.get_version(store, "med-assistant", 1)
    source = store.settings.home / stored.path
    copy = make_copy(fleet.folder, stored.record, source)
    assert make_copy(fleet.folder, stored.record, source) == copy
    files = {path.name: path.read_bytes() for path in copy.folder.iterdir() if path.name != MANIFEST}
    with new_artifact(copy.folder, replace=True) as forged:
        for name, content in files.items():
            (forged / name).write_bytes(content)
        (forged / "adapter_config.json").write_text('{"peft_type": "EVIL"}\n', encoding="utf-8")
    assert make_copy(fleet.folder, stored.record, source).name == f"{copy.name}-c2"
