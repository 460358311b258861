"""A workspace whose first version is champion and whose second has passed the gate; two doubles of model servers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from deploy_world import add_versions

from medloop.deploy.canary import load_canaries
from medloop.loop.deploy import open_fleet
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.testing.served_double import ServerDouble


@pytest.fixture
def doubles() -> Iterator[list[ServerDouble]]:
    with ServerDouble() as first, ServerDouble() as second:
        yield [first, second]


@pytest.fixture
def settings(tmp_path: Path, doubles: list[ServerDouble], new_workspace: Path) -> Settings:
    home = tmp_path / "clinic"
    shutil.copytree(new_workspace, home)
    canaries = [canary.model_dump() for canary in load_canaries()[:4]]  # zh and en, with and without an emergency: enough here
    (home / "canaries.yaml").write_text(yaml.safe_dump(canaries), encoding="utf-8")
    deploy = {
        "canaries": str(home / "canaries.yaml"), "replicas": ", ".join(double.url for double in doubles), "drain_s": 0,
        "check_every_s": 0.05, "probe_every_s": 0.05,
    }  # fmt: skip
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
