"""kill -9 at random moments: what was acknowledged is there, once; what was not is there whole or not at all.

The default run kills 26 processes; `pytest -m slow tests/store/test_kill.py` kills 260. A failing run prints its seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import crash_workers
import pytest
from sqlalchemy import func, select

from medloop.contracts import Feedback
from medloop.settings import Settings
from medloop.store import audit, rotate
from medloop.store.check import check
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import sweep, verify_artifact
from medloop.store.records import crud
from medloop.store.tables import rlhf_feedback
from medloop.testing.processes import fork_server

FEW = {"records": 5, "keys": 2, "artifacts": 7, "jsonl": 5}
MANY = {"records": 60, "keys": 20, "artifacts": 50, "jsonl": 50}
kills = pytest.mark.parametrize("kills", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])


class Killer:
    """Starts workers, kills them, and knows what each has acknowledged."""

    def __init__(self, work: Callable[..., None], first: str, second: str, writers: tuple[str, ...]) -> None:
        self.work, self.places = work, (first, second)
        self.processes = fork_server()
        self.acked = dict.fromkeys(writers, -1)
        self.killed = 0
        seed = random.randrange(2**32)
        print(f"seed {seed}", file=sys.stderr)  # noqa: T201
        self.random = random.Random(seed)

    def round(self) -> None:
        """All writers at once; each is killed at a moment of its own, often in the middle of its first work."""
        running = []
        for writer, acked in self.acked.items():
            mine, theirs = self.processes.Pipe(duplex=False)
            child = self.processes.Process(target=self.work, args=(*self.places, writer, acked + 1, theirs), daemon=True)
            child.start()
            theirs.close()
            assert mine.poll(60), f"{writer} does not start"
            running.append((writer, mine, child, time.monotonic() + self.moment()))
        for writer, mine, child, moment in sorted(running, key=lambda entry: entry[3]):
            self.listen(writer, mine, moment)
            assert child.exitcode is None, f"{writer} ended by itself with {child.exitcode}"
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            self.killed += 1
            self.listen(writer, mine, float("inf"))
            mine.close()

    def moment(self) -> float:
        return self.random.choice((self.random.uniform(0.0, 0.1), self.random.uniform(0.05, 0.5)))

    def listen(self, writer: str, pipe, until: float) -> None:
        with contextlib.suppress(EOFError, OSError):
            while (left := until - time.monotonic()) > 0:
                if pipe.poll(min(left, 0.05)):
                    self.acked[writer] = pipe.recv()
                elif until == float("inf"):
                    return


@kills
def test_acknowledged_records_survive_once_and_batches_stay_whole(settings: Settings, kills: dict[str, int]) -> None:
    killer = Killer(crash_workers.add_records, str(settings.home), settings.store_url, ("a", "b"))
    while killer.killed < kills["records"]:
        killer.round()
        with open_store(settings) as store:
            assert_whole(store, killer.acked)
            report = audit.verify(store)
            assert report.ok, report.problem
    with open_store(settings) as store:
        for writer, last in killer.acked.items():  # the client repeats everything: nothing is added twice
            assert crud.add(store, [row for n in range(last + 1) for row in crash_workers.batch(writer, n)], actor="again") == 0
        assert check(store).problems == ()
        print(f"{killer.killed} kills, {audit.verify(store).rows} rows", file=sys.stderr)  # noqa: T201


def assert_whole(store, acked: dict[str, int]) -> None:
    with store.read() as conn:
        ids = conn.execute(select(rlhf_feedback.c.feedback_id)).scalars().all()
        assert conn.execute(select(func.count(func.distinct(rlhf_feedback.c.feedback_id)))).scalar() == len(ids)
    counts: dict[tuple[str, int], int] = {}
    for writer, number, _ in (row_id.split("-") for row_id in ids):
        counts[writer, int(number)] = counts.get((writer, int(number)), 0) + 1
    for (writer, number), rows in counts.items():
        assert rows == len(crash_workers.batch(writer, number)), f"half a batch: {writer} {number}"
    for writer, last in acked.items():
        assert all((writer, number) in counts for number in range(last + 1)), f"{writer} lost one of its {last + 1} batches"


@kills
def test_rows_stay_readable_while_key_rotation_is_killed(settings: Settings, kills: dict[str, int]) -> None:
    rows = [row for n in range(20) for row in crash_workers.batch("x", n)]
    with open_store(settings) as store:
        crud.add(store, rows, actor="test")
    killer = Killer(crash_workers.rotate_keys, str(settings.home), settings.store_url, ("r",))
    while killer.killed < kills["keys"]:
        killer.round()
        with open_store(settings) as store:
            assert list(crud.iterate(store, Feedback)) == rows
            assert audit.verify(store).ok
    with open_store(settings) as store:
        rotate.reencrypt(store, actor="test")
        _, keys = rotate.list_keys(store)
        assert [key.rows for key in keys if key.purpose == "data"] == [len(rows)]


@kills
def test_no_half_artifact_is_ever_readable(tmp_path: Path, kills: dict[str, int]) -> None:
    killer = Killer(crash_workers.make_artifacts, str(tmp_path), "", ("a", "b"))
    torn = 0
    while killer.killed < kills["artifacts"]:
        killer.round()
        torn += len(sweep(tmp_path))
        for path in tmp_path.iterdir():
            assert not path.name.startswith("."), path
            verify_artifact(path)
        for writer, last in killer.acked.items():
            for number in range(last + 1):
                assert (tmp_path / f"{writer}_{number}/weights").read_bytes() == crash_workers.content(number, "weights")
            if last >= 0:
                newest = (tmp_path / f"{writer}-latest/weights").read_bytes()
                assert newest in [crash_workers.content(number, "weights") for number in (last, last + 1)]
    print(f"{killer.killed} kills, {torn} torn folders swept, {sum(killer.acked.values()) + 2} artifacts", file=sys.stderr)  # noqa: T201


@kills
def test_acknowledged_lines_survive_and_none_is_broken(tmp_path: Path, kills: dict[str, int]) -> None:
    path = tmp_path / "metrics.jsonl"
    killer = Killer(crash_workers.append_lines, str(path), "", ("a", "b"))
    while killer.killed < kills["jsonl"]:
        killer.round()
        rows = list(jsonl.read(path)) if path.exists() else []
        for writer, acked in killer.acked.items():
            numbers = [row["n"] for row in rows if row["writer"] == writer]
            assert numbers == list(range(len(numbers))) and len(numbers) >= acked
    print(f"{killer.killed} kills, {len(rows)} lines", file=sys.stderr)  # noqa: T201
