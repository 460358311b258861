"""Anchors: the newest hash outside, in a file, in the system's log and with a time-stamping service that may misbehave."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from timestamp_double import MISBEHAVIOUR, TimestampDouble, make_keys, serving

from medloop.contracts import AuditEvent
from medloop.settings import Settings
from medloop.store import audit, timestamp
from medloop.store.db import open_store


@pytest.fixture(scope="session")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tsa")
    make_keys(folder)
    return folder


@pytest.fixture
def double(keys: Path, monkeypatch) -> Iterator[TimestampDouble]:
    monkeypatch.setattr(timestamp, "WAIT_S", 1.0)
    with serving(keys) as running:
        yield running


def runner(settings: Settings, command_line, monkeypatch):
    monkeypatch.setenv("MEDLOOP_DATABASE__URL", settings.store_url)

    def call(*args: str | Path) -> tuple[int, str]:
        ended = command_line("--home", settings.home, *args)
        return ended.code, ended.out + ended.err

    return call


@pytest.fixture
def run(settings: Settings, command_line, monkeypatch):
    return runner(settings, command_line, monkeypatch)


@pytest.fixture
def run_sqlite(sqlite_settings: Settings, command_line, monkeypatch):
    return runner(sqlite_settings, command_line, monkeypatch)


def work(settings: Settings, rows: int = 3) -> None:
    with open_store(settings) as store, store.write() as conn:
        audit.append(conn, [AuditEvent(actor="a", action="work", subject=str(n)) for n in range(rows)])


def rewrite_history(settings: Settings) -> None:
    """Somebody with the master key: another log that fits its head and every MAC."""
    engine = create_engine(settings.store_url)
    with engine.begin() as conn:
        conn.execute(text("DELETE FROM audit_log"))
    engine.dispose()
    audit.head_file(settings).unlink()
    work(settings, 9)
    with open_store(settings) as store:
        assert audit.verify(store).ok


def test_a_log_that_was_made_anew_with_the_keys_does_not_fit_the_file_outside(run, settings: Settings, tmp_path: Path) -> None:
    work(settings)
    flag = ("--set", f"audit.anchor_file={tmp_path / 'disk/anchors'}")
    assert run("audit", "anchor")[0] == 2  # no place is set
    assert run(*flag, "audit", "anchor")[0] == 0
    work(settings)
    code, output = run(*flag, "audit", "verify")
    assert code == 0 and "Anchors on the chain: 1, up to row 3" in output
    rewrite_history(settings)
    (settings.workspace.logs / "audit.anchors").unlink()
    assert run("audit", "verify")[0] == 0  # inside the workspace nothing tells
    code, output = run(*flag, "audit", "verify")
    assert code == 6 and "this is not the log that was anchored, row 3 is missing or differs" in output
    assert run(*flag, "audit", "verify", "--new-head")[0] == 0 and run(*flag, "audit", "verify")[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "disk/anchors").read_text().splitlines()]
    assert [line["accepted"] for line in lines] == [False, True]  # the evidence stays


def test_a_text_to_compare_with_comes_on_top_of_the_configured_places(run, settings: Settings, tmp_path: Path) -> None:
    """Seen: with --against, anchors on the other disk that did not fit were not looked at."""
    work(settings)
    flag = ("--set", f"audit.anchor_file={tmp_path / 'anchors'}")
    assert run(*flag, "audit", "anchor")[0] == 0
    rewrite_history(settings)
    with open_store(settings) as store:
        (tmp_path / "fits").write_text(f"medloop-anchor seq=2 hash={audit.hash_at(store, 2)}\n")
    (tmp_path / "none").write_text("nothing\n")
    code, output = run(*flag, "audit", "verify", "--against", tmp_path / "fits")
    assert code == 6 and "this is not the log that was anchored" in output
    (settings.workspace.logs / "audit.anchors").unlink()
    assert run("audit", "verify", "--against", tmp_path / "fits")[0] == 0
    code, output = run("audit", "verify", "--against", tmp_path / "none")
    assert code == 3 and "holds no anchor" in output


def test_anchors_that_disappear_are_an_alarm(run, settings: Settings, tmp_path: Path) -> None:
    work(settings)
    flag = ("--set", f"audit.anchor_file={tmp_path / 'anchors'}")
    assert run(*flag, "audit", "anchor")[0] == 0
    (tmp_path / "anchors").unlink()
    (settings.workspace.logs / "audit.anchors").unlink()
    code, output = run(*flag, "audit", "verify")
    assert code == 6 and "no anchor is left" in output


def test_the_system_log_gets_a_line_that_verify_compares(run, settings: Settings, tmp_path: Path) -> None:
    work(settings)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        log.bind(str(tmp_path / "log"))
        udp.bind(("127.0.0.1", 0))
        assert run("--set", f"audit.syslog={tmp_path / 'log'}", "audit", "anchor")[0] == 0
        assert run("--set", f"audit.syslog=udp://127.0.0.1:{udp.getsockname()[1]}", "audit", "anchor")[0] == 0
        (tmp_path / "syslog").write_bytes(log.recv(2000) + b"\nsomething else\n" + udp.recv(2000))
    assert "<109>1 " in (tmp_path / "syslog").read_text()
    code, output = run("audit", "verify", "--against", tmp_path / "syslog")
    assert code == 0 and "Anchors on the chain: 2" in output
    rewrite_history(settings)
    code, output = run("audit", "verify", "--against", tmp_path / "syslog")
    assert code == 6 and "this is not the log that was anchored" in output
    assert run("--set", "audit.syslog=/nowhere/log", "audit", "anchor")[0] == 10


def test_a_signed_timestamp_is_kept_and_checked(run_sqlite, sqlite_settings: Settings, double, keys, tmp_path: Path) -> None:
    work(sqlite_settings)
    flags = ("--set", f"audit.timestamp_url={double.url}", "--set", f"audit.timestamp_certificate={keys / 'ca.pem'}")
    assert run_sqlite(*flags, "audit", "anchor")[0] == 0
    code, output = run_sqlite(*flags, "audit", "verify")
    assert code == 0 and "1 with a signed timestamp" in output
    other = ("--set", f"audit.timestamp_certificate={keys / 'other_ca.pem'}")
    code, output = run_sqlite(*other, "audit", "verify")
    assert code == 6 and "not signed by a trusted certificate" in output
    assert run_sqlite("--set", f"audit.timestamp_url={double.url}", "audit", "anchor")[0] == 2  # nothing to check it with


@pytest.mark.parametrize("mode", MISBEHAVIOUR)
def test_a_service_that_misbehaves_gives_no_timestamp_and_says_why(
    run_sqlite, sqlite_settings: Settings, double, keys, mode: str
) -> None:
    work(sqlite_settings)
    double.mode = mode
    flags = ("--set", f"audit.timestamp_url={double.url}", "--set", f"audit.timestamp_certificate={keys / 'ca.pem'}")
    code, output = run_sqlite(*flags, "audit", "anchor")
    assert code == 10 and "not anchored, " in output and "Traceback" not in output
    assert "audit.anchors: anchored" in output  # the other places get theirs
    code, output = run_sqlite(*flags, "audit", "verify")
    assert code == 0 and "signed timestamp" not in output
