"""A workspace whose first version is champion and whose second has passed the gate; two doubles of model servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy_world import add_versions

from medloop.loop.deploy import open_fleet
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.testing.served_double import ServerDouble


@pytest.fixture
def doubles() -> Iterator[list[ServerDouble]]:
    with ServerDouble() as first, ServerDouble() as second:
        yield [first, second]


@pytest.fixture
def settings(tmp_path: Path, doubles: list[ServerDouble]) -> Settings:
    home = tmp_path / "clinic"
    init_workspace(home)
    deploy = {"replicas": ", ".join(double.url for double in doubles), "drain_s": 0, "check_every_s": 0.05, "probe_every_s": 0.05}
    settings = Settings.model_validate({"home": home, "deploy": deploy})
    (home / "medloop.yaml").write_text(
        "deploy:\n" + "".join(f"  {name}: {value!r}\n" for name, value in deploy.items()), encoding="utf-8"
    )
    with open_store(settings) as store:
        add_versions(store)
    return settings


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with open_store(settings) as opened:
        yield opened


@pytest.fixture
def fleet(store: Store):
    with open_fleet(store) as opened:
        yield opened
