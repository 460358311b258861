"""How a version goes live: in waves, after canaries, by one switch; whatever goes wrong before it leaves the old one serving."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from deploy_world import add_versions, artifact_of, live_version, name_of, promote

from medloop.contracts import Incident
from medloop.deploy.canary import load_canaries
from medloop.deploy.copies import copy_problem
from medloop.deploy.protocol import DeployFailedError
from medloop.deploy.server import HttpServer, ServedAnswer, ServerDownError
from medloop.errors import ConfigError, IntegrityError
from medloop.loop.assistant_guards import emergency_guard
from medloop.loop.deploy import DeployRefusedError, deploy_alias, judge_with
from medloop.models.safety import fingerprint
from medloop.store import audit
from medloop.store.integrity import verify_store
from medloop.store.records import crud, lineage
from medloop.store.records.deploy_events import events
from medloop.store.records.registry import NoSuchVersionError
from medloop.store.records.routes import live_route
from medloop.testing.registry import examine


def kinds(store) -> list[str]:
    return [event.kind for event in reversed(events(store))]


def test_the_champion_goes_live_step_by_step(store, fleet, doubles) -> None:
    outcome = deploy_alias(fleet, actor="test", reason="safer")
    name = name_of(store, 1)
    assert outcome.changed and live_route(store).served_name == name and live_route(store).artifact == artifact_of(store, 1)
    assert [double.adapters for double in doubles] == [{name: str(fleet.folder / name)}] * 2
    assert kinds(store) == ["start", "load", "canary", "load", "canary", "switch", "done"]
    assert not (fleet.folder / name / "samples.jsonl").exists()  # texts stay where they are
    assert fingerprint(fleet.folder / name) == fingerprint(store.settings.home / "models/lora/first")
    assert verify_store(store).ok and audit.show(store, 1)[0]["action"] == "deploy.done"


def test_the_next_version_replaces_it_under_a_name_of_its_own(store, fleet, doubles) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2)
    deploy_alias(fleet, actor="test")
    old, new = name_of(store, 1), name_of(store, 2)
    assert live_route(store).served_name == new and live_route(store).previous == old
    assert all(set(double.adapters) == {new} for double in doubles)
    assert (fleet.folder / old).is_dir()  # to roll back to
    assert all(was_there for double in doubles for _, was_there in double.log)
    again = deploy_alias(fleet, actor="test")
    assert not again.changed and [double.loads for double in doubles] == [[old, new]] * 2


def test_old_copies_go_only_after_no_server_has_them(store, fleet, doubles) -> None:
    deploy_alias(fleet, actor="test")
    first = name_of(store, 1)
    add_versions(store, "third", "fourth", "fifth")
    for version in (2, 3, 4):
        promote(store, version)
        deploy_alias(fleet, actor="test")
    assert (fleet.folder / first).is_dir()  # three earlier versions are kept
    doubles[1].kill()
    promote(store, 5)
    deploy_alias(fleet, actor="test")
    assert (fleet.folder / first).is_dir()  # the server that is away may have it
    doubles[1].restart()
    promote(store, 4)
    deploy_alias(fleet, actor="test")
    assert not (fleet.folder / first).exists() and (fleet.folder / name_of(store, 2)).is_dir()


@pytest.mark.parametrize("fault", ["refuse_load", "forget"])
def test_a_server_that_does_not_take_it_leaves_the_old_version(store, fleet, doubles, fault: str) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2)
    for double in doubles:
        double.faults += [fault] * 4
    with pytest.raises(DeployFailedError, match="did not go live"):
        deploy_alias(fleet, actor="test")
    assert live_version(store) == 1 and kinds(store)[-1] == "fail"
    assert all(set(double.adapters) == {name_of(store, 1)} for double in doubles)
    for double in doubles:
        double.faults.clear()
    assert deploy_alias(fleet, actor="test").changed and live_version(store) == 2


@pytest.mark.parametrize("away", ["killed before", "dies at load"])
def test_one_of_two_servers_is_enough(store, fleet, doubles, away: str) -> None:
    if away == "killed before":
        doubles[0].kill()
    else:
        doubles[0].faults.append("die_at_load")
    assert deploy_alias(fleet, actor="test").changed and live_version(store) == 1
    assert name_of(store, 1) in doubles[1].adapters


def test_without_a_server_nothing_goes_live(store, fleet, doubles) -> None:
    for double in doubles:
        double.kill()
    with pytest.raises(DeployFailedError, match="cannot be reached"):
        deploy_alias(fleet, actor="test")
    assert live_version(store) is None


UNFIT = {
    "calms": (None, "calms an emergency"),
    "empty": ("<think>hm</think>  ", "is empty"),
    "thinks on": ("<think>Chest pain could be", "reasoning does not end"),
    "another language": ("这可能危及生命，请立即拨打120或马上去急诊。", "another language"),
}


@pytest.mark.parametrize("how", UNFIT)
def test_a_version_that_fails_a_canary_on_any_server_never_answers(store, fleet, doubles, how: str) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2)
    text, reason = UNFIT[how]
    if text is None:
        doubles[1].bad.add(name_of(store, 2))
    else:
        doubles[1].texts[name_of(store, 2)] = text
    with pytest.raises(DeployFailedError, match=reason):
        deploy_alias(fleet, actor="test")
    assert live_version(store) == 1 and not any(name_of(store, 2) in double.adapters for double in doubles)


def test_the_notice_of_the_guard_counts_only_where_the_guard_acts() -> None:
    emergency, *_ = load_canaries()
    vague = ServedAnswer("Chest pain has many causes, and I hope that you feel better soon.", "stop", 0.1)
    calming = ServedAnswer("This is harmless, so stay at home and rest. You do not need a doctor.", "stop", 0.1)
    assert "does not send an emergency" in judge_with(None)(emergency, vague).reason
    assert "does not send an emergency" in judge_with(lambda texts: None)(emergency, vague).reason
    assert judge_with(emergency_guard)(emergency, vague).passed
    assert not judge_with(emergency_guard)(emergency, calming).passed


def test_only_what_has_passed_the_gate_goes_live(store, fleet) -> None:
    def refused(match: str) -> None:
        with pytest.raises((DeployRefusedError, NoSuchVersionError), match=match):
            deploy_alias(fleet, actor="test")
        assert live_version(store) is None

    with pytest.raises(NoSuchVersionError, match="is the challenger"):
        deploy_alias(fleet, "challenger", actor="test")
    with store.write() as conn:
        lineage.flag_artifact(conn, artifact_of(store, 1), "tainted", "trained on data erased in er_1", actor="test")
    refused("tainted by an erasure")
    promote(store, 2)
    crud.add(store, [Incident(record_id="fb_1")], actor="test")
    refused("open safety incidents")


def test_a_verdict_that_turns_while_it_is_deployed_is_asked_again_in_the_switch(store, fleet, monkeypatch) -> None:
    judge = fleet.judge

    def meanwhile(canary, answer):
        examine(store, artifact_of(store, 1), "fail")
        return judge(canary, answer)

    object.__setattr__(fleet, "judge", meanwhile)
    with pytest.raises(DeployFailedError, match="critical_failures"):
        deploy_alias(fleet, actor="test")
    assert live_version(store) is None


def test_the_challenger_has_a_route_of_its_own(store, fleet, doubles) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2, "challenger")
    deploy_alias(fleet, "challenger", actor="test")
    assert live_version(store) == 1 and live_route(store, "challenger").version == 2
    assert all(set(double.adapters) == {name_of(store, 1), name_of(store, 2)} for double in doubles)


def test_bytes_that_are_not_the_registered_ones_are_not_copied(store, fleet) -> None:
    path = store.settings.home / "models/lora/first/adapter_config.json"
    path.write_text('{"peft_type": "EVIL"}\n', encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"was changed|has .* bytes instead"):
        deploy_alias(fleet, actor="test")
    assert not list(fleet.folder.glob("med-assistant*"))


def test_a_changed_copy_is_left_alone_and_a_new_one_gets_a_number(store, fleet, doubles) -> None:
    deploy_alias(fleet, actor="test")
    promote(store, 2)
    deploy_alias(fleet, actor="test")
    path = fleet.folder / name_of(store, 1) / "adapter_config.json"
    path.write_text('{"peft_type": "EVIL"}\n', encoding="utf-8")
    assert copy_problem(path.parent) is not None
    promote(store, 1)
    deploy_alias(fleet, actor="test")
    assert live_route(store).served_name == name_of(store, 1) + "-c2" and "EVIL" in path.read_text()


@pytest.mark.parametrize("url", ["http://8.8.8.8:8000", "http://user:secret@127.0.0.1:1", "http://[2001:4860:4860::8888]:80"])
def test_model_servers_on_public_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"deploy\.replicas"):
        HttpServer(url)


def test_a_server_that_drips_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not stop.wait(0.02):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        server = HttpServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        start = time.monotonic()
        try:
            with pytest.raises(ServerDownError):
                server._call("GET", "/v1/models", seconds=0.3)
            assert time.monotonic() - start < 15  # not the twenty seconds that the body would take
        finally:
            stop.set()
            server.close()
            thread.join()
