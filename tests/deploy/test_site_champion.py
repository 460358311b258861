"""The champion of one site: loaded and switched like any other, beside that of main, and only if the gate would let it pass."""

import pytest
from deploy_world import name_of
from typer.testing import CliRunner

from medloop.cli import app
from medloop.deploy.reconcile import Reconciler
from medloop.errors import InputError
from medloop.loop.deploy import DeployRefusedError, deploy_alias, deploy_site, route_at
from medloop.loop.rollback import block
from medloop.store.records import registry
from medloop.store.records.routes import live_route


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
    listed = CliRunner().invoke(app, ["--home", str(settings.home), "site", "list", "--json"])
    assert listed.exit_code == 0 and own not in listed.output  # ward-b has no users, rules or experiments yet


def test_a_blocked_version_neither_becomes_nor_stays_the_champion_of_a_site(store, fleet) -> None:
    deploy_alias(fleet, actor="test")
    deploy_site(fleet, "ward-b", 2, actor="test")
    record = registry.get_version(store, "med-assistant", 2).record
    block(store, name_of(store, 2), record.artifact, 2, actor="test", reason="harm")
    assert route_at(store, "ward-b").served_name == name_of(store, 1)
    with pytest.raises(DeployRefusedError, match="was rolled back"):
        deploy_site(fleet, "ward-c", 2, actor="test")
    with pytest.raises(InputError, match="that of the registry"):
        deploy_site(fleet, "main", 2, actor="test")
