"""The word lists load beside the server; it does not end before they have."""

import threading
import time

from fastapi.testclient import TestClient

from medloop.api import app as api
from medloop.settings import Settings


def test_a_server_that_ends_while_it_warms_up_waits_for_that(settings: Settings, monkeypatch) -> None:
    """A thread inside native code when Python ends aborted the process (exit code -6 instead of 0)."""
    ended, leaving = [], threading.Event()

    def slowly(texts: list[str]) -> None:
        leaving.wait(60)
        time.sleep(0.3)
        ended.append(texts)

    monkeypatch.setattr(api, "doubt_about", slowly)
    with TestClient(api.create_app(settings, supervise=False), base_url="http://127.0.0.1"):
        leaving.set()
    assert ended == [["warm"]]
