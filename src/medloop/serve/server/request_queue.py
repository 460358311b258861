"""Requests that wait for a row, bounded and fair: a client with many requests waits behind its own, not before others'."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

SHARE = 0.75  # of the places that one client may hold, so that another always finds one


class Waiting(Protocol):
    @property
    def client(self) -> str: ...


R = TypeVar("R", bound=Waiting)


class RequestQueue(Generic[R]):
    """Not safe for threads by itself: the engine's lock guards it."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._by_client: OrderedDict[str, deque[R]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def full_for(self, client: str) -> bool:
        mine = len(self._by_client.get(client, ()))
        return self._size >= self.places or mine >= max(1, int(self.places * SHARE))

    def put(self, request: R) -> None:
        assert not self.full_for(request.client), "the caller has asked whether there is room"
        self._by_client.setdefault(request.client, deque()).append(request)
        self._size += 1

    def take(self, running: Mapping[str, int]) -> R:
        """The next request: of the client with the fewest running rows; among equals, of the one whose turn is longest ago."""
        client = min(self._by_client, key=lambda name: running.get(name, 0))
        requests = self._by_client.pop(client)
        request = requests.popleft()
        if requests:
            self._by_client[client] = requests  # at the end: its next turn comes after the others'
        self._size -= 1
        return request

    def remove(self, request: R) -> bool:
        requests = self._by_client.get(request.client)
        if requests is None or request not in requests:
            return False
        requests.remove(request)
        self._size -= 1
        if not requests:
            del self._by_client[request.client]
        return True

    def take_all(self) -> list[R]:
        requests = [request for queue in self._by_client.values() for request in queue]
        self._by_client.clear()
        self._size = 0
        return requests
