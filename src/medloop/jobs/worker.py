"""One process works on one job: claim it, run it, record how it ended. `medloop jobs work JOB_ID`.

How it can end: succeeded; failed, with the sentence; cancelled; paused, when the disk is full; queued again, when the machine
asked for an end (SIGTERM). A kill -9 leaves it running without a worker, which the next worker or supervisor sees by its lock.

SIGTERM, a request to cancel, and Ctrl-C ask the job for a checkpoint after the current step. A job that is still running DRAIN_S
seconds later is killed: it loses the step in progress, and nothing else.
"""

import logging
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts.job import JobState
from medloop.errors import BusyError, MedloopError, NoSpaceError
from medloop.jobs import job_row, queue
from medloop.jobs.job_row import JobRow, LostLeaseError
from medloop.jobs.kinds import Kind, kind_of
from medloop.jobs.lease import BEAT_S, LOST, Lease, claim
from medloop.jobs.tasks import Work
from medloop.settings import Settings
from medloop.store.files.atomic import raise_if_full
from medloop.teacher import usage

DRAIN_S = 8.0  # from the request to stop to the end; ten seconds are promised
RETRY_S = 5.0  # before a job that found something in use is tried again

log = logging.getLogger("medloop.jobs")


@dataclass(frozen=True)
class End:
    state: JobState
    reason: str | None = None
    waits_for_space: bool = False
    retry_in_s: float = 0.0


def work(job_id: str, settings: Settings) -> JobRow:
    """Work on a job until it ends. A second worker of the same job gets a BusyError, before anything heavy is loaded."""
    folder = queue.folder_of(job_id, settings)
    with claim(folder) as lease, logging_to(folder / "train.log"), listening(lease) as should_stop:
        log.info("worker %d begins, token %d", os.getpid(), lease.token)
        with usage.for_job(job_id):
            end = _run(lease, settings, should_stop)
        log.info("%s%s", end.state, f": {end.reason}" if end.reason else "")
        reason = end.reason and end.reason.replace(f"{settings.home}/", "")  # whoever asks over HTTP need not know where it lies
        return lease.end(end.state, reason, waits_for_space=end.waits_for_space, retry_in_s=end.retry_in_s)


def _run(lease: Lease, settings: Settings, should_stop: Callable[[], bool]) -> End:
    """Whatever happens in a job, as a state with a sentence. Only a lost lease says nothing: it has no right to."""
    kind: Kind | None = None
    try:
        kind = kind_of(lease.check().stage)
        request = kind.request.from_json((lease.folder / job_row.REQUEST).read_text(encoding="utf-8"))
        return End("succeeded", kind.run(Work(lease, request, settings, should_stop)))
    except LostLeaseError:
        raise
    except KeyboardInterrupt:
        return end_of_stopped(lease)
    except NoSpaceError as error:
        return _paused(error)
    except MedloopError as error:
        if not isinstance(error, BusyError) or kind is None or not kind.retries_when_busy:
            return End("failed", str(error))
        if should_stop():
            return end_of_stopped(lease)
        return End("queued", f"{error.what}. It is tried again by itself.", retry_in_s=RETRY_S)
    except MemoryError:
        advice = "End other programs" if kind is None else kind.out_of_memory
        return End("failed", f"There is not enough memory. {advice}.")
    except Exception as error:
        try:
            raise_if_full(error, lease.folder)  # libraries hide a full disk in a text
        except NoSpaceError as full:
            return _paused(full)
        log.error("%s", frames(error))
        return End("failed", f"Internal error ({type(error).__name__}). See train.log of the job.")


def frames(error: BaseException) -> str:
    """What a bug may leave in a log: its kind and where it was. Its message might quote a record."""
    calls = traceback.extract_tb(error.__traceback__)
    places = "".join(f"\n  {call.filename}, line {call.lineno}, in {call.name}" for call in calls)
    return f"{type(error).__name__} at{places}"


def _paused(error: NoSpaceError) -> End:
    return End("paused", f"{error.what}. The job continues by itself when there is room again.", waits_for_space=True)


def end_of_stopped(lease: Lease) -> End:
    """The state after a request to stop: who asked for it decides."""
    row = lease.check()
    if row.cancel_requested:
        return End("cancelled", row.cancelled_message)
    return End("queued", "Stopped by a signal; it continues when a worker is free.")


@contextmanager
def listening(lease: Lease) -> Iterator[Callable[[], bool]]:
    """A thread that beats, waits for signals and requests to cancel, and ends what does not end by itself.

    A thread, because Python runs signal handlers between two lines of the main thread, and one line can be a long matrix product.
    It reads the numbers of signals from a pipe. Blocking them here would not do: a signal for the process goes to any thread that
    does not block it, such as those that numpy's BLAS started when it was imported, and would end the worker on the spot.
    """
    stop, over = threading.Event(), threading.Event()
    numbers = {signal.SIGTERM, signal.SIGINT}
    heard, hears = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def listen() -> None:
        deadline = float("inf")
        while not over.is_set():
            ready, _, _ = select.select([heard], [], [], 0.2 if stop.is_set() else BEAT_S)
            signalled = bool(ready) and not numbers.isdisjoint(os.read(heard, 64))
            if over.is_set():
                return
            try:
                cancelled = lease.beat().cancel_requested
            except MedloopError:
                os._exit(LOST)
            if (signalled or cancelled) and not stop.is_set():
                stop.set()
                deadline = time.monotonic() + DRAIN_S
            if time.monotonic() > deadline:
                _end_now(lease)

    hearing = _hear(numbers, hears) if threading.current_thread() is threading.main_thread() else nullcontext()
    thread = threading.Thread(target=listen, name="medloop-lease", daemon=True)
    thread.start()
    try:
        with hearing:
            yield stop.is_set
    finally:
        over.set()
        os.write(hears, b"\0")  # wakes the thread
        thread.join(timeout=2 * BEAT_S)
        if not thread.is_alive():
            os.close(heard)
            os.close(hears)


@contextmanager
def _hear(numbers: Collection[signal.Signals], pipe: int) -> Iterator[None]:
    """The numbers of signals go into a pipe at once, whatever the main thread does. Only that thread may ask for it."""
    told_before = signal.set_wakeup_fd(pipe, warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    for number in numbers:
        signal.siginterrupt(number, False)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(told_before)


def _end_now(lease: Lease) -> None:
    """The step takes too long to wait for. Its work is thrown away, as by a kill; the newest checkpoint stands."""
    try:
        end = end_of_stopped(lease)
        lease.end(end.state, end.reason)
        log.warning("ended in the middle of a step: %s", end.state)
    finally:
        os._exit(0)


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """What medloop logs goes into the job's train.log too; a full disk must not turn a log line into an error."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    lines = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    lines.converter = time.gmtime
    handler.setFormatter(lines)
    logger = logging.getLogger("medloop")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        try:
            handler.close()
        except OSError:
            pass
