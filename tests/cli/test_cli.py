"""The command line as a person meets it: help, one-sentence errors, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer

from medloop.cli import app


def medloop(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MEDLOOP_")}
    return subprocess.run([sys.executable, "-m", "medloop", *args], cwd=cwd, env=clean | env, capture_output=True, text=True)


def commands(group: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    if not hasattr(group, "commands"):
        return [(path, group)]
    return [leaf for name, sub in group.commands.items() for leaf in commands(sub, (*path, name))]


COMMANDS = commands(typer.main.get_command(app))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(p) for p, _ in COMMANDS])
def test_every_command_has_help_with_an_example(path: tuple[str, ...], command: click.Command) -> None:
    assert command.help and f"medloop {' '.join(path)}" in command.help, "help without an example"
    for param in command.params:
        assert getattr(param, "help", None), f"{param.name} has no help"


def test_outside_a_workspace_one_sentence_and_no_traceback(tmp_path: Path) -> None:
    done = medloop("config", "show", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("medloop: ") and "medloop init" in done.stderr and "Traceback" not in done.stderr
    assert "Traceback" in medloop("--debug", "config", "show", cwd=tmp_path).stderr


def test_config_show_masks_secrets_and_names_origins(tmp_path: Path) -> None:
    assert medloop("init", "ws", cwd=tmp_path).returncode == 0
    key = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTAwMDE="
    done = medloop("--set", "seed=7", "config", "show", "--json", cwd=tmp_path / "ws", MEDLOOP_DATABASE__ENCRYPTION_KEY=key)
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert key not in done.stdout and rows["database.encryption_key"]["value"] == "********"
    assert rows["seed"] == {**rows["seed"], "value": "7", "from": "flag"}
    assert rows["database.encryption_key"]["from"] == "environment MEDLOOP_DATABASE__ENCRYPTION_KEY"


def test_init_on_a_file_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    (tmp_path / "ws").write_text("mine")
    done = medloop("init", "ws", cwd=tmp_path)
    assert done.returncode == 2 and "is a file" in done.stderr
    assert (tmp_path / "ws").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "sft", "--epochs", "many"), "Invalid value for '--epochs': must be a number, not 'many'"),
        (("data", "prepare", "--gold", "x"), "Invalid value for '--gold': must be a whole number, not 'x'"),
        (("data", "import", "a.csv", "--format", "xlsx"), "'xlsx' is not one of 'auto', 'jsonl', 'csv', 'parquet'"),
        (("api", "serve", "--port", "70000"), "Invalid value for '--port': must be at most 65535, not '70000'"),
        (("dta",), "No such command 'dta'. Did you mean 'data'?"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = medloop(*words, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and "nput should" not in done.stderr


def test_a_set_without_a_value_is_explained(tmp_path: Path) -> None:
    done = medloop("--set", "seed", "config", "show", cwd=tmp_path)
    assert done.returncode == 2 and "NAME=VALUE" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "predict q.jsonl --output a.jsonl",
        "eval --model embedded:tiny",
        "train sft",
        "train grpo",
        "--set seed=x embedded sample",
        "--set seed=x embedded build --output m",
    ],
)
def test_bad_settings_and_a_missing_workspace_are_told_before_torch_is_loaded(tmp_path: Path, words: str) -> None:
    code = (
        f"import sys; sys.argv = ['medloop', *{words.split()!r}]\nfrom medloop.cli import main\n"
        "try: main()\nexcept SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MEDLOOP_")}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=clean, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"] and ("workspace" in done.stderr or "seed is 'x'" in done.stderr)
