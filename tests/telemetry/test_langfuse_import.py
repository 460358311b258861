"""`medloop data import langfuse` against a Langfuse that keeps its contract, and one that misbehaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import Correction, Feedback, Trace
from medloop.loop.erasure import erase_records
from medloop.loop.langfuse_import import ImportWish, import_langfuse
from medloop.loop.workspace import init_workspace
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud, quarantine
from medloop.store.records.review_queue import list_items
from medloop.telemetry import windows
from medloop.testing.langfuse_server import LangfuseServer

NOW = datetime.now(UTC)
QUICK = ImportWish(consent=("training",), backoff_s=0.001)


@pytest.fixture
def server() -> Iterator[LangfuseServer]:
    with LangfuseServer() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Path:
    init_workspace(tmp_path / "clinic")
    return tmp_path / "clinic"


def fill(server: LangfuseServer, n: int, *, age: timedelta = timedelta(days=3)) -> None:
    for number in range(n):
        time = NOW - age + timedelta(seconds=number)
        trace_id = f"{number:032x}"
        server.project.add_trace(trace_id, f"I have had a cough for {number} days.", f"Rest for {number} days.", time)
        server.project.add_score(f"s{number}", trace_id, number % 3 != 0, time + timedelta(minutes=1))


def settings_of(server: LangfuseServer, home: Path) -> Settings:
    return Settings(home=home, langfuse=server.settings())


def run(server: LangfuseServer, store: Store, home: Path, wish: ImportWish = QUICK) -> Any:
    return import_langfuse(settings_of(server, home), store, wish, actor="test")


def rows(store: Store) -> list[str]:
    """Every imported record as it is stored."""
    kinds = (Trace, Feedback, Correction)
    return sorted(record.canonical_json() for kind in kinds for record in crud.iterate(store, kind))


def test_thumbs_up_are_kept_and_thumbs_down_go_to_the_review_queue(server: LangfuseServer, home: Path) -> None:
    fill(server, 6)
    with open_store(settings_of(server, home)) as store:
        counts = run(server, store, home)
        feedback = list(crud.iterate(store, Feedback))
        assert (counts.traces_new, counts.up, counts.down, counts.queued) == (6, 4, 2, 2)
        assert {f.thumb: f.feedback_type for f in feedback} == {"up": "positive", "down": "negative"}
        assert all(f.consent == ("training",) and f.user_query and f.agent_response and f.trace_id for f in feedback)
        assert len(list_items(store, state="open", limit=10)) == 2


def test_an_import_repeated_gives_the_same_rows(server: LangfuseServer, home: Path) -> None:
    fill(server, 30)
    with open_store(settings_of(server, home)) as store:
        run(server, store, home)
        before = rows(store)
        counts = run(server, store, home, ImportWish(since=NOW - timedelta(days=30), backoff_s=0.001))
        assert (counts.traces_new, counts.traces_known, counts.scores_new, counts.scores_known) == (0, 30, 0, 30)
        assert rows(store) == before and len(before) == 60


def test_late_rows_and_unfinished_traces_are_found_by_the_next_import(server: LangfuseServer, home: Path) -> None:
    project, early, late = server.project, NOW - timedelta(minutes=30), NOW - timedelta(minutes=20)
    project.add_trace("a" * 32, "I cough.", "Do you have a fever?", early)
    project.add_trace("b" * 32, "I sneeze.", "Since when?", late, hidden=True)
    project.add_score("late", "b" * 32, False, late)
    project.add_trace("c" * 32, "My knee hurts.", None, NOW - timedelta(hours=5), endTime=None)
    with open_store(settings_of(server, home)) as store:
        first = run(server, store, home)
        assert (first.traces_new, first.unfinished, first.without_trace) == (1, 1, 1)
        project.show_hidden()
        project.add_trace("c" * 32, "My knee hurts.", "Did you fall?", NOW - timedelta(hours=5))
        second = run(server, store, home)
        assert (second.traces_new, second.down, second.without_trace) == (2, 1, 0)


def test_a_score_that_changed_supersedes_its_earlier_record(server: LangfuseServer, home: Path) -> None:
    fill(server, 1)
    with open_store(settings_of(server, home)) as store:
        run(server, store, home)
        [first] = crud.iterate(store, Feedback)
        server.project.add_score("s0", f"{0:032x}", True, NOW - timedelta(minutes=5), comment="Better on reflection.")
        counts = run(server, store, home)
        newest = list(crud.iterate(store, Feedback))[-1]
        assert counts.scores_changed == 1
        assert (newest.supersedes, newest.thumb, newest.comments) == (first.feedback_id, "up", "Better on reflection.")


def test_identifiers_are_removed_and_doubtful_texts_wait_in_quarantine(server: LangfuseServer, home: Path) -> None:
    time = NOW - timedelta(hours=3)
    server.project.add_trace("a" * 32, "患者王芳，手机13800138000，咳嗽三天。", "请就医。", time, userId="patient-7@clinic.org")
    server.project.add_trace("b" * 32, "My number is one three eight 0 0 1 3 8 0 0 0.", "Please see a doctor.", time)
    server.project.add_score("s", "b" * 32, False, time)
    with open_store(settings_of(server, home)) as store:
        counts = run(server, store, home)
        by_question = {trace.conversation.question: trace for trace in crud.iterate(store, Trace)}
        [scrubbed] = [trace for question, trace in by_question.items() if "咳嗽" in question]
        assert "13800138000" not in scrubbed.canonical_json() and "王芳" not in scrubbed.canonical_json()
        assert scrubbed.user_hash is not None and scrubbed.user_hash.startswith("sub_")
        assert counts.held == len(quarantine.list_held(store))
        assert counts.held in (0, 2)  # the feedback on a trace in quarantine waits with it


def test_what_was_erased_does_not_come_back(server: LangfuseServer, home: Path) -> None:
    server.project.add_trace("a" * 32, "I cough.", "Rest.", NOW - timedelta(hours=2), userId="patient 7")
    server.project.add_score("s", "a" * 32, True, NOW - timedelta(hours=2))
    with open_store(settings_of(server, home)) as store:
        run(server, store, home)
        assert rows(store)
        request = ErasureRequest(subject="patient 7", reason="asked for it")
        erase_records(store, request, actor="test")
        counts = run(server, store, home, ImportWish(since=NOW - timedelta(days=3), backoff_s=0.001))
        assert rows(store) == [] and counts.traces_new == 0 and counts.scores_new == 0


FAULTS = ("rate", "error_500", "html", "truncated", "reset", "repeated", "expired")


@pytest.mark.parametrize("name", FAULTS)
def test_a_service_that_misbehaves_loses_and_doubles_nothing(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medloop.telemetry.langfuse_api.OBSERVATIONS_A_PAGE", 7)
    monkeypatch.setattr("medloop.telemetry.langfuse_api.SCORES_A_PAGE", 7)
    seen: dict[str, int] = {}

    def fault(number: int, target: str) -> str:
        """The second page of each stream goes wrong, and so does a later one."""
        path, _, query = target.partition("?")
        seen[path] = seen.get(path, 0) + ("cursor=" in query)
        return name if "cursor=" in query and seen[path] in (1, 3) else "ok"

    with LangfuseServer(fault=fault) as server, open_store(settings_of(server, home)) as store:
        fill(server, 20)
        counts = run(server, store, home)
        assert (counts.traces_new, counts.scores_new) == (20, 20)
        assert len(rows(store)) == 40 and min(seen["/api/public/v2/observations"], seen["/api/public/v3/scores"]) > 2


def test_a_page_that_is_repeated_for_ever_is_an_error_not_a_loop(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medloop.telemetry.langfuse_api.OBSERVATIONS_A_PAGE", 7)
    with (
        LangfuseServer(fault=lambda n, target: "repeated" if "cursor=" in target else "ok") as server,
        open_store(settings_of(server, home)) as store,
        pytest.raises(windows.ServiceError, match="again and again"),
    ):
        fill(server, 20)
        run(server, store, home)


def test_the_command_says_what_it_did_and_what_is_next(server: LangfuseServer, home: Path, command_line, monkeypatch) -> None:
    monkeypatch.setenv("LANGFUSE_BASE_URL", server.url)
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-t")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-lf-t")
    monkeypatch.chdir(home)
    fill(server, 3)
    done = command_line("data", "import", "langfuse", "--consent", "training")
    assert done.code == 0, done.err
    assert "3 new traces, 0 were known." in done.out and "3 new scores (up 2, down 1)" in done.out
    for step in [line.partition(": medloop ")[2] for line in done.out.splitlines() if ": medloop " in line]:
        assert command_line(*step.split()).code == 0, step
    again = json.loads(command_line("data", "import", "langfuse", "--since", "7d", "--json").out)
    assert (again["traces_new"], again["traces_known"], again["scores_known"]) == (0, 3, 3)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "address of Langfuse is not set"),
        ({"LANGFUSE_BASE_URL": "http://langfuse.example.org"}, "over https"),
        ({"LANGFUSE_BASE_URL": "https://langfuse.example.org"}, "keys of the Langfuse project are not set"),
    ],
)
def test_a_wrong_setting_is_named(environ: dict[str, str], said: str, home: Path, command_line, monkeypatch) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home)
    done = command_line("data", "import", "langfuse")
    assert done.code == 2 and said in done.err


def test_wrong_keys_and_long_waits_are_told_at_once(server: LangfuseServer, home: Path, command_line, monkeypatch) -> None:
    monkeypatch.setenv("LANGFUSE_BASE_URL", server.url)
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-t")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "wrong-secret")
    monkeypatch.chdir(home)
    done = command_line("data", "import", "langfuse")
    assert done.code == 1 and "refused the keys (401)" in done.err and "wrong-secret" not in done.err
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-lf-t")
    server.fault = lambda number, target: "rate_long"
    done = command_line("data", "import", "langfuse")
    assert done.code == 1 and "asks to wait 3600 seconds" in done.err


def import_in_a_process(server: LangfuseServer, home: Path, kill_at: int, delay_s: float) -> int:
    """`medloop data import langfuse` as a process that is killed when it asks for the page number `kill_at`; its exit code."""
    code = "from medloop.cli import main; main()"
    command = [sys.executable, "-c", code, "--home", str(home), "data", "import", "langfuse", "--consent", "training"]
    keys = {"LANGFUSE_BASE_URL": server.url, "LANGFUSE_PUBLIC_KEY": "pk-lf-t", "LANGFUSE_SECRET_KEY": "sk-lf-t"}
    child = subprocess.Popen(command, env={**os.environ, **keys}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    asked, timers = 0, list[threading.Timer]()

    def fault(number: int, target: str) -> str:
        nonlocal asked
        asked += "observations" in target or "scores" in target
        if asked == kill_at and not timers:
            timers.append(threading.Timer(delay_s, os.kill, (child.pid, signal.SIGKILL)))
            timers[0].start()
        return "ok"

    server.fault = fault
    child.wait(600)
    for timer in timers:
        timer.cancel()
        timer.join()
    return child.returncode


def check_complete(store: Store, n: int) -> None:
    traces, feedback = list(crud.iterate(store, Trace)), list(crud.iterate(store, Feedback))
    assert (len(traces), len(feedback)) == (n, n)
    assert len({trace.conversation.question for trace in traces}) == n
    assert {f.trace_id for f in feedback} == {trace.trace_id for trace in traces}


def test_a_kill_in_the_middle_loses_and_doubles_nothing(server: LangfuseServer, home: Path) -> None:
    fill(server, 240)
    assert import_in_a_process(server, home, 11, 0.0) == -signal.SIGKILL  # among the pages of the scores
    with open_store(settings_of(server, home)) as store:
        assert crud.count(store, Trace) == 240 and crud.count(store, Feedback) < 240
        counts = run(server, store, home)
        check_complete(store, 240)
        assert counts.traces_new == 0 and counts.scores_new > 0


@pytest.mark.slow
def test_ten_thousand_traces_imported_twice_and_killed_in_between_give_the_same_rows(server: LangfuseServer, home: Path) -> None:
    fill(server, 10_000)
    for kill_at, delay_s in ((2, 0.0), (6, 1.5), (5, 3.0), (8, 0.4), (30, 0.05), (40, 0.2)):
        import_in_a_process(server, home, kill_at, delay_s)
    assert import_in_a_process(server, home, -1, 0) == 0
    with open_store(settings_of(server, home)) as store:
        check_complete(store, 10_000)
        before = rows(store)
        counts = run(server, store, home, ImportWish(since=NOW - timedelta(days=30), backoff_s=0.001))
        assert (counts.traces_new, counts.traces_known, counts.scores_new, counts.scores_known) == (0, 10_000, 0, 10_000)
        assert rows(store) == before
