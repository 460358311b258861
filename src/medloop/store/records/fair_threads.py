"""A queue that serves callers in turn, and threads that work on one: whoever sends a hundred slow tasks waits for them, nobody
else does."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from medloop.store.records.write_request import OverloadedError

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items with the futures of their results. Call `close` at the end: it refuses what has not been taken."""

    def __init__(self, max_waiting: int) -> None:
        self.max_waiting = max_waiting
        self._items: OrderedDict[str, deque[tuple[T, Future[Any]]]] = OrderedDict()  # by caller; the first one is served next
        self._wake, self._waiting, self._open = threading.Condition(), 0, True

    def put(self, caller: str, item: T) -> Future[Any]:
        future: Future[Any] = Future()
        with self._wake:
            if not self._open or self._waiting >= self.max_waiting:
                raise OverloadedError("Too many texts are waiting; this one was not stored", "Send it again in a moment")
            self._items.setdefault(caller, deque()).append((item, future))
            self._waiting += 1
            self._wake.notify()
        return future

    def take(self, enough: Callable[[list[T]], bool] = bool) -> list[tuple[T, Future[Any]]]:
        """What is next, callers in turn, until it is `enough`: at least one item. Waits for it; nothing once it is closed."""
        taken: list[tuple[T, Future[Any]]] = []
        with self._wake:
            while self._open and not taken:
                while not self._items and self._open:
                    self._wake.wait()
                while self._items and not (taken and enough([item for item, _ in taken])):
                    taken += self._next()
        return taken

    def _next(self) -> list[tuple[T, Future[Any]]]:
        """The next item; none if its sender has gone."""
        caller, items = self._items.popitem(last=False)
        item, future = items.popleft()
        self._waiting -= 1
        if items:
            self._items[caller] = items  # behind the others
        return [(item, future)] if future.set_running_or_notify_cancel() else []

    def close(self) -> None:
        with self._wake:
            self._open = False
            left = [future for items in self._items.values() for _, future in items]
            self._items.clear()
            self._wake.notify_all()
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(OverloadedError("The server is shutting down", "Send it again in a moment"))


class FairThreads:
    """Call `close` at the end: it refuses what has not begun and waits for nothing."""

    def __init__(self, threads: int, name: str, *, max_waiting: int) -> None:
        self._queue: FairQueue[Callable[[], object]] = FairQueue(max_waiting)
        for number in range(threads):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, caller: str, task: Callable[[], object]) -> Future[None]:
        return self._queue.put(caller, task)

    def close(self) -> None:
        self._queue.close()

    def _work(self) -> None:
        while taken := self._queue.take():
            ((task, future),) = taken
            try:
                task()
            except BaseException as error:  # its caller hears of it, the thread goes on
                future.set_exception(error)
            else:
                future.set_result(None)
