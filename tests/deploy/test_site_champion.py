"""The champion of one site: loaded and switched like any other, beside that of main, and only if the gate would let it pass."""

import pytest
from deploy_world import artifact_of, name_of
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import utc_now
from medloop.deploy.reconcile import Reconciler
from medloop.errors import InputError
from medloop.loop.deploy import DeployRefusedError, deploy_alias, deploy_site, route_at
from medloop.loop.live_watch import LiveWatch
from medloop.loop.rollback import block_version, clear_block, roll_back
from medloop.store.integrity import verify_store
from medloop.store.records import crud, lineage, sites, users
from medloop.store.records.deploy_events import block_of
from medloop.store.records.routes import live_route, live_routes
from medloop.testing.feedback import make_thumb


@pytest.fixture(autouse=True)
def people(store) -> None:
    for name, site in (("dr.b", "ward-b"), ("dr.c", "ward-c")):
        sites.assign(store, users.add_user(store, name, "clinician", actor="test"), site, actor="test")


@pytest.fixture
def at_ward(store, fleet) -> str:
    """The name of version 2, which answers at ward-b; version 1 answers at main."""
    deploy_alias(fleet, actor="test")
    deploy_site(fleet, "ward-b", 2, actor="test")
    return name_of(store, 2)


def test_a_site_gets_a_version_of_its_own_and_main_keeps_its_champion(store, fleet, doubles, settings) -> None:
    deploy_alias(fleet, actor="test")
    printed = CliRunner().invoke(app, ["--home", str(settings.home), "site", "champion", "ward-b", "2"])
    assert printed.exit_code == 0, printed.output
    main, own = name_of(store, 1), name_of(store, 2)
    assert live_route(store).served_name == main and route_at(store, "ward-b").served_name == own
    assert route_at(store, "ward-c").served_name == main
    assert all(set(double.adapters) == {main, own} for double in doubles)
    doubles[0].adapters.clear()  # it has restarted
    Reconciler(fleet).check()
    assert all(set(double.adapters) == {main, own} for double in doubles)
    deploy_alias(fleet, actor="test")  # the same again unloads nothing that a site needs
    assert all(own in double.adapters for double in doubles)
    sites.assign(store, users.get_user(store, "dr.b"), "main", actor="test")  # nobody is left there, and it still answers
    listed = CliRunner().invoke(app, ["--home", str(settings.home), "site", "list", "--json"])
    assert listed.exit_code == 0 and own in listed.output
    status = CliRunner().invoke(app, ["--home", str(settings.home), "deploy", "status"])
    assert f"At ward-b: Version 2 ({own}) since" in status.output


def test_a_person_blocks_the_champion_of_a_site(store, fleet, doubles, settings, at_ward) -> None:
    def run(*words: str):
        return CliRunner().invoke(app, ["--home", str(settings.home), *words])

    refused = run("deploy", "block", "1", "--reason", "harm")
    assert refused.exit_code != 0 and live_route(store).version == 1, "main's champion is rolled back instead"
    done = run("deploy", "block", "2", "--reason", "wrong doses")
    assert done.exit_code == 0 and "The champion of main answers at ward-b now." in done.output
    assert route_at(store, "ward-b").served_name == name_of(store, 1)
    Reconciler(fleet).check()
    assert all(set(double.adapters) == {name_of(store, 1)} for double in doubles), "it is unloaded and stays so"
    with pytest.raises(DeployRefusedError, match="was rolled back"):
        deploy_site(fleet, "ward-c", 2, actor="test")
    with pytest.raises(InputError, match="blocked already"):
        block_version(store, 2, actor="test", reason="again")
    clear_block(store, 2, actor="test")
    assert route_at(store, "ward-b").version == 1, "a cleared version comes back when somebody names it, not before"
    assert deploy_site(fleet, "ward-b", 2, actor="test").changed and route_at(store, "ward-b").version == 2
    assert verify_store(store).ok


def test_a_site_gives_its_champion_back_and_needs_no_server_for_it(store, fleet, doubles, settings, at_ward) -> None:
    words = ["--home", str(settings.home), "site", "champion", "ward-b"]
    for wrong in ([*words, "2", "--none"], words):
        assert "Name a version, or say --none" in str(CliRunner().invoke(app, wrong).exception)
    for double in doubles:
        double.kill()
    done = CliRunner().invoke(app, [*words, "--none", "--reason", "as main again"])
    assert done.exit_code == 0 and f"before it was {at_ward}" in done.output
    assert route_at(store, "ward-b").version == 1 and [route.version for route in live_routes(store)] == [1]
    again = CliRunner().invoke(app, [*words, "--none"])
    assert again.exit_code != 0 and block_of(store, artifact_of(store, 2)) is None, "nothing is held against the version"


def test_an_alarm_about_the_champion_of_a_site_blocks_it_and_leaves_main_alone(store, fleet, at_ward) -> None:
    watch = LiveWatch(fleet)
    assert watch.check().sites == ()
    for number, rater in enumerate(("usr_1", "usr_2")):
        said = {"critical": True, "model_version": at_ward, "clinician_id": rater, "timestamp": utc_now()}
        crud.add(store, [make_thumb(number, "Rest.", False).model_copy(update=said)], actor="test")
    report = watch.check()
    assert report.rollback is None and report.alarms == () and "answers at ward-b" in report.sites[-1]
    assert block_of(store, artifact_of(store, 2)).reason.startswith("critical_flags: 2 people")
    assert route_at(store, "ward-b").served_name == live_route(store).served_name == name_of(store, 1)
    assert watch.check().sites == ()


def test_a_rollback_of_main_and_an_erasure_reach_a_site_with_the_same_version(store, fleet, at_ward) -> None:
    deploy_site(fleet, "ward-c", 1, actor="test")
    roll_back(fleet, actor="test", reason="harm", to="base")
    assert route_at(store, "ward-c").served_name == "base" and route_at(store, "ward-b").version == 2
    with store.write() as conn:
        lineage.flag_artifact(conn, artifact_of(store, 2), "tainted", "trained on data erased in er_1", actor="test")
    assert route_at(store, "ward-b").served_name == "base" and [route.version for route in live_routes(store)] == [None]


def test_a_slip_of_the_pen_makes_no_site(fleet) -> None:
    with pytest.raises(InputError, match="that of the registry"):
        deploy_site(fleet, "main", 2, actor="test")
    with pytest.raises(InputError, match="Nobody belongs to the site 'wrad-b'"):
        deploy_site(fleet, "wrad-b", 2, actor="test")
