"""The command line as a person meets it: help, one-sentence errors, exit codes."""

import json
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from medloop.cli import app
from medloop.errors import ConfigError
from medloop.loop.workspace import init_workspace
from medloop.testing.processes import run_medloop as medloop


def commands(group: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    if not hasattr(group, "commands"):
        return [(path, group)]
    return [leaf for name, sub in group.commands.items() for leaf in commands(sub, (*path, name))]


COMMANDS = commands(typer.main.get_command(app))


def test_lists_of_commands_show_whole_sentences() -> None:
    for group in sorted({path[0] for path, _ in COMMANDS if len(path) > 1}):
        listing = CliRunner().invoke(app, [group, "--help"]).output.partition("Commands:")[2]
        assert listing and "..." not in listing, group


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(p) for p, _ in COMMANDS])
def test_every_command_has_help_with_an_example(path: tuple[str, ...], command: click.Command) -> None:
    assert command.help and f"medloop {' '.join(path)}" in command.help, "help without an example"
    assert all(part.count("Example:") < 2 for part in command.help.split("\n\n")), "two examples run together"
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


LISTS = {"list", "status", "show", "stats", "usage", "card", "check", "verify", "metrics", "rules", "weights", "preview"}
NO_JSON = {
    ("jobs", "metrics"): "it prints JSON anyway",
    ("quarantine", "show"): "patient text goes to a terminal only",
    ("incidents", "show"): "patient text goes to a terminal only",
}


@pytest.mark.parametrize(("path", "command"), [(p, c) for p, c in COMMANDS if p[-1] in LISTS], ids=lambda v: str(v)[:40])
def test_every_list_and_status_has_json(path: tuple[str, ...], command: click.Command) -> None:
    options = {option for param in command.params for option in param.opts}
    assert "--json" in options or path in NO_JSON


@pytest.mark.parametrize("group", ["quarantine", "incidents"])
def test_patient_text_is_not_printed_into_a_pipe(tmp_path: Path, group: str) -> None:
    init_workspace(tmp_path / "clinic")
    done = CliRunner().invoke(app, ["--home", str(tmp_path / "clinic"), group, "show", "id_1"])
    assert isinstance(done.exception, ConfigError) and "prints patient text" in str(done.exception) and not done.stdout


@pytest.mark.parametrize(
    "words",
    ["data list", "jobs list", "quarantine list", "users list", "api keys list", "keys show", "db check", "audit verify", "reward rules",
     "teacher usage", "consent show 4711", "config show", "feedback queue list", "reward weights --demo", "privacy check note.txt"],
)  # fmt: skip
def test_json_is_all_that_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    init_workspace(tmp_path / "clinic")
    monkeypatch.chdir(tmp_path / "clinic")
    Path("note.txt").write_text("Rest.")
    done = CliRunner().invoke(app, [*words.split(), "--json"])
    assert done.exit_code == 0 and isinstance(json.loads(done.stdout), dict | list)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("medloop da", "data"),
        ("medloop data im", "import"),
        ("medloop --home x data import --enc", "--encoding"),
        ("medloop train gr", "grpo"),
    ],
)
def test_completion_in_bash_starts_no_python(tmp_path: Path, line: str, offered: str) -> None:
    script = CliRunner().invoke(app, ["completion", "bash"]).stdout
    assert "python" not in script.replace("--python", "") and "$(medloop" not in script
    (tmp_path / "medloop.bash").write_text(script)
    words = line.split()
    code = f"source medloop.bash; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _medloop; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [offered] and not done.stderr


@pytest.mark.parametrize(("shell", "check"), [("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_completion_for_other_shells_is_valid(tmp_path: Path, shell: str, check: list[str]) -> None:
    (tmp_path / "script").write_text(script := CliRunner().invoke(app, ["completion", shell]).stdout)
    assert "medloop data import" in script and "--encoding" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so its script was not parsed")
    assert subprocess.run([*check, "script"], cwd=tmp_path).returncode == 0
