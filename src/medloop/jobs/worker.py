"""One process works on one job: claim it, run it, say how it ended. `medloop jobs work JOB_ID`.

How it can end: succeeded; failed, with the sentence; cancelled; paused, when the disk is full; queued again, when the machine
asked for an end (SIGTERM). A kill -9 leaves it running without a worker, which the next worker or supervisor sees by its lock.

SIGTERM, a wish to cancel, and Ctrl-C ask the stage for a checkpoint after the current step. What has not ended by itself after
DRAIN_S seconds is ended: the step in progress is lost, and nothing else.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts.job import JobState
from medloop.errors import BusyError, MedloopError, NoSpaceError
from medloop.jobs import errands, queue, requests
from medloop.jobs.job_row import Entry, LostLeaseError, cancelled_words
from medloop.jobs.lease import BEAT_S, LOST, Lease, claim
from medloop.jobs.status import StatusWriter
from medloop.knobs import load_config
from medloop.loop.train import STAGES, run_stage
from medloop.settings import Settings
from medloop.store.files.atomic import raise_if_full

DRAIN_S = 8.0  # from the wish for an end to the end; ten seconds are promised
AGAIN_S = 5.0  # before an errand that found something in use is tried again

log = logging.getLogger("medloop.jobs")


@dataclass(frozen=True)
class End:
    state: JobState
    reason: str | None = None
    waits_for_space: bool = False
    again_in_s: float = 0.0


def work(job_id: str, settings: Settings) -> Entry:
    """Work on a job until it is over. A second worker of the same job gets a BusyError, before anything heavy is loaded."""
    folder = queue.folder_of(job_id, settings)
    with claim(folder) as lease, logging_to(folder / "train.log"), listening(lease) as stopped:
        log.info("worker %d begins, token %d", os.getpid(), lease.token)
        end = _run(lease, settings, stopped)
        log.info("%s%s", end.state, f": {end.reason}" if end.reason else "")
        reason = end.reason and end.reason.replace(f"{settings.home}/", "")  # who asks over HTTP need not know where it lies
        return lease.end(end.state, reason, waits_for_space=end.waits_for_space, again_in_s=end.again_in_s)


def _run(lease: Lease, settings: Settings, stopped: Callable[[], bool]) -> End:
    """Whatever happens in a stage, as a state with a sentence. Only a lost lease says nothing: it has no right to."""
    try:
        return _errand(lease, settings, stopped) or _train(lease, settings, stopped)
    except LostLeaseError:
        raise
    except KeyboardInterrupt:
        return stopped_end(lease)
    except NoSpaceError as error:
        return _paused(error)
    except MedloopError as error:
        return End("failed", str(error))
    except MemoryError:
        train = "Lower micro_batch_size or max_new_tokens, or take a smaller model"
        return End("failed", f"There is not enough memory. {'End other programs' if lease.check().is_errand else train}.")
    except Exception as error:
        try:
            raise_if_full(error, lease.folder)  # libraries hide a full disk in a text
        except NoSpaceError as full:
            return _paused(full)
        log.error("%s", frames(error))
        return End("failed", f"medloop met an error of its own ({type(error).__name__}). See train.log of the job.")


def frames(error: BaseException) -> str:
    """What a bug may leave in a log: its kind and where it was. Its message might quote a record."""
    places = "".join(f"\n  {at.filename}, line {at.lineno}, in {at.name}" for at in traceback.extract_tb(error.__traceback__))
    return f"{type(error).__name__} at{places}"


def _errand(lease: Lease, settings: Settings, stopped: Callable[[], bool]) -> End | None:
    """A dataset or an erasure, which needs no torch; None for a job that trains."""
    if lease.check().stage not in queue.ERRANDS:
        return None

    try:
        return End("succeeded", errands.run(lease, settings, stopped))
    except LostLeaseError:
        raise
    except BusyError as error:  # an erasure that was asked for is carried out: it waits for as long as it takes
        if stopped():
            return stopped_end(lease)
        return End("queued", f"{error.what}. It is tried again by itself.", again_in_s=AGAIN_S)


def _train(lease: Lease, settings: Settings, stopped: Callable[[], bool]) -> End:
    request = queue.request_of(lease.folder)
    stage, status = STAGES[request.stage], StatusWriter(lease)
    config = load_config(stage.config, flags=requests.wanted(request, lease.folder.name, settings))
    result = run_stage(
        stage, config, settings, folder=lease.folder, guard=lease.check, on_plan=status.on_plan, on_progress=status.on_progress,
        should_stop=stopped,
    )  # fmt: skip
    if result.plan is not None:
        status.finish()
    home, target = settings.home, result.run.target
    where = target.relative_to(home).as_posix() if target.is_relative_to(home) else str(target)
    return End("succeeded", f"The result is {where}.")


def _paused(error: NoSpaceError) -> End:
    return End("paused", f"{error.what}. The job goes on by itself when there is room again.", waits_for_space=True)


def stopped_end(lease: Lease) -> End:
    """The state after a wish for an end: whose wish it was decides."""
    row = lease.check()
    if row.wish == "cancel":
        return End("cancelled", row.why or cancelled_words(row))
    return End("queued", "Stopped by a signal; it goes on when a worker is free.")


@contextmanager
def listening(lease: Lease) -> Iterator[Callable[[], bool]]:
    """A thread that beats, hears signals and wishes, and ends what does not end by itself.

    A thread, because Python runs signal handlers between two lines of the main thread, and one line can be a long matrix product.
    """
    asked, over = threading.Event(), threading.Event()
    wanted = {signal.SIGTERM, signal.SIGINT}

    def listen() -> None:
        deadline = float("inf")
        while not over.is_set():
            heard = signal.sigtimedwait(wanted, 0.2 if asked.is_set() else BEAT_S)
            if over.is_set():
                return
            try:
                wish = lease.beat().wish
            except MedloopError:
                os._exit(LOST)
            # CPython hands out a siginfo of random bytes when a stop (SIGSTOP) outlasts the wait: look at the number too.
            signalled = heard is not None and heard.si_signo in wanted
            if (signalled or wish) and not asked.is_set():
                asked.set()
                deadline = time.monotonic() + DRAIN_S
            if time.monotonic() > deadline:
                _end_now(lease)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    thread = threading.Thread(target=listen, name="medloop-lease", daemon=True)
    thread.start()
    try:
        yield asked.is_set
    finally:
        over.set()
        if thread.ident is not None and thread.is_alive():
            signal.pthread_kill(thread.ident, signal.SIGTERM)  # wakes it from its wait; nobody else hears it
        thread.join(timeout=2 * BEAT_S)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_now(lease: Lease) -> None:
    """The step takes too long to wait for. What it did is thrown away, as a kill would; the newest checkpoint stands."""
    try:
        end = stopped_end(lease)
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
