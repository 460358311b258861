"""Traces on their way to the store: behind the answers, many at a time, bounded, counted.

    async with TraceQueue(save, counts, share=1.0) as traces:
        traces.put(trace_id, make)         # never waits; a full queue drops it, and the counter says so
        await traces.ensure(trace_id)      # somebody refers to it: store it now, also if sampling had left it out

`make` gives the trace, and is called in a thread when its turn comes: the answer does not wait for it. Traces wait up to
`LINGER_S` seconds for one another, because a transaction of many costs little more than one of one.

`share` of the traces are stored, chosen by their id. The others stay in memory for a while, so that feedback about one of them
can still bring its trace into the store.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType

from medloop.contracts import Trace
from medloop.errors import BusyError
from medloop.serve.gateway.trace_counts import TraceCounts

log = logging.getLogger(__name__)
MOST_WAITING = 2000
BATCH = 64  # traces of one transaction
LINGER_S = 0.25
MOST_REMEMBERED = 2000  # left out by sampling
DRAIN_S = 5.0
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)

MakeTrace = Callable[[], Trace]
SaveTraces = Callable[[Sequence[Trace]], Awaitable[object]]  # all of them or none
Erased = Callable[[], int]  # another number after every erasure


class TraceQueue:
    def __init__(
        self, save: SaveTraces, counts: TraceCounts, *, share: float = 1.0, most: int = MOST_WAITING, erased: Erased = int
    ) -> None:
        self._save, self.counts, self.share, self.most = save, counts, share, most
        self._waiting: OrderedDict[str, tuple[MakeTrace, asyncio.Future[None]]] = OrderedDict()
        self._saving: dict[str, asyncio.Future[None]] = {}
        self._left_out: OrderedDict[str, MakeTrace] = OrderedDict()
        self._erased, self._seen = erased, erased()
        self._wake, self._hurry = asyncio.Event(), asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> TraceQueue:
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Store what waits; what the store does not take in a few seconds stays counted as accepted, and so as lost."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while self._waiting or self._saving:
                    self._hurry.set()
                    await asyncio.wait([*(future for _, future in self._waiting.values()), *self._saving.values()])
        except TimeoutError:
            log.error("%d traces were not stored before the server ended", self.waiting)
        assert self._worker is not None
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._saving)

    def is_sampled(self, trace_id: str) -> bool:
        if self.share >= 1:
            return True
        number = int.from_bytes(hashlib.sha256(trace_id.encode()).digest()[:7], "big")
        return number < self.share * 2**56

    def put(self, trace_id: str, make: MakeTrace, *, always: bool = False) -> bool:
        """Whether it will be stored. `always`: whatever the share is, because a guard acted."""
        if not (always or self.is_sampled(trace_id)):
            self._forget_erased()
            self._left_out[trace_id] = make
            while len(self._left_out) > MOST_REMEMBERED:
                self._left_out.popitem(last=False)
            return False
        self.counts.add("accepted")
        if self.waiting >= self.most:
            self.counts.add("dropped")
            log.warning("a trace was dropped: %d wait for the store", self.waiting)
            return False
        self._waiting[trace_id] = (make, asyncio.get_running_loop().create_future())
        self._wake.set()
        if len(self._waiting) >= BATCH:
            self._hurry.set()
        return True

    def _forget_erased(self) -> None:
        """What sampling left out ends, all of it, as soon as anything was erased: nothing else would find it here."""
        if (number := self._erased()) != self._seen:
            self._left_out.clear()
            self._seen = number

    async def ensure(self, trace_id: str | None) -> None:
        """Return when this trace is in the store, if this server has it at all."""
        if trace_id is None:
            return
        if self._left_out:  # else there is nothing to forget, and every rating would look at a file
            self._forget_erased()
        if (make := self._left_out.pop(trace_id, None)) is not None:
            self.put(trace_id, make, always=True)
        future = self._saving.get(trace_id) or self._waiting.get(trace_id, (None, None))[1]
        if future is not None:
            self._hurry.set()
            await asyncio.wait([future], timeout=DRAIN_S)

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._wake.clear()
                self._hurry.clear()
                await self._wake.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await self._hurry.wait()
            self._hurry.clear()
            batch = [self._waiting.popitem(last=False) for _ in range(min(BATCH, len(self._waiting)))]
            self._saving = {trace_id: future for trace_id, (_, future) in batch}
            try:
                await self._store(await asyncio.to_thread(self._made, [make for _, (make, _) in batch]))
            finally:
                for future in self._saving.values():
                    future.set_result(None)
                self._saving = {}
            if self._waiting and len(self._waiting) >= BATCH:
                self._hurry.set()

    def _made(self, makes: Sequence[MakeTrace]) -> list[Trace]:
        traces = []
        for make in makes:
            try:
                traces.append(make())
            except Exception as error:  # never its text: it may hold what people wrote
                log.error("a trace was not made: %s", type(error).__name__)
                self.counts.add("failed")
        return traces

    async def _store(self, traces: Sequence[Trace]) -> None:
        if not traces:
            return
        for pause in (*RETRY_S, None):
            try:
                await self._save(traces)
            except BusyError:
                if pause is not None:
                    await asyncio.sleep(pause)
                    continue
                log.error("%d traces were not stored: the store is not available", len(traces))
            except Exception as error:  # never its text, as above
                if len(traces) > 1:  # one of them may be to blame: each is stored without the others
                    for trace in traces:
                        await self._store([trace])
                    return
                log.error("a trace was not stored: %s", type(error).__name__)
            else:
                self.counts.add("written", len(traces))
                return
            self.counts.add("failed", len(traces))
            return
