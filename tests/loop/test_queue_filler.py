"""The server's thread that fills the review queue ends with the server."""

import threading
from types import SimpleNamespace

import pytest

from medloop.loop import queue_filler
from medloop.loop.queue_filler import QueueFiller
from medloop.store.db import Store


def test_a_look_that_begins_at_the_end_does_not_hold_up_the_server(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Committed(threading.Event):
        def clear(self) -> None:
            filler.ended.set()  # the server ends at this very moment
            self.set()
            super().clear()

    monkeypatch.setattr(queue_filler, "EVERY_S", 60.0)
    filler = QueueFiller(store, SimpleNamespace(committed=Committed()))
    thread = threading.Thread(target=filler._run, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
