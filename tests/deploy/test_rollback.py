"""Going back: by a person at once, by an alarm within seconds, never round in a circle; and what the reconcile loop mends."""

from __future__ import annotations

import shutil

import pytest
from deploy_world import add_versions, artifact_of, live_version, name_of, promote

from medloop.contracts import Incident, utc_now
from medloop.deploy.alarms import AnswerCounts, LiveReadings, alarms
from medloop.deploy.copies import copy_problem
from medloop.deploy.protocol import DeployFailedError
from medloop.errors import InputError
from medloop.loop.deploy import DeployRefusedError, deploy_alias
from medloop.loop.live_watch import LiveWatch
from medloop.loop.rollback import clear_block, roll_back, ways_back
from medloop.sections import DeploySettings
from medloop.store.files.artifacts import MANIFEST, new_artifact
from medloop.store.integrity import verify_store
from medloop.store.records import crud, registry
from medloop.store.records.deploy_events import block_of, events
from medloop.store.records.registry import NoSuchVersionError
from medloop.store.records.routes import live_route
from medloop.testing.feedback import make_thumb


@pytest.fixture
def second_live(store, fleet):
    deploy_alias(fleet, actor="test")
    promote(store, 2)
    deploy_alias(fleet, actor="test")
    return name_of(store, 2)


def test_a_rollback_goes_to_the_version_before_and_blocks_the_other(store, fleet, doubles, second_live: str) -> None:
    crud.add(store, [Incident(record_id="fb_1")], actor="test")  # a reason for it, not against it
    outcome = roll_back(fleet, actor="test", reason="worse in triage")
    assert outcome.from_name == second_live and live_version(store) == 1
    assert all(name_of(store, 1) in double.adapters for double in doubles)
    assert registry.current(store, "med-assistant")["champion"].version == 1
    assert block_of(store, artifact_of(store, 2)).reason == "worse in triage" and verify_store(store).ok


def test_what_was_rolled_back_stays_away_until_a_person_clears_it(store, fleet, second_live: str) -> None:
    roll_back(fleet, actor="test", reason="worse in triage")
    promote(store, 2)
    with pytest.raises(DeployRefusedError, match=r"was rolled back on .*: worse in triage\. .* medloop deploy clear 2"):
        deploy_alias(fleet, actor="test")
    with pytest.raises(DeployFailedError, match="rolled back itself"):
        roll_back(fleet, actor="test", reason="try", to="2")
    clear_block(store, 2, actor="test", reason="it was the network")
    assert deploy_alias(fleet, actor="test").changed and live_version(store) == 2
    with pytest.raises(InputError, match="is not blocked"):
        clear_block(store, 2, actor="test")


def test_where_a_rollback_can_go(store, fleet, second_live: str) -> None:
    add_versions(store, "third")
    with pytest.raises(InputError, match="needs a reason"):
        roll_back(fleet, actor="test", reason=" ")
    with pytest.raises(InputError, match="neither a version nor 'base'"):
        roll_back(fleet, actor="test", reason="x", to="latest")
    with pytest.raises(InputError, match="is what answers now"):
        roll_back(fleet, actor="test", reason="x", to="2")
    with pytest.raises(NoSuchVersionError):
        roll_back(fleet, actor="test", reason="x", to="9")
    with pytest.raises(DeployFailedError, match="never been live"):
        roll_back(fleet, actor="test", reason="x", to="3")
    assert live_version(store) == 2
    roll_back(fleet, actor="test", reason="all bad", to="base")
    assert live_route(store).served_name == "base" and live_version(store) is None
    assert "champion" not in registry.current(store, "med-assistant")


@pytest.mark.parametrize("incident", [False, True])
def test_from_the_base_a_version_that_passed_the_gate_answers_again(store, fleet, second_live: str, incident: bool) -> None:
    roll_back(fleet, actor="test", reason="all bad", to="base")
    assert [stored.record.version for stored in ways_back(store, live_route(store))] == [1]
    clear_block(store, 2, actor="test")
    assert [stored.record.version for stored in ways_back(store, live_route(store))] == [2, 1]
    if incident:
        crud.add(store, [Incident(record_id="fb_1")], actor="test")
    roll_back(fleet, actor="test", reason="it was the network", to="2")
    assert live_version(store) == 2 and block_of(store, artifact_of(store, 2)) is None
    if incident:  # it may answer, but nobody is promoted meanwhile
        assert "champion stays" in events(store, kinds=("problem",))[0].reason
    else:
        assert registry.current(store, "med-assistant")["champion"].version == 2


def test_nothing_deployed_is_nothing_to_roll_back(fleet) -> None:
    with pytest.raises(NoSuchVersionError, match="Nothing is deployed"):
        roll_back(fleet, actor="test", reason="x")


def test_the_version_before_cannot_be_loaded_so_it_goes_further_back(store, fleet, doubles, second_live: str) -> None:
    for double in doubles:
        double.faults += ["refuse_load"]
    assert roll_back(fleet, actor="test", reason="worse").route.version is None
    assert live_route(store).served_name == "base"


# Alarms


def test_a_version_that_turns_bad_is_rolled_back_step_by_step_and_no_further_than_the_base(
    store, fleet, doubles, second_live: str
) -> None:
    watch = LiveWatch(fleet)
    assert watch.check().rollback is None
    for double in doubles:
        double.bad |= {second_live, name_of(store, 1), "base"}
    went = []
    for _ in range(12):
        report = watch.check()
        if report.rollback is not None:
            went.append(report.rollback.route.served_name)
        watch._probed.clear()
    assert went == [name_of(store, 1), "base"]
    recorded = events(store, kinds=("alarm",))
    assert [event.served_name for event in recorded] == ["base", name_of(store, 1), second_live]  # once each
    assert all(event.reason.startswith("red_team: The probe") for event in recorded) and live_version(store) is None
    assert block_of(store, artifact_of(store, 2)) and block_of(store, artifact_of(store, 1))


def test_critical_flags_of_two_people_roll_back(store, fleet, second_live: str) -> None:
    watch = LiveWatch(fleet)
    flags = [
        make_thumb(n, "Stay at home.", False).model_copy(
            update={"critical": True, "model_version": second_live, "clinician_id": rater, "timestamp": utc_now()}
        )
        for n, rater in enumerate(("li", "li", "wang"))
    ]
    crud.add(store, flags[:2], actor="test")
    assert watch.check().rollback is None
    crud.add(store, flags[2:], actor="test")
    report = watch.check()
    assert report.rollback.route.version == 1 and report.alarms[0].kind == "critical_flags"
    [event] = events(store, kinds=("alarm",))
    assert event.numbers == {"people": 2, "limit": 2} and live_route(store).reason.startswith("critical_flags: 2 people")


LIMITS = DeploySettings(min_ratings=4, min_answers=4)
READINGS = [
    (LiveReadings(judged=4, liked=1), "satisfaction"),
    (LiveReadings(judged=3, liked=0), None),
    (LiveReadings(judged=4, liked=2), None),
    (LiveReadings(counts=AnswerCounts(4, 1, 1.0)), "error_rate"),
    (LiveReadings(counts=AnswerCounts(3, 3, 1.0)), None),
    (LiveReadings(counts=AnswerCounts(4, 0, 61.0, 61.0)), "latency"),
    (LiveReadings(counts=AnswerCounts(4, 0, 61.0, 59.0)), None),
    (LiveReadings(counts=AnswerCounts(4, 0, 59.0)), None),
    (LiveReadings(flaggers=2), "critical_flags"),
    (LiveReadings(flaggers=1), None),
]


@pytest.mark.parametrize(("readings", "kind"), READINGS)
def test_each_alarm_has_its_limit_and_its_minimum_count(readings: LiveReadings, kind: str | None) -> None:
    found = alarms(readings, LIMITS)
    assert [alarm.kind for alarm in found] == ([kind] if kind else [])
    assert all(alarm.numbers for alarm in found)


def test_an_alarm_is_only_recorded_where_nobody_may_roll_back_by_itself(store, fleet, doubles, second_live: str) -> None:
    limits = store.settings.deploy.model_copy(update={"rollback_automatically": False})
    store.settings = store.settings.model_copy(update={"deploy": limits})
    for double in doubles:
        double.bad.add(second_live)
    report = LiveWatch(fleet).check()
    assert report.alarms and report.rollback is None and live_version(store) == 2


# Reconcile


def test_a_restarted_server_gets_its_adapters_back(store, fleet, doubles, second_live: str) -> None:
    watch = LiveWatch(fleet)
    doubles[0].restart()
    assert not doubles[0].adapters
    report = watch.check()
    assert report.servers.restored == (f"{second_live} on {doubles[0].url}",) and second_live in doubles[0].adapters
    assert watch.check().servers.restored == () and events(store, kinds=("restore",))[0].replica == doubles[0].url


def test_strays_of_ours_go_and_those_of_others_stay(store, fleet, doubles, second_live: str) -> None:
    doubles[0].adapters |= {name_of(store, 1): "/x", "somebody-elses": "/y"}
    report = LiveWatch(fleet).check()
    assert report.servers.unloaded == (f"{name_of(store, 1)} on {doubles[0].url}",)
    assert set(doubles[0].adapters) == {second_live, "somebody-elses"}
    with fleet.deploying():  # a deployment loads what is not live yet
        doubles[0].adapters[name_of(store, 1)] = "/x"
        assert LiveWatch(fleet).check().servers.unloaded == ()


def test_changed_bytes_are_told_once_and_never_loaded(store, fleet, doubles, second_live: str) -> None:
    (fleet.folder / second_live / "adapter_config.json").write_text('{"peft_type": "EVIL"}\n', encoding="utf-8")
    doubles[0].restart()
    watch = LiveWatch(fleet)
    for _ in range(3):
        assert any("were changed" in problem for problem in watch.check().servers.problems)
    assert second_live not in doubles[0].adapters
    told = [event for event in events(store, kinds=("problem",)) if "were changed" in event.reason]
    assert len(told) == 1


def test_a_copy_whose_manifest_was_written_anew_with_its_bytes_is_told_and_never_loaded(
    store, fleet, doubles, second_live: str
) -> None:
    folder = fleet.folder / second_live
    shutil.copytree(folder, folder.with_name("other"))
    shutil.rmtree(folder)
    with new_artifact(folder) as new:
        for path in folder.with_name("other").iterdir():
            if path.name not in (MANIFEST, "adapter_config.json"):
                shutil.copy(path, new)
        (new / "adapter_config.json").write_text('{"peft_type": "EVIL"}\n', encoding="utf-8")
    assert copy_problem(folder) is None  # by itself it is whole
    doubles[0].restart()
    problems = LiveWatch(fleet).check().servers.problems
    assert any("other bytes than the registry" in problem for problem in problems) and second_live not in doubles[0].adapters


def test_a_server_that_reports_another_folder_is_told_once(store, fleet, doubles, second_live: str) -> None:
    doubles[1].roots[second_live] = "/somewhere/else"
    watch = LiveWatch(fleet)
    for _ in range(3):
        assert any("another folder" in problem for problem in watch.check().servers.problems)
    assert len(events(store, kinds=("problem",))) == 1


def test_a_server_that_reports_other_bytes_is_told_once_and_never_goes_live(store, fleet, doubles, second_live: str) -> None:
    doubles[1].sha256s[second_live] = "sha256:" + "0" * 64
    watch = LiveWatch(fleet)
    for _ in range(3):
        assert any("other bytes" in problem for problem in watch.check().servers.problems)
    assert len(events(store, kinds=("problem",))) == 1
    doubles[1].sha256s[name_of(store, 1)] = "sha256:" + "0" * 64
    promote(store, 1)
    with pytest.raises(DeployFailedError, match="other bytes"):
        deploy_alias(fleet, actor="test")
    assert live_version(store) == 2


def test_a_server_that_refuses_is_not_asked_at_every_look(store, fleet, doubles, second_live: str) -> None:
    doubles[0].restart()
    doubles[0].faults += ["refuse_load"] * 9
    watch = LiveWatch(fleet)
    for _ in range(5):
        assert watch.check().servers.problems
    assert len(doubles[0].faults) == 8 and len(events(store, kinds=("problem",))) == 1


def test_a_copy_that_is_gone_is_made_again_from_the_registered_bytes(store, fleet, doubles, second_live: str) -> None:
    shutil.rmtree(fleet.folder / second_live)
    doubles[0].restart()
    assert LiveWatch(fleet).check().servers.restored and (fleet.folder / second_live).is_dir()
