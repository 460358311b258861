"""kill -9 at many moments of a deployment and of a rollback: a version serves at each of them, and the same again continues."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import pytest
from deploy_world import live_version, name_of, promote
from killed_deploy import work_until

from medloop.contracts import Message
from medloop.deploy.copies import copy_problem
from medloop.deploy.server import HttpServer
from medloop.loop.deploy import deploy_alias, open_fleet
from medloop.loop.live_watch import LiveWatch
from medloop.loop.rollback import roll_back
from medloop.store.db import open_store
from medloop.store.integrity import verify_store
from medloop.store.records.routes import live_route


def assert_it_serves(settings, doubles) -> int:
    """A version answers on both servers, its bytes are whole, no row is wrong; the version."""
    with open_store(settings) as store:
        route = live_route(store)
        assert route is not None and route.version is not None and verify_store(store).ok
        for double in doubles:
            server = HttpServer(double.url)
            assert server.generate(route.served_name, [Message(role="user", content="What helps?")]).text
            server.close()
        assert copy_problem(store.settings.home / "serving" / route.served_name) is None
        return route.version


@pytest.mark.parametrize("moments", [3, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("work", ["deploy", "rollback"])
def test_a_kill_leaves_a_version_serving_and_the_same_again_continues(
    settings, doubles, tmp_path: Path, work: str, moments: int
) -> None:
    with open_store(settings) as store, open_fleet(store) as fleet:
        deploy_alias(fleet, actor="test")
        promote(store, 2)
        if work == "rollback":
            deploy_alias(fleet, actor="test")
        first, second = name_of(store, 1), name_of(store, 2)
    before = [dict(double.adapters) for double in doubles]
    shutil.copytree(settings.home, tmp_path / "before")
    code, steps = work_until(settings.home, work, 0)
    assert code == 0 and steps > 100
    rng, served = random.Random(7), list[int]()
    for number in range(moments):
        shutil.rmtree(settings.home)
        shutil.copytree(tmp_path / "before", settings.home)
        for double, adapters in zip(doubles, before, strict=True):
            double.adapters.clear()
            double.adapters.update(adapters)
        last = 1 + (number * (steps - 1)) // (moments - 1) if moments < 10 else rng.randint(1, steps)
        assert work_until(settings.home, work, last)[0] == -signal.SIGKILL
        served.append(assert_it_serves(settings, doubles))
        with open_store(settings) as store, open_fleet(store) as fleet:
            if work == "deploy":
                deploy_alias(fleet, actor="test")
            elif live_version(store) == 2:
                roll_back(fleet, actor="test", reason="worse in triage")
            LiveWatch(fleet).check()
            wanted, version = (second, 2) if work == "deploy" else (first, 1)
            assert live_version(store) == version and all(set(double.adapters) == {wanted} for double in doubles)
        assert_it_serves(settings, doubles)
    assert set(served) == {1, 2}
