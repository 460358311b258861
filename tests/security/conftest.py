"""One app with people of every role, and a folder beside its workspace that nobody may reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from payloads import CANARY
from sec_world import World, client_of

from medloop.api.limits import RequestLimits
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, users
from medloop.testing.feedback import make_preference
from medloop.web.app import create_app


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> Iterator[World]:
    base = tmp_path_factory.mktemp("secure")
    home, outside = base / "clinic", base / "outside"
    (outside / "model").mkdir(parents=True)
    (outside / "secret.jsonl").write_text(f'{{"id": "q", "question": "{CANARY}"}}\n')
    (outside / "model/config.json").write_text(f'{{"{CANARY}": 1, "num_hidden_layers": 2, "hidden_size": 8}}')
    init_workspace(home)
    (home / "data/rl/training_prompts.jsonl").write_text('{"id": "q", "question": "Pain?"}\n')
    settings = Settings(home=home, device="cpu", threads=1, offline=True)
    with open_store(settings) as store:
        names = {**{role: role for role in users.ROLES}, "other": "clinician"}
        people = {name: users.add_user(store, name, role, actor="test") for name, role in names.items()}
        keys = {name: users.new_key(store, user, actor="test") for name, user in people.items()}
        crud.add(store, [make_preference(n, f"rest {n}", f"run {n}", "a") for n in range(6)], actor="test")
    with client_of(create_app(settings, supervise=False, limits=RequestLimits(rate=1e6))) as client:
        yield World(client, keys, settings, outside)
