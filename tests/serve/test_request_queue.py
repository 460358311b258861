"""The queue of the embedded server: bounded, and fair between clients."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from medloop.serve.server.request_queue import RequestQueue


class Ask(NamedTuple):
    client: str
    number: int


def test_a_client_with_many_requests_waits_behind_its_own() -> None:
    queue: RequestQueue[Ask] = RequestQueue(16)
    for number in range(6):
        queue.put(Ask("busy", number))
    queue.put(Ask("late", 0))
    running: Counter[str] = Counter()
    taken = []
    while len(queue):
        request = queue.take(running)
        running[request.client] += 1
        taken.append(request)
    assert taken[:3] == [Ask("busy", 0), Ask("late", 0), Ask("busy", 1)]
    assert [request.number for request in taken if request.client == "busy"] == list(range(6))


def test_one_client_cannot_fill_the_queue() -> None:
    queue: RequestQueue[Ask] = RequestQueue(8)
    while not queue.full_for("busy"):
        queue.put(Ask("busy", len(queue)))
    assert len(queue) == 6 and not queue.full_for("other")
    queue.put(Ask("other", 0))
    queue.put(Ask("third", 0))
    assert queue.full_for("other") and queue.full_for("fourth")


def test_a_removed_request_gives_its_place_back() -> None:
    queue: RequestQueue[Ask] = RequestQueue(2)
    queue.put(Ask("a", 0))
    assert queue.full_for("a")
    assert queue.remove(Ask("a", 0)) and not queue.remove(Ask("a", 0))
    assert not queue.full_for("a") and len(queue) == 0


def test_the_client_with_the_fewest_running_rows_is_next() -> None:
    queue: RequestQueue[Ask] = RequestQueue(8)
    queue.put(Ask("busy", 0))
    queue.put(Ask("idle", 0))
    assert queue.take({"busy": 3}) == Ask("idle", 0)
