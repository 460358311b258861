"""Group commit: many callers submit requests and one thread writes them. A caller gets the answer after the COMMIT of its rows.

    with GroupCommitWriter(store).running() as writer:
        result = await writer.submit(WriteRequest("usr_1", build=lambda known: NewRows({"feedback_id": ...}, (feedback,))))
        result = writer.submit_and_wait(request)                 # the same from a plain thread

A batch is what waits when the thread is free, up to `max_batch` requests. One transaction writes records (encrypted), their audit
lines, plain rows and the idempotency key. So an acknowledged request is completely on the disk, and a repeated one gets its first
answer. A request that cannot be stored fails alone. When `max_waiting` requests wait, the next is refused (OverloadedError). When
the database is unavailable, the batch is tried again for `wait_s` seconds and then refused. If the answer to a COMMIT is lost,
the ids show whether it succeeded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, select

from medloop.contracts import utc_now
from medloop.errors import BusyError, MedloopError, NoSpaceError, StoreError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.insert_rows import insert_rows
from medloop.store.records import crud
from medloop.store.records.chunks import chunks
from medloop.store.records.fair_threads import FairThreads
from medloop.store.records.write_request import (
    Json,
    KeyReusedError,
    LookupResults,
    NewRows,
    OverloadedError,
    StoreUnavailableError,
    WriteRequest,
    WriteResult,
    look_up,
)
from medloop.store.tables import id_column, idempotency_keys

MAX_BATCH = 256
MAX_WAITING = 1024
WAIT_S = 5.0
KEPT_DAYS = 7  # how long a repeated request gets its first answer
BUSY_BATCH = 8  # after a batch of this size, more requests are on their way
LINGER_S, MAX_LINGERS = 0.004, 4
PREPARING = 2  # threads that prepare requests, callers in turn
_SWEEP_S = 600.0
SEND_AGAIN = "Send it again with the same Idempotency-Key"
# Statements are built once: SQLAlchemy takes longer to build one than SQLite takes to answer it.
_KEYS = select(idempotency_keys).where(
    idempotency_keys.c.caller == bindparam("caller"), idempotency_keys.c.key.in_(bindparam("keys", expanding=True))
)

log = logging.getLogger(__name__)


@dataclass
class WriterCounts:
    """For the metrics page; written by one thread, read by others."""

    records: dict[str, int] = field(default_factory=dict)
    replays: int = 0
    refused: int = 0
    batches: dict[int, int] = field(default_factory=dict)  # by size
    commit_s: float = 0.0


@dataclass
class _Waiting:
    request: WriteRequest
    future: asyncio.Future[WriteResult] | Future[WriteResult]
    loop: asyncio.AbstractEventLoop | None
    since: float
    rows: NewRows | Exception | None = None
    outcome: WriteResult | Exception | None = None


class GroupCommitWriter:
    """The only writer of a server. It is created closed; `running` opens it and drains it at the end."""

    def __init__(
        self, store: Store, *, max_waiting: int = MAX_WAITING, max_batch: int = MAX_BATCH, wait_s: float = WAIT_S
    ) -> None:
        self.store, self.max_waiting, self.max_batch, self.wait_s = store, max_waiting, max_batch, wait_s
        self.counts = WriterCounts()
        self._queue: deque[_Waiting] = deque()
        self._wake = threading.Condition()
        self.committed = threading.Event()  # set after each batch, for who follows what is written
        self._open = False
        self._swept = float("-inf")
        self._last_size = 0  # of the batch before

    @contextmanager
    def running(self) -> Iterator[GroupCommitWriter]:
        """Accept requests; at the end accept no more, store what is waiting, then return."""
        thread = threading.Thread(target=self._work, name="medloop-writer", daemon=True)
        self._preparing = FairThreads(PREPARING, "medloop-prepare", max_waiting=self.max_waiting)
        self._open = True
        thread.start()
        try:
            yield self
        finally:
            with self._wake:
                self._open = False
                self._wake.notify_all()
            self._preparing.close()
            thread.join()

    def refuse_long(self) -> None:
        """At the end: what needs long work and has not begun is refused; everything else goes on."""
        self._preparing.close()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) >= self.max_waiting

    async def submit(self, request: WriteRequest) -> WriteResult:
        """Hand over a request; returns when its rows are on the disk."""
        loop = asyncio.get_running_loop()
        if request.prepare is not None:
            await asyncio.wrap_future(self._preparing.submit(request.caller, request.prepare))
        future: asyncio.Future[WriteResult] = loop.create_future()
        item = _Waiting(request, future, loop, time.monotonic())
        if request.begin is None:
            self._put(item)
            return await future
        (begun := request.begin()).add_done_callback(partial(self._put_next, item))
        try:
            return await future
        finally:
            begun.cancel()  # if nobody waits for it any more

    def _put_next(self, item: _Waiting, begun: Future[Any]) -> None:
        """The work in another process is done: on to the writer, without a detour through the event loop."""
        try:
            begun.result()
            item.since = time.monotonic()
            if not item.future.cancelled():  # else its sender has gone
                self._put(item)
        except (Exception, CancelledError) as error:
            item.outcome = _raisable(error)
            _settle([item])

    def submit_and_wait(self, request: WriteRequest) -> WriteResult:
        """The same for a caller without an event loop."""
        if request.prepare is not None:
            request.prepare()
        if request.begin is not None:
            request.begin().result()
        future: Future[WriteResult] = Future()
        self._put(_Waiting(request, future, None, time.monotonic()))
        return future.result()

    def _put(self, item: _Waiting) -> None:
        with self._wake:
            if not self._open:
                raise OverloadedError("The server is shutting down", "Send it again in a moment")
            if len(self._queue) >= self.max_waiting:
                self.counts.refused += 1
                raise OverloadedError("Too many requests are waiting; this one was not stored", "Send it again in a moment")
            self._queue.append(item)
            self._wake.notify()

    def _take(self) -> list[_Waiting]:
        """What is waiting; an empty list when the writer is closed and everything is stored."""
        with self._wake:
            while not self._queue and self._open:
                self._wake.wait()
        self._linger()
        with self._wake:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self.max_batch))]
        self._last_size = len(batch)
        return batch

    def _linger(self) -> None:
        """Under load, wait while more requests arrive: a COMMIT of many costs little more than a COMMIT of a few."""
        waiting, rounds = 0, MAX_LINGERS if self._last_size >= BUSY_BATCH else 0
        while rounds and self._open and waiting < len(self._queue) < self.max_batch:
            waiting, rounds = len(self._queue), rounds - 1
            time.sleep(LINGER_S)

    def _work(self) -> None:
        while batch := self._take():
            try:
                self._store_batch(batch)
            except BaseException as error:  # the thread must continue, and no caller may wait forever
                log.error("a batch failed: %s", type(error).__name__)
                for item in batch:
                    item.outcome = item.outcome or _raisable(error)
            _settle(batch)
            self.committed.set()

    def _store_batch(self, batch: Sequence[_Waiting]) -> None:
        overdue = time.monotonic() - 2 * self.wait_s
        for item in batch:
            if item.since < overdue:  # the database was unavailable for so long that its sender has given up
                item.outcome = StoreUnavailableError("The store did not answer in time", SEND_AGAIN)
        live = [item for item in batch if item.outcome is None]
        self._build(live)
        self._write(live)
        size = len(live)
        self.counts.batches[size] = self.counts.batches.get(size, 0) + 1

    def _build(self, batch: Sequence[_Waiting]) -> None:
        lookups = {lookup for item in batch for lookup in item.request.lookups}
        if not lookups:
            self._build_with(batch, LookupResults(self.store, None, {}, {}))
            return
        try:
            with self.store.read() as conn:
                self._build_with(batch, look_up(self.store, conn, lookups))
        except MedloopError as error:
            for item in batch:
                item.rows = item.rows or _for_sender(error)

    def _build_with(self, batch: Sequence[_Waiting], known: LookupResults) -> None:
        for item in batch:
            try:
                item.rows = item.request.build(known)
            except Exception as error:
                item.rows = _raisable(error)

    def _write(self, batch: Sequence[_Waiting]) -> None:
        """Write all in one transaction; if the database refuses it, each in its own, so that only the bad ones fail."""
        try:
            self._write_with_retries(batch)
        except (BusyError, NoSpaceError) as error:
            for item in batch:
                item.outcome = _raisable(_for_sender(error))
        except Exception as error:
            if len(batch) == 1:
                batch[0].outcome = _raisable(error)
                return
            for item in batch:
                self._build([item])  # it may refer to one that was stored just before it
                self._write([item])

    def _write_with_retries(self, batch: Sequence[_Waiting]) -> None:
        deadline, retry = time.monotonic() + self.wait_s, False
        while True:
            try:
                return self._transact(batch, retry)
            except BusyError:
                if time.monotonic() >= deadline:
                    raise
            retry = True
            time.sleep(0.1)

    def _transact(self, batch: Sequence[_Waiting], retry: bool) -> None:
        started = time.monotonic()
        for item in batch:
            item.outcome = None
        with self.store.write() as conn:
            fresh = self._fresh(conn, batch)
            if retry:
                fresh = [item for item in fresh if not _was_committed(conn, item)]
            _insert(self.store, conn, fresh)
            self._sweep(conn)
        self._count(batch, fresh, time.monotonic() - started)

    def _fresh(self, conn: Connection, batch: Sequence[_Waiting]) -> list[_Waiting]:
        """The requests to insert; the others get their outcome here. With equal keys in one batch, the first one counts."""
        answers = _earlier_answers(conn, [item.request for item in batch if item.request.idempotency_key is not None])
        fresh = []
        for item in batch:
            request, name = item.request, (item.request.caller, item.request.idempotency_key or "")
            if request.idempotency_key is not None and name in answers:
                fingerprint, answer = answers[name]
                item.outcome = WriteResult(answer, replayed=True) if fingerprint == request.fingerprint else _key_reused()
            elif isinstance(item.rows, Exception):
                item.outcome = item.rows
            else:
                assert item.rows is not None
                item.outcome = WriteResult(item.rows.answer, replayed=item.rows.known)
                fresh.append(item)
                if request.idempotency_key is not None:
                    answers[name] = (request.fingerprint, item.rows.answer)
        return fresh

    def _sweep(self, conn: Connection) -> None:
        if time.monotonic() - self._swept > _SWEEP_S:
            conn.execute(delete(idempotency_keys).where(idempotency_keys.c.created < utc_now() - timedelta(days=KEPT_DAYS)))
            self._swept = time.monotonic()

    def _count(self, batch: Iterable[_Waiting], fresh: Iterable[_Waiting], seconds: float) -> None:
        for item in fresh:
            assert isinstance(item.rows, NewRows)
            for record in item.rows.records:
                name = crud.TABLES[type(record)].name
                self.counts.records[name] = self.counts.records.get(name, 0) + 1
        self.counts.replays += sum(isinstance(item.outcome, WriteResult) and item.outcome.replayed for item in batch)
        self.counts.commit_s += seconds


def _insert(store: Store, conn: Connection, fresh: Sequence[_Waiting]) -> None:
    built = [(item.request, item.rows) for item in fresh if isinstance(item.rows, NewRows)]
    crud.insert_in(store, conn, [record for _, rows in built for record in rows.records])
    plain_rows: dict[Table, list[Json]] = {}
    for request, rows in built:
        for table, row in rows.plain_rows:
            plain_rows.setdefault(table, []).append(row)
        if request.idempotency_key is not None:
            plain_rows.setdefault(idempotency_keys, []).append(_key_row(request, rows.answer))
        if rows.update is not None:
            rows.update(conn)
    for table, values in plain_rows.items():
        insert_rows(store, conn, table, values)
    audit.append(
        conn,
        [event for request, rows in built for event in (*crud.added_events(rows.records, request.caller), *rows.events)],
    )


def _key_row(request: WriteRequest, answer: Json) -> Json:
    key = {"caller": request.caller, "key": request.idempotency_key, "fingerprint": request.fingerprint}
    return {**key, "status": 201, "answer": answer, "created": utc_now()}


def _earlier_answers(conn: Connection, requests: Sequence[WriteRequest]) -> dict[tuple[str, str], tuple[str, Json]]:
    """The fingerprint and the answer of the first request, by caller and idempotency key."""
    keys_by_caller: dict[str, set[str]] = {}
    for request in requests:
        keys_by_caller.setdefault(request.caller, set()).add(request.idempotency_key or "")
    answers: dict[tuple[str, str], tuple[str, Json]] = {}
    for caller, keys in keys_by_caller.items():  # one query per caller, otherwise no index is used
        for chunk in chunks(sorted(keys)):
            for row in conn.execute(_KEYS, {"caller": caller, "keys": chunk}):
                answers[caller, row.key] = (row.fingerprint, row.answer)
    return answers


def _was_committed(conn: Connection, item: _Waiting) -> bool:
    """Whether a COMMIT whose answer was lost succeeded: the id of the first record, which was made here, is stored then."""
    assert isinstance(item.rows, NewRows)
    if not item.rows.records:
        return False
    first = item.rows.records[0]
    column = id_column(crud.TABLES[type(first)])
    return conn.execute(select(column).where(column == crud.id_of(first))).first() is not None


def _key_reused() -> KeyReusedError:
    return KeyReusedError("This Idempotency-Key was used for another request", "Use a new key for each request")


def _for_sender(error: Exception) -> Exception:
    """The error as the sender may see it: without the name of the database."""
    if isinstance(error, NoSpaceError):
        return NoSpaceError("The server's disk is full; nothing was stored", "Send it again when its owner has freed some space")
    if type(error) in (BusyError, StoreError):
        return StoreUnavailableError("The store is not available", SEND_AGAIN)
    return error


def _raisable(error: BaseException) -> Exception:
    """The error as a future can hold it: one that refuses it would leave the callers of the whole batch waiting."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__} in the writer").with_traceback(error.__traceback__)


def _settle(batch: Sequence[_Waiting]) -> None:
    """Wake each event loop once per batch, not once per request."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
    for item in batch:
        if item.loop is None:
            _finish([item])
        else:
            by_loop.setdefault(item.loop, []).append(item)
    for loop, items in by_loop.items():
        try:
            loop.call_soon_threadsafe(_finish, items)
        except RuntimeError:  # the loop is closed, so nobody waits for the answer
            log.warning("%d answers had no receiver", len(items))


def _finish(items: Sequence[_Waiting]) -> None:
    for item in items:
        if item.future.done():
            continue
        if isinstance(item.outcome, WriteResult):
            item.future.set_result(item.outcome)
        else:
            item.future.set_exception(item.outcome or AssertionError("no outcome"))
