"""Long texts of a server: scanned in other processes, callers in turn, held where a scan fails."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from medloop.feedback.submit.doubt import doubt_about
from medloop.feedback.submit.scan_process import ScanProcess
from medloop.feedback.submit.scan_workers import ScanWorkers
from medloop.store.records.fair_threads import FairThreads
from medloop.store.records.write_request import OverloadedError

CLEAN, DOUBTFUL = "Rest and drink water. " * 120, "手机一三八零零一三八零零零"


@pytest.fixture(scope="module")
def workers() -> Iterator[ScanWorkers]:
    with ScanWorkers(Path("none"), workers=1).running() as running:
        yield running


def test_another_process_says_the_same(workers: ScanWorkers) -> None:
    for texts in ([CLEAN], [CLEAN, DOUBTFUL], []):
        assert workers.doubt_about(texts) == doubt_about(texts)


def test_a_worker_that_is_late_or_dies_means_held_and_is_replaced(workers: ScanWorkers) -> None:
    workers.limit_s = 0.0
    late = workers.doubt_about([CLEAN])
    workers.limit_s = 60.0
    assert late is not None and late.value == 1.0 and late.reasons == ("a text that takes too long to scan",)
    assert workers.doubt_about([CLEAN]) is None
    for worker in workers._all:
        worker.process.kill()
        worker.process.wait()
    broken = workers.doubt_about([CLEAN])
    assert broken is not None and broken.reasons == ("a scan that broke off",)
    assert workers.doubt_about([CLEAN]) is None


def test_a_worker_that_stops_in_the_middle_of_a_batch_is_late() -> None:
    worker = ScanProcess(Path("none"))
    try:
        assert worker.ask([("a",), ("b",)], 60) == [None, None]
        worker.process.send_signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            worker.ask([("a",)], 0.2)
    finally:
        worker.end()


def test_short_records_are_scanned_together_and_a_broken_worker_is_replaced(workers: ScanWorkers) -> None:
    records = [("Rest and drink water.",), ("a", DOUBTFUL), ("你好",)]
    expected = [doubt_about(texts) for texts in records]
    for _ in range(2):
        futures = [workers.scan_short(f"sender {n % 3}", records) for n in range(40)]
        assert [future.result(60) for future in futures] == [expected] * 40 and expected[1] is not None
        for worker in list(workers._all):
            worker.process.kill()


def test_who_sends_much_waits_and_others_do_not() -> None:
    threads, begun, go, done = FairThreads(1, "t", max_waiting=100), threading.Event(), threading.Event(), list[str]()
    first = threads.submit("greedy", lambda: (begun.set(), go.wait(10)) and None)
    assert begun.wait(10)
    futures = [threads.submit("greedy", lambda: done.append("greedy")) for _ in range(20)]
    futures.append(threads.submit("modest", lambda: done.append("modest")))
    go.set()
    for future in (first, *futures):
        future.result(10)
    assert done.index("modest") == 1 and len(done) == 21


def test_at_the_end_nothing_waits_and_what_has_not_begun_is_refused() -> None:
    threads, begun, go = FairThreads(1, "t", max_waiting=1), threading.Event(), threading.Event()
    running = threads.submit("a", lambda: (begun.set(), go.wait(10)) and None)
    assert begun.wait(10)
    waiting = threads.submit("a", lambda: None)
    with pytest.raises(OverloadedError):
        threads.submit("b", lambda: None)
    threads.close()
    with pytest.raises(OverloadedError, match="shutting down"):
        waiting.result(10)
    go.set()
    running.result(10)
