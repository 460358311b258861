"""Every command that 'medloop deploy' and 'medloop rollback' print as the next step runs as it stands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.testing.served_double import ServerDouble

sys.path.insert(0, str(Path(__file__).parents[1] / "deploy"))
from deploy_world import add_versions, promote

STEP = re.compile(r"(?:: |with: )medloop ((?:--home \S+ )?[a-z][^\n`']+?)\.?$", re.MULTILINE)


@pytest.mark.slow  # promoting loads MLflow
def test_the_next_steps_of_a_deployment_run(tmp_path: Path, command_line) -> None:
    home = tmp_path / "clinic"
    init_workspace(home)
    with ServerDouble() as double:
        (home / "medloop.yaml").write_text(f"deploy: {{replicas: '{double.url}', drain_s: 0}}\n", encoding="utf-8")
        with open_store(Settings(home=home)) as store:
            add_versions(store)
        steps = dict[str, int]()

        def run(*words: str) -> int:
            done = command_line("--home", home, *words)
            for step in STEP.findall(done.out + done.err):
                command = step.partition(f"--home {home} ")[2] or step
                if command not in steps:
                    steps[command] = -1
                    steps[command] = run(*shlex.split(command))  # what it prints is a next step, too
            return int(done.code)

        run("deploy", "status")  # prints: deploy
        with open_store(Settings(home=home)) as store:
            promote(store, 2)
        run("deploy")
        run("rollback", "--reason", "worse in triage")
        with open_store(Settings(home=home)) as store:
            promote(store, 2)
        run("deploy")  # refused; prints: deploy clear 2
    assert {"deploy", "deploy status", "deploy clear 2", "registry promote 2"} <= steps.keys()
    assert {command for command, code in steps.items() if code} == set()


def test_without_a_known_server_no_step_is_printed_that_cannot_run(tmp_path: Path, command_line) -> None:
    """Seen beside 'api serve --with-model': 'medloop deploy status' named 'medloop deploy', which knew no server."""
    home = tmp_path / "clinic"
    init_workspace(home)
    with open_store(Settings(home=home)) as store:
        add_versions(store)
        promote(store, 2, "challenger")
    said = command_line("--home", home, "deploy", "status").out
    assert not STEP.findall(said) and "known to that process alone: deploy on its page Deployments." in said
    assert "deploy on its page Deployments" in command_line("--home", home, "deploy").err
