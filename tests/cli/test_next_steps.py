"""Every command that medloop prints or writes for the reader exists, and those of a small pipeline run as they stand."""

import ast
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from medloop.cli import COMMANDS, app
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud
from medloop.testing.feedback import make_correction, make_preference, make_thumb

SOURCE = Path(__file__).parents[2] / "src/medloop"
SMALL_RL = "--set n_questions=6 --n-candidates 2 --set max_new_tokens=24 --set held_out_n=4 --n-iterations 1"
PIPELINE = (
    "embedded corpus --output clinic.jsonl --rows 300",
    "data import clinic.jsonl --licence Apache-2.0",
    "data prepare --no-scrub",
    "data list",
    "data prompts --n 12",
    "train sft --set max_steps=2 --set dev_rows=4 --max-length 192",
    "embedded pairs --n 20 --output pairs.jsonl",
    "train dpo --data pairs.jsonl --adapter sft --set max_steps=1 --batch-size 4 --max-length 192",
    "train kto --data pairs.jsonl --adapter sft --set max_steps=1 --batch-size 4 --max-length 192",
    "train reward --data pairs.jsonl --set max_steps=1 --batch-size 4 --max-length 192",
    f"train irs --adapter sft --name rl {SMALL_RL}",
    "reward validate --bundled",
    "reward drift",
    "data build --name week",
    "reward score data/processed/red_team.jsonl",
    "inspect data/processed/red_team.jsonl --all --week 2026-W46",
    "feedback trigger --every 1",
    "feedback queue next --rater li",
    "users list",
    "api keys list",
    "jobs list",
)
# A printed command runs as it stands, with what makes it quick or fills a placeholder; a server never ends, so only its help.
PLACEHOLDERS = {"FILE": "clinic.jsonl", "CASES": "cases.jsonl", "ROLE": "clinician", "STAGE": "SFT"}
NAMES = {"data import": "again", "train irs": "sft", "users add": "dr.li", "api keys new": "dr.li"}
QUICKER = {
    "train sft": "--set max_steps=1 --set dev_rows=4 --max-length 192 --name quick",
    **dict.fromkeys(("train reward", "train dpo", "train kto"), "--set max_steps=1 --batch-size 4 --max-length 192 --name quick"),
    "train irs": f"--name quick {SMALL_RL}",
    "predict": "--max-new-tokens 4 --replace",
    "eval": "--n 2 --max-new-tokens 4",
    "api serve": "--help",
}


def words_of_strings(tree: ast.AST) -> Iterator[str]:
    """Every text in a module, with a word in place of each value of an f-string."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def named_commands(text: str) -> Iterator[str]:
    """What follows `medloop` where it is quoted or introduced as a command; prose such as 'medloop ran into' is none."""
    for match in re.finditer(r"(?:[`'$&>] ?|: |[Rr]un |with |^)medloop ((?:--home \S+ )?[a-z][^`'\"\n]*)", text, re.MULTILINE):
        yield match[1]


def command_of(text: str) -> tuple[list[str], list[str]]:
    """The names of a command in `text` and the options after it."""
    words = re.split(r"[;()]|[.,] |[.,]$| \|", re.sub(r"^--home \S+ ", "", text))[0].split()
    group: Any = typer.main.get_command(app)
    names: list[str] = []
    while words and hasattr(group, "commands") and words[0].rstrip(".,:") in group.commands:
        names.append(words.pop(0).rstrip(".,:"))
        group = group.commands[names[-1]]
    missing = words[:1] if hasattr(group, "commands") and words and re.fullmatch(r"[a-z][a-z-]*", words[0]) else []
    known = {option for param in group.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    return names, missing + [word for word in words if word.startswith("--") and word.split("=")[0] not in known]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_command_in_a_message_exists_with_its_options(path: Path) -> None:
    for text in words_of_strings(ast.parse(path.read_text(encoding="utf-8"))):
        for command in named_commands(text):
            names, unknown = command_of(command)
            if command.split()[0] in COMMANDS or re.search(r"[`']medloop|with: medloop", text):
                assert names and not unknown, f"'medloop {command}' names a command or option that does not exist"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home, before = tmp_path_factory.mktemp("next") / "clinic", Path.cwd()
    init_workspace(home)
    with open_store(Settings(home=home)) as store:
        for n in range(12):
            bad, good = f"Run {n} miles.", f"Rest {n} days and see a doctor."
            thumbs = (make_thumb(n, good, True), make_thumb(n, bad, False))
            crud.add(store, [make_preference(n, good, bad, "a"), make_correction(n, bad, good), *thumbs], actor="test")
    case = {"id": "1", "question": "I have crushing chest pain.", "urgency": "emergent"}
    (home / "cases.jsonl").write_text(json.dumps(case), encoding="utf-8")
    os.chdir(home)
    yield home
    os.chdir(before)


def medloop(command: str) -> str:
    done = CliRunner().invoke(app, ["--set", "threads=1", *shlex.split(command)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise AssertionError(f"medloop {command}") from done.exception
    assert done.exit_code == 0, f"medloop {command}\n{done.output}"
    return done.output


def test_the_next_steps_of_a_small_pipeline_run(workspace: Path) -> None:
    printed = [line for command in PIPELINE for line in medloop(command).splitlines()]
    pages = [path.read_text(encoding="utf-8") for path in workspace.rglob("*.md")]
    steps = dict.fromkeys(
        step for text in (*printed, *pages) for step in re.findall(r"(?:: |&& |^|`)medloop ([a-z-][^`\n]+)", text, re.M)
    )
    assert any("models/rl/rl" in step for step in steps) and len(steps) > 12
    failed = []
    for number, step in enumerate(steps):
        names, _ = command_of(step)
        key = " ".join(names)
        words = [NAMES.get(key, word) if word == "NAME" else PLACEHOLDERS.get(word, word) for word in step.split()]
        name = f"quick{number}" if key.startswith("train ") else "quick"
        try:
            medloop(" ".join([*words, QUICKER.get(key, "").replace("quick", name)]))
        except AssertionError as error:
            failed.append(f"{error}: {error.__cause__}")
    assert not failed, "\n".join(failed)
