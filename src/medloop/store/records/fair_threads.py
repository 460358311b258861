"""A few threads that serve callers in turn: whoever sends a hundred slow tasks waits for them, nobody else does."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future

from medloop.store.records.write_request import OverloadedError

_Task = tuple[Callable[[], object], Future[None]]


class FairThreads:
    """Call `close` at the end: it refuses what has not begun and waits for nothing."""

    def __init__(self, threads: int, name: str, *, max_waiting: int) -> None:
        self.max_waiting = max_waiting
        self._tasks: OrderedDict[str, deque[_Task]] = OrderedDict()  # by caller; the first caller is served next
        self._wake, self._waiting, self._open = threading.Condition(), 0, True
        for number in range(threads):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    def submit(self, caller: str, task: Callable[[], object]) -> Future[None]:
        future: Future[None] = Future()
        with self._wake:
            if not self._open or self._waiting >= self.max_waiting:
                raise OverloadedError("Too many long texts are waiting; this one was not stored", "Send it again in a moment")
            self._tasks.setdefault(caller, deque()).append((task, future))
            self._waiting += 1
            self._wake.notify()
        return future

    def close(self) -> None:
        with self._wake:
            self._open = False
            left = [future for tasks in self._tasks.values() for _, future in tasks]
            self._tasks.clear()
            self._wake.notify_all()
        for future in left:
            future.set_exception(OverloadedError("The server is shutting down", "Send it again in a moment"))

    def _take(self) -> _Task | None:
        with self._wake:
            while self._open and not self._tasks:
                self._wake.wait()
            if not self._tasks:
                return None
            caller, tasks = self._tasks.popitem(last=False)
            task = tasks.popleft()
            self._waiting -= 1
            if tasks:
                self._tasks[caller] = tasks  # behind the others
            return task

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            task, future = taken
            if not future.set_running_or_notify_cancel():
                continue
            try:
                task()
            except BaseException as error:  # its caller hears of it, the thread goes on
                future.set_exception(error)
            else:
                future.set_result(None)
