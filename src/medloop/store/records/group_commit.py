"""Group commit: many requests hand in rows, one thread writes them; an answer is given after the COMMIT that holds its rows.

    with Ingest(store).running() as ingest:
        stored = await ingest.stored(Submission(caller="usr_1", build=lambda known: Rows({"feedback_id": ...}, (feedback,))))
        stored = ingest.wait(submission)                 # the same from a plain thread

A batch is what is waiting when the thread is free, up to `most_batch`, in one transaction: records (encrypted), their audit
lines, the rows beside them and the idempotency key. So an acknowledged request is on the disk whole, and a repeated one finds
its first answer. A submission that cannot be stored fails alone. When `most_waiting` are waiting, the next is refused at once
(OverloadedError); when the database is away, the batch is tried again for `wait_s` and then refused. After a lost COMMIT the
ids tell whether it went through.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import Connection, Table, bindparam, delete, insert, select

from medloop.contracts import utc_now
from medloop.errors import BusyError, MedloopError, NoSpaceError, StoreError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import crud as records
from medloop.store.records.write_request import (
    AwayError,
    Json,
    KeyReusedError,
    Known,
    OverloadedError,
    Rows,
    Stored,
    Submission,
    chunks,
    held_rows,
    look_up,
)
from medloop.store.tables import idempotency_keys, natural_id

MOST_BATCH = 256
MOST_WAITING = 1024
WAIT_S = 5.0
KEPT_DAYS = 7  # a repeated request finds its first answer for so long
BUSY = 8  # after a batch of so many, more are on their way
LINGER_S, LINGERS = 0.002, 5
_SWEEP_S = 600.0
# Statements are made once: SQLAlchemy takes longer to make one than SQLite to answer it.
_KEYS = select(idempotency_keys).where(
    idempotency_keys.c.caller == bindparam("caller"), idempotency_keys.c.key.in_(bindparam("keys", expanding=True))
)


log = logging.getLogger("medloop.ingest")


@dataclass
class Counts:
    """For the metrics page; written by one thread, read by others."""

    records: dict[str, int] = field(default_factory=dict)
    replays: int = 0
    refused: int = 0
    batches: dict[int, int] = field(default_factory=dict)  # by size
    commit_s: float = 0.0


@dataclass
class _Waiting:
    submission: Submission
    future: asyncio.Future[Stored] | Future[Stored]
    loop: asyncio.AbstractEventLoop | None
    since: float
    rows: Rows | Exception | None = None
    outcome: Stored | Exception | None = None


class Ingest:
    """The one writer of a server. Made closed; `running` opens it and drains it at the end."""

    def __init__(
        self, store: Store, *, most_waiting: int = MOST_WAITING, most_batch: int = MOST_BATCH, wait_s: float = WAIT_S
    ) -> None:
        self.store, self.most_waiting, self.most_batch, self.wait_s = store, most_waiting, most_batch, wait_s
        self.counts = Counts()
        self._queue: deque[_Waiting] = deque()
        self._wake = threading.Condition()
        self._open = False
        self._swept = float("-inf")
        self._last = 0  # size of the batch before

    @contextmanager
    def running(self) -> Iterator[Ingest]:
        """Take submissions; at the end take no more, store what is waiting, then return."""
        thread = threading.Thread(target=self._work, name="medloop-ingest", daemon=True)
        self._aside = ThreadPoolExecutor(1, "medloop-aside")
        self._open = True
        thread.start()
        try:
            yield self
        finally:
            with self._wake:
                self._open = False
                self._wake.notify_all()
            self._aside.shutdown(wait=False, cancel_futures=True)
            thread.join()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        return len(self._queue) >= self.most_waiting

    async def stored(self, submission: Submission) -> Stored:
        """Hand in, and come back when it is on the disk."""
        loop = asyncio.get_running_loop()
        if submission.before is not None:
            await loop.run_in_executor(self._aside, submission.before)
        future: asyncio.Future[Stored] = loop.create_future()
        self._put(_Waiting(submission, future, loop, time.monotonic()))
        return await future

    def wait(self, submission: Submission) -> Stored:
        if submission.before is not None:
            submission.before()
        future: Future[Stored] = Future()
        self._put(_Waiting(submission, future, None, time.monotonic()))
        return future.result()

    def _put(self, item: _Waiting) -> None:
        with self._wake:
            if not self._open:
                raise OverloadedError("The server is going down", "Send it again in a moment")
            if len(self._queue) >= self.most_waiting:
                self.counts.refused += 1
                raise OverloadedError("Too many requests are waiting; this one was not stored", "Send it again in a moment")
            self._queue.append(item)
            self._wake.notify()

    def _take(self) -> list[_Waiting]:
        """What is waiting; an empty list when the end has come."""
        with self._wake:
            while not self._queue and self._open:
                self._wake.wait()
        self._linger()
        with self._wake:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), self.most_batch))]
        self._last = len(batch)
        return batch

    def _linger(self) -> None:
        """Under load let the batch grow as long as more keeps coming: a COMMIT for many costs little more than one for a few."""
        waiting, turns = 0, LINGERS if self._last >= BUSY else 0
        while turns and self._open and waiting < len(self._queue) < self.most_batch:
            waiting, turns = len(self._queue), turns - 1
            time.sleep(LINGER_S)

    def _work(self) -> None:
        while batch := self._take():
            try:
                self._store_batch(batch)
            except Exception as error:  # whatever it is, the thread goes on and nobody waits for ever
                log.error("a batch failed: %s", type(error).__name__)
                for item in batch:
                    item.outcome = item.outcome or error
            _settle(batch)

    def _store_batch(self, batch: Sequence[_Waiting]) -> None:
        overdue = time.monotonic() - 2 * self.wait_s
        for item in batch:
            if item.since < overdue:  # behind a database that was away: its sender has given up by now
                item.outcome = AwayError("The store did not answer in time", "Send it again with the same Idempotency-Key")
        live = [item for item in batch if item.outcome is None]
        self._build(live)
        self._write(live)
        size = len(live)
        self.counts.batches[size] = self.counts.batches.get(size, 0) + 1

    def _build(self, batch: Sequence[_Waiting]) -> None:
        wanted = {need for item in batch for need in item.submission.needs}
        if not wanted:
            self._build_with(batch, Known(self.store, None, {}, {}))
            return
        try:
            with self.store.read() as conn:
                rows = look_up(conn, wanted)
                self._build_with(batch, Known(self.store, conn, rows, held_rows(conn, rows)))
        except MedloopError as error:
            for item in batch:
                item.rows = item.rows or _plain(error)

    def _build_with(self, batch: Sequence[_Waiting], known: Known) -> None:
        for item in batch:
            try:
                item.rows = item.submission.build(known)
            except Exception as error:
                item.rows = error

    def _write(self, batch: Sequence[_Waiting]) -> None:
        """All in one transaction; if that is refused, each in its own, so that only what is bad fails."""
        try:
            self._write_trying(batch)
        except (BusyError, NoSpaceError) as error:
            _fail(batch, _plain(error))
        except Exception as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            for item in batch:
                self._write([item])

    def _write_trying(self, batch: Sequence[_Waiting]) -> None:
        deadline, again = time.monotonic() + self.wait_s, False
        while True:
            try:
                return self._transact(batch, again)
            except BusyError:
                if time.monotonic() >= deadline:
                    raise
            again = True
            time.sleep(0.1)

    def _transact(self, batch: Sequence[_Waiting], again: bool) -> None:
        started = time.monotonic()
        for item in batch:
            item.outcome = None
        with self.store.write() as conn:
            fresh = self._fresh(conn, batch)
            if again:
                fresh = [item for item in fresh if not _is_there(conn, item)]
            _insert(self.store, conn, fresh)
            self._sweep(conn)
        self._count(batch, fresh, time.monotonic() - started)

    def _fresh(self, conn: Connection, batch: Sequence[_Waiting]) -> list[_Waiting]:
        """Those that are to be inserted; the others get their outcome here. Of equal keys in one batch the first counts."""
        seen = _answers(conn, [item.submission for item in batch if item.submission.key is not None])
        fresh = []
        for item in batch:
            submission, name = item.submission, (item.submission.caller, item.submission.key or "")
            if submission.key is not None and name in seen:
                fingerprint, answer = seen[name]
                item.outcome = Stored(answer, replayed=True) if fingerprint == submission.fingerprint else _key_reused()
            elif isinstance(item.rows, Exception):
                item.outcome = item.rows
            else:
                assert item.rows is not None
                item.outcome = Stored(item.rows.answer)
                fresh.append(item)
                if submission.key is not None:
                    seen[name] = (submission.fingerprint, item.rows.answer)
        return fresh

    def _sweep(self, conn: Connection) -> None:
        if time.monotonic() - self._swept > _SWEEP_S:
            conn.execute(delete(idempotency_keys).where(idempotency_keys.c.created < utc_now() - timedelta(days=KEPT_DAYS)))
            self._swept = time.monotonic()

    def _count(self, batch: Iterable[_Waiting], fresh: Iterable[_Waiting], seconds: float) -> None:
        for item in fresh:
            assert isinstance(item.rows, Rows)
            for record in item.rows.records:
                name = records.TABLES[type(record)].name
                self.counts.records[name] = self.counts.records.get(name, 0) + 1
        self.counts.replays += sum(isinstance(item.outcome, Stored) and item.outcome.replayed for item in batch)
        self.counts.commit_s += seconds


def _insert(store: Store, conn: Connection, fresh: Sequence[_Waiting]) -> None:
    built = [(item.submission, item.rows) for item in fresh if isinstance(item.rows, Rows)]
    records.insert_in(store, conn, (record for _, rows in built for record in rows.records))
    beside: dict[Table, list[Json]] = {}
    for submission, rows in built:
        for table, row in rows.beside:
            beside.setdefault(table, []).append(row)
        if submission.key is not None:
            beside.setdefault(idempotency_keys, []).append(_key_row(submission, rows.answer))
        if rows.also is not None:
            rows.also(conn)
    for table, given in beside.items():
        conn.execute(insert(table), given)
    audit.append(
        conn,
        [
            event
            for submission, rows in built
            for event in (*(records.added(record, submission.caller) for record in rows.records), *rows.events)
        ],
    )


def _key_row(submission: Submission, answer: Json) -> Json:
    said = {"caller": submission.caller, "key": submission.key, "fingerprint": submission.fingerprint}
    return {**said, "status": 201, "answer": answer, "created": utc_now()}


def _answers(conn: Connection, submissions: Sequence[Submission]) -> dict[tuple[str, str], tuple[str, Json]]:
    """What was answered to the keys of this batch before."""
    wanted: dict[str, set[str]] = {}
    for submission in submissions:
        wanted.setdefault(submission.caller, set()).add(submission.key or "")
    found: dict[tuple[str, str], tuple[str, Json]] = {}
    for caller, keys in wanted.items():  # by caller, else no index is used
        for chunk in chunks(sorted(keys)):
            for row in conn.execute(_KEYS, {"caller": caller, "keys": chunk}):
                found[caller, row.key] = (row.fingerprint, row.answer)
    return found


def _is_there(conn: Connection, item: _Waiting) -> bool:
    """Whether a COMMIT whose answer was lost went through; the first record's id, made here, decides."""
    assert isinstance(item.rows, Rows)
    if not item.rows.records:
        return False
    first = item.rows.records[0]
    table = records.TABLES[type(first)]
    column = table.c[natural_id(table)]
    return conn.execute(select(column).where(column == records.id_of(first))).first() is not None


def _key_reused() -> KeyReusedError:
    return KeyReusedError("This Idempotency-Key was used for another request", "Take a new key for each request")


def _plain(error: Exception) -> Exception:
    """The sentence for a sender: it names no database."""
    if isinstance(error, NoSpaceError):
        return NoSpaceError("The disk of the server is full; nothing was stored", "Send it again when its owner has made room")
    if type(error) in (BusyError, StoreError):
        return AwayError("The store does not answer now", "Send it again with the same Idempotency-Key")
    return error


def _fail(batch: Iterable[_Waiting], error: Exception) -> None:
    for item in batch:
        item.outcome = error


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
        except RuntimeError:  # the loop is closed: nobody listens any more
            log.warning("%d answers had no receiver", len(items))


def _finish(items: Sequence[_Waiting]) -> None:
    for item in items:
        if item.future.done():
            continue
        if isinstance(item.outcome, Stored):
            item.future.set_result(item.outcome)
        else:
            item.future.set_exception(item.outcome or AssertionError("no outcome"))
