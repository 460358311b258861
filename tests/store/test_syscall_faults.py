"""The n-th system call fails, or the process dies in it: n = 1, 2, 3 … until the whole operation goes through.

Needs strace; the full sweep is slow (a fresh interpreter for each n), the default run takes a few points of it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from medloop.contracts import Feedback
from medloop.errors import InputError, NoSpaceError
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.check import check
from medloop.store.db import ensure_master_key, open_store, upgrade
from medloop.store.files import jsonl
from medloop.store.files.artifacts import new_artifact, sweep, verify_artifact
from medloop.store.records import crud

STRACE = shutil.which("strace")
needs_strace = pytest.mark.skipif(
    STRACE is None or subprocess.run([STRACE, "-o", "/dev/null", "true"], capture_output=True).returncode != 0,
    reason="strace is not installed, or may not trace here",
)
FAILED = 5  # the exit code of a StoreError
NO_SPACE = 8

HEADER = """
import sys
from pathlib import Path
from medloop.errors import MedloopError
from medloop.settings import Settings
home = Path(sys.argv[1])
"""
FOOTER = """
try:
    work()
except MedloopError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""
WORK = {
    "artifact": """
from medloop.store.files.artifacts import new_artifact
def work():
    with new_artifact(home / "a") as folder:
        for name in ("card", "weights"):
            (folder / name).write_bytes(b"new" * 5000)
""",
    "jsonl": """
from medloop.store.files import jsonl
def work():
    jsonl.append(home / "a.jsonl", [{"n": n, "pad": "x" * 5000} for n in range(3)])
""",
    "records": """
from medloop.contracts import Feedback
from medloop.store.records import crud
from medloop.store.db import open_store
def work():
    given = dict(session_id="s", agent_name="a", user_query="q" * 2000, agent_response="r", rating=3)
    with open_store(Settings(home=home)) as store:
        crud.add(store, [Feedback(feedback_id=f"fb_{n}", **given) for n in range(3)], actor="test")
""",
}


def run(work: str, home: Path, inject: str) -> subprocess.CompletedProcess[str]:
    calls = inject.split(":")[0]
    log = str(home.parent / "strace.log")
    command = [str(STRACE), "-f", "-qq", "-o", log, "-e", f"trace={calls}", "-e", f"inject={inject}"]
    if "signal" not in inject:
        command.insert(1, "--seccomp-bpf")  # much faster, but strace 6.1 then delivers no signal
    return subprocess.run(
        [*command, sys.executable, "-c", HEADER + WORK[work] + FOOTER, str(home)], capture_output=True, text=True
    )


def stored(work: str, home: Path) -> int:
    """How much of the work is there: 0 nothing, 1 all of it; anything else fails the test."""
    if work == "artifact":
        sweep(home)
        if not (home / "a").exists():
            assert not any(path.name.startswith(".a.") for path in home.iterdir())
            return 0
        verify_artifact(home / "a")
        return 1
    if work == "jsonl":
        try:
            rows = list(jsonl.read(home / "a.jsonl"))
        except InputError:
            assert not (home / "a.jsonl").exists()
            return 0
        assert [row["n"] for row in rows] == list(range(len(rows)))  # a killed append may leave some of its lines
        return int(len(rows) == 3)
    with open_store(Settings(home=home)) as store:
        rows = list(crud.iterate(store, Feedback))
        assert len(rows) in (0, 3) and check(store).problems == () and audit.verify(store).ok
        return len(rows) // 3


SWEEP = [
    (work, calls, action)
    for work, calls in {"artifact": ("fsync", "rename"), "jsonl": ("fsync",), "records": ("fdatasync", "fsync", "rename")}.items()
    for calls in calls
    for action in ("error=EIO", "error=ENOSPC", "signal=KILL")
] + [("records", "pwrite64", "error=ENOSPC"), ("records", "pwrite64", "signal=KILL"), ("jsonl", "write", "signal=KILL")]


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize(("work", "calls", "action"), SWEEP)
def test_every_nth_call(sqlite_settings: Settings, tmp_path: Path, work: str, calls: str, action: str) -> None:
    for nth in range(1, 200):
        home = tmp_path / f"clinic{nth}"
        shutil.copytree(sqlite_settings.home, home)
        ended = run(work, home, f"{calls}:{action}:when={nth}")
        there = stored(work, home)
        if ended.returncode == 0:
            assert there == 1, "reported success, but it is not there"
            if "(INJECTED)" not in (tmp_path / "strace.log").read_text():
                assert nth > 1, "no fault was ever injected"
                print(f"{work}: {nth - 1} x {calls} {action}", file=sys.stderr)  # noqa: T201
                return
        else:
            assert "Traceback" not in ended.stderr
            assert ended.returncode in (FAILED, NO_SPACE, -9, 137), ended.stderr
    pytest.fail("never went through")


@needs_strace
@pytest.mark.parametrize(
    ("work", "calls", "action", "nth", "code"),
    [
        ("records", "fdatasync", "error=EIO", 1, FAILED),
        ("records", "pwrite64", "error=EIO", 4, FAILED),
        ("artifact", "fsync", "error=ENOSPC", 2, NO_SPACE),
    ],
)
def test_failed_call_is_a_failed_operation(
    sqlite_settings: Settings, work: str, calls: str, action: str, nth: int, code: int
) -> None:
    ended = run(work, sqlite_settings.home, f"{calls}:{action}:when={nth}")
    assert ended.returncode == code, ended.stderr
    assert stored(work, sqlite_settings.home) == 0
    assert run(work, sqlite_settings.home, f"{calls}:{action}:when=1000").returncode == 0
    assert stored(work, sqlite_settings.home) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_full_disk_stops_every_kind_of_write_cleanly_and_work_goes_on_with_new_space(small_disk: Path) -> None:
    init_workspace(small_disk / "clinic")
    settings = Settings(home=small_disk / "clinic")
    ensure_master_key(settings)
    upgrade(settings)
    given = {"session_id": "s", "agent_name": "a", "user_query": "q" * 1000, "agent_response": "r", "rating": 3}
    acked: list[str] = []
    with open_store(settings) as store:
        with pytest.raises(NoSpaceError, match="No space left"):
            while True:
                batch = [Feedback(feedback_id=f"fb_{len(acked)}_{n}", **given) for n in range(10)]
                crud.add(store, batch, actor="test")
                acked += [row.feedback_id for row in batch]
        with suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        for work in (lambda: jsonl.append(small_disk / "a.jsonl", {"x": "y" * 9000}), lambda: make(small_disk / "a")):
            with pytest.raises(NoSpaceError, match="No space left"):
                work()
        assert list(jsonl.read(small_disk / "a.jsonl")) == [] and not (small_disk / "a").exists()
        assert not any(path.name.startswith(".a") for path in small_disk.iterdir())
        (small_disk / "ballast").unlink()
        subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
        assert [row.feedback_id for row in crud.iterate(store, Feedback)] == acked
        crud.add(store, [Feedback(**given)], actor="test")
        make(small_disk / "a")
        assert check(store).problems == () and audit.verify(store).ok


def make(target: Path) -> None:
    with new_artifact(target) as folder:
        (folder / "weights").write_bytes(b"x" * 50_000)
