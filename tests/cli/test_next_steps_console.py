"""The commands that the lists and the home page of the console tell somebody to run, run as they stand."""

import re
from pathlib import Path

from typer.testing import CliRunner

from medloop.cli import app
from medloop.loop.workspace import init_workspace
from medloop.web import loop_strip, render

TEMPLATES = Path(render.__file__).parent / "templates"
PAGES = ("datasets.html", "teacher.html")


def printed() -> list[str]:
    texts = (TEMPLATES.joinpath(name).read_text(encoding="utf-8") for name in PAGES)
    return [command for text in texts for command in re.findall(r"<code>medloop ([^<{]+)</code>", text)]


def test_the_commands_of_empty_lists_run():
    commands = printed()
    assert len(commands) == 5
    for command in commands:
        result = CliRunner().invoke(app, command.split())
        assert result.exit_code == 0, (command, result.output)


def test_the_command_of_a_home_page_without_a_cycle_runs(workspace):
    source = Path(loop_strip.__file__).read_text(encoding="utf-8")
    (first,) = re.findall(r'"(loop run --dry-run)"', source)
    init_workspace(workspace)
    result = CliRunner().invoke(app, ["--home", str(workspace), *first.split()])
    assert result.exit_code == 0 and "Nothing was done." in result.output, result.output
