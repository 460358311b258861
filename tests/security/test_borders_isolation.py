"""A module that lies in a workspace is never imported, however medloop starts a process there."""

import ast
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from medloop.feedback.submit.scan_workers import ScanWorkers
from medloop.isolation import isolated
from medloop.jobs.periodic import command_in_a_process
from medloop.jobs.supervisor import start_worker

JOB = "train_20260203T120000Z"
SOURCE = Path(__file__).parents[2] / "src/medloop"


@pytest.fixture
def planted(sqlite_settings, tmp_path, monkeypatch):
    """A workspace with modules named like ours, in which we stand; PYTHONPATH has an empty entry, which means: here."""
    marker = tmp_path / "ran"
    for name in ("yaml", "pydantic", "json"):
        (sqlite_settings.home / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\nraise SystemExit(99)\n")
    monkeypatch.chdir(sqlite_settings.home)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", os.environ.get("PYTHONPATH", "")]))
    return sqlite_settings, marker


def job(settings) -> int:
    (settings.workspace.jobs / JOB).mkdir()
    (settings.workspace.jobs / JOB / "queue.json").write_text("{}")  # its worker starts, and refuses it
    return start_worker(JOB, settings).wait(60)


def scan(settings) -> None:
    with ScanWorkers(settings.allow_file).running() as workers:
        assert "broke" not in str(workers.doubt_about(["Chest pain since yesterday."]))


def periodic(settings) -> int:
    return command_in_a_process("config", "show")(settings).wait(60)


@pytest.mark.parametrize("start", [job, scan, periodic])
def test_a_yaml_py_in_the_workspace_is_not_run(planted, start):
    settings, marker = planted
    assert start(settings) != 99 and not marker.exists()


def test_python_m_medloop_in_a_workspace_does_not_run_its_yaml_py(planted):
    settings, marker = planted
    (settings.home / "json.py").unlink()  # Python itself imports this before we are asked
    environ = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    subprocess.run([sys.executable, "-m", "medloop", "config", "show"], env=environ, check=True, capture_output=True)
    assert not marker.exists()


def test_neither_programs_nor_libraries_are_looked_for_in_the_workspace(planted):
    settings, marker = planted
    (settings.home / "git").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (settings.home / "git").chmod(0o700)
    environ = isolated({"PATH": f":.:{settings.home}", "LD_LIBRARY_PATH": f":{settings.home}:/usr/lib:", "PYTHONPATH": ""})
    assert environ == {"LD_LIBRARY_PATH": "/usr/lib", "PYTHONSAFEPATH": "1"}
    with suppress(FileNotFoundError):
        subprocess.run(["git", "--version"], env=environ, cwd=settings.home, check=False)
    assert not marker.exists()


def test_every_process_of_python_is_started_by_one_function():
    """`sys.executable` is named in one place; whoever needs it elsewhere for a printed path says so here."""
    named = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "executable":
                named.add(path.relative_to(SOURCE).as_posix())
    assert named == {"isolation.py", "cli/demo/clinicians.py"}  # the demo prints where `medloop` lies
