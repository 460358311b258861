"""Puts this folder on the path, so that the tests below it share queue_desk and clinic."""

from collections.abc import Iterator

import pytest
from clinic import Clinic
from fastapi.testclient import TestClient

from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.web.app import create_app


@pytest.fixture
def clinic(settings: Settings) -> Iterator[Clinic]:
    settings = settings.model_copy(update={"device": "cpu", "offline": True})
    with open_store(settings, wait_s=5) as store:
        with TestClient(create_app(settings, supervise=False), base_url="http://127.0.0.1") as client:
            yield Clinic(settings, store, client)
