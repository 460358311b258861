"""Documents that can be checked are: the reference against the code, links against files, commands against the CLI."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from medloop.cli import app
from medloop.cli.reference import pages

ROOT = Path(__file__).parent.parent
TEXTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize(("name", "text"), pages().items(), ids=pages().keys())
def test_the_reference_is_what_the_code_says(name: str, text: str) -> None:
    assert (ROOT / "docs/reference" / name).read_text(encoding="utf-8") == text, "run 'make docs'"


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def commands(text: str) -> list[str]:
    """Lines of code blocks that call medloop, continuation lines joined."""
    blocks = re.findall(r"```(?:bash|sh|console)?\n(.*?)```", text, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip().removeprefix("$ ") for line in lines if re.match(r"\s*(\$ )?medloop ", line)]


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_in_documents_exist_with_their_options(path: Path) -> None:
    top = typer.main.get_command(app)
    for line in commands(path.read_text(encoding="utf-8")):
        words = shlex.split(line.split(" # ")[0].split(" | ")[0].split(" && ")[0].split(" > ")[0].split(", or ")[0])[1:]
        while words and words[0].startswith("--"):
            words = words[2:] if words[0] in {"--set", "--home"} else words[1:]
        command = top
        while hasattr(command, "commands") and words and not (command.invoke_without_command and words[0].startswith("--")):
            assert words[0] in command.commands, line
            command, words = command.commands[words[0]], words[1:]
        known = {opt for p in command.params for opt in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
        for word in words:
            if re.match(r"--[a-z]", word):
                assert word.split("=")[0] in known, f"{word} in: {line}"


def test_no_document_names_this_kind_of_thing() -> None:
    for path in [*TEXTS, *(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "Makefile"]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.])/(?:wo" r"rk|ro" r"ot|home)/[a-z]", text), f"{path} names a machine's path"


def test_every_test_that_the_rl_checklist_names_exists() -> None:
    table = (ROOT / "docs/stages/rl_maths.md").read_text(encoding="utf-8").partition("## Checklist")[2]
    named = set(re.findall(r"`([a-z0-9_]{12,})`", table)) - {"missing_eos_penalty"}
    there = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^def test_(\w+)", path.read_text(), re.M)
    }
    assert len(named) > 80 and not named - there
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == [str(n) for n in range(1, 28)]


def test_the_walks_of_the_loop_name_files_and_functions_that_exist() -> None:
    rows = re.findall(r"^\| \d+ \| `([^`]+)` \| (.*?) \|", (ROOT / "docs/loop.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 20
    for file, functions in rows:
        source = (ROOT / "src/medloop" / file).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", " ".join(re.findall(r"`([^`(]+)", functions))):
            assert re.search(rf"\b{name}\b", source), f"{name} in {file}"
