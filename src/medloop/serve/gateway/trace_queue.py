"""Traces on their way to the store: behind the answers, bounded, counted.

    async with TraceQueue(save, counts, share=1.0) as traces:
        traces.put(trace)                  # never waits; a full queue drops it, and the counter says so
        await traces.ensure(trace_id)      # somebody refers to it: store it now, also if sampling had left it out

`share` of the traces are stored, chosen by their id. The others stay in memory for a while, so that feedback about one of them
can still bring its trace into the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from types import TracebackType

from medloop.contracts import Trace
from medloop.errors import BusyError, MedloopError
from medloop.serve.gateway.trace_counts import TraceCounts

log = logging.getLogger(__name__)
MOST_WAITING = 2000
WORKERS = 8
MOST_REMEMBERED = 2000  # left out by sampling
DRAIN_S = 5.0
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)

SaveTrace = Callable[[Trace], Awaitable[object]]
Erased = Callable[[], int]  # another number after every erasure


class TraceQueue:
    def __init__(
        self, save: SaveTrace, counts: TraceCounts, *, share: float = 1.0, most: int = MOST_WAITING, erased: Erased = int
    ) -> None:
        self._save, self.counts, self.share, self.most = save, counts, share, most
        self._waiting: OrderedDict[str, tuple[Trace, asyncio.Future[None]]] = OrderedDict()
        self._saving: dict[str, asyncio.Future[None]] = {}
        self._left_out: OrderedDict[str, Trace] = OrderedDict()
        self._erased, self._seen = erased, erased()
        self._wake = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> TraceQueue:
        self._workers = [asyncio.create_task(self._work()) for _ in range(WORKERS)]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Store what waits; what the store does not take in a few seconds stays counted as accepted, and so as lost."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while self._waiting or self._saving:
                    pending = [*(future for _, future in self._waiting.values()), *self._saving.values()]
                    await asyncio.wait(pending)
        except TimeoutError:
            log.error("%d traces were not stored before the server ended", len(self._waiting) + len(self._saving))
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._saving)

    def is_sampled(self, trace_id: str) -> bool:
        number = int.from_bytes(hashlib.sha256(trace_id.encode()).digest()[:7], "big")
        return number < self.share * 2**56

    def put(self, trace: Trace, *, always: bool = False) -> bool:
        """Whether it will be stored. `always`: whatever the share is, because a guard acted."""
        if not (always or self.is_sampled(trace.trace_id)):
            self._forget_erased()
            self._left_out[trace.trace_id] = trace
            while len(self._left_out) > MOST_REMEMBERED:
                self._left_out.popitem(last=False)
            return False
        self.counts.add("accepted")
        if self.waiting >= self.most:
            self.counts.add("dropped")
            log.warning("a trace was dropped: %d wait for the store", self.waiting)
            return False
        self._waiting[trace.trace_id] = (trace, asyncio.get_running_loop().create_future())
        self._wake.set()
        return True

    def count_failed(self) -> None:
        """A trace that could not even be made."""
        self.counts.add("accepted")
        self.counts.add("failed")

    def _forget_erased(self) -> None:
        """What sampling left out ends, all of it, as soon as anything was erased: nothing else would find it here."""
        if (number := self._erased()) != self._seen:
            self._left_out.clear()
            self._seen = number

    async def ensure(self, trace_id: str | None) -> None:
        """Return when this trace is in the store, if this server has it at all."""
        if trace_id is None:
            return
        self._forget_erased()
        if (trace := self._left_out.pop(trace_id, None)) is not None:
            self.put(trace, always=True)
        future = self._saving.get(trace_id) or self._waiting.get(trace_id, (None, None))[1]
        if future is not None:
            await asyncio.wait([future], timeout=DRAIN_S)

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            trace_id, (trace, future) = self._waiting.popitem(last=False)
            self._saving[trace_id] = future
            try:
                await self._store(trace)
            finally:
                del self._saving[trace_id]
                future.set_result(None)

    async def _store(self, trace: Trace) -> None:
        for pause in (*RETRY_S, None):
            try:
                await self._save(trace)
            except BusyError:
                if pause is not None:
                    await asyncio.sleep(pause)
                    continue
                log.error("a trace was not stored: the store is not available")
            except MedloopError as error:
                log.error("a trace was not stored: %s", type(error).__name__)
            except Exception as error:  # never its text: it may hold what people wrote
                log.error("a trace was not stored: %s", type(error).__name__)
            else:
                self.counts.add("written")
                return
            self.counts.add("failed")
            return
