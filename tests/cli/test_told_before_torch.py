"""What can be known without torch is told without torch: in a second, not after ten."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.cli.train import runner
from medloop.loop.workspace import init_workspace
from medloop.store.files import jsonl
from medloop.store.files.artifacts import new_artifact
from medloop.testing.records import make_emergencies

# All commands in one process that never imports torch; a process each would take the suite a minute.
RUN = """
import contextlib, io, json, sys
from medloop.cli import main
for words in json.load(sys.stdin):
    sys.argv, error = ["medloop", *words.split()], io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        try: main()
        except SystemExit as end: code = end.code
    heavy = sorted({"torch", "transformers", "trl", "peft"} & set(sys.modules))
    print(json.dumps([words, code, error.getvalue(), heavy]))
    if heavy: break
"""
PAIR = {"question": "Pain?", "chosen": "See a doctor.", "rejected": "Wait."}
THUMB = {"question": "Pain?", "answer": "Rest.", "thumb": "up"}
FILES = {
    "empty.jsonl": "",
    "broken.jsonl": '{"question": "Pain?", "answer": "Rest."}\n{"question": "Pa',
    "questions.jsonl": '{"question": "Pain?"}\n',
    "pairs.jsonl": "".join(json.dumps({**PAIR, "question": f"Pain {n}?"}) + "\n" for n in range(20)),
    "one_pair.jsonl": json.dumps(PAIR) + "\n",
    "liked.jsonl": "".join(json.dumps({**THUMB, "question": f"Pain {n}?"}) + "\n" for n in range(20)),
    "answers.jsonl": '{"id": "1", "run": "of another model"}\n',
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a sealed dataset, and files that are wrong in every way beside it."""
    home = tmp_path_factory.mktemp("told") / "clinic"
    init_workspace(home)
    with new_artifact(home / "data/processed", replace=True) as folder:
        for name in ("train", "dev"):
            jsonl.write(folder / f"{name}.jsonl", make_emergencies(4))
    for name, text in FILES.items():
        (home / name).write_text(text)
    (home / "bad.yaml").write_text("steps: [")
    (home / "encoder").mkdir()
    (home / "encoder/config.json").write_text('{"architectures": ["BertModel"]}')
    (home / "encoder/tokenizer_config.json").write_text("{}")
    (home / "data/rl/training_prompts.jsonl").write_text(FILES["questions.jsonl"])
    (home / "models/lora").mkdir(parents=True, exist_ok=True)
    (home / "models/lora/blocked").write_text("a file where the result should be")
    (home / "models/rl").mkdir(parents=True, exist_ok=True)
    (home / "models/rl/blocked").write_text("a file where the result should be")
    return home


def told(cwd: Path, rows: Sequence[tuple[str, int, str]]) -> None:
    """Each command ends with its code and one sentence that has its words, and nothing heavy is imported."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MEDLOOP_")}
    text = json.dumps([words for words, _, _ in rows])
    done = subprocess.run([sys.executable, "-c", RUN], input=text, cwd=cwd, env=clean, capture_output=True, text=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for (words, code, message), (ran, exit_code, error, heavy) in zip(rows, results, strict=False):
        assert ran == words and not heavy, f"{words}: {heavy} imported before {error!r}"
        assert exit_code == code and message in error and error.count("\n") == 1, f"{words}: {exit_code}, {error!r}"
    assert len(results) == len(rows), f"{rows[len(results)][0]}: {done.stderr}"


WRONG = [
    ("train sft --data nosuch.jsonl", 3, "no training file"),
    ("train sft --data empty.jsonl", 3, "is empty"),
    ("train sft --data broken.jsonl", 3, "broken.jsonl, line 2"),
    ("train sft --data questions.jsonl", 3, "1 without an answer"),
    ("train sft --set lora_r=64", 2, "max_trainable_share"),
    ("train sft --set epochz=3", 2, "did you mean epochs"),
    ("train sft --name blocked", 5, "blocked exists and is not a folder"),
    ("train sft --model encoder", 4, "encoder"),
    ("train sft --model nosuch/", 4, "nosuch"),
    ("train dpo --data empty.jsonl", 3, "is empty"),
    ("train dpo --data liked.jsonl", 3, "liked.jsonl, line 1: chosen is missing"),
    ("train dpo --data one_pair.jsonl", 3, "leaves 1 rows to train on and 0 held out"),
    ("train dpo --data pairs.jsonl --adapter nosuch", 4, "no adapter 'nosuch'"),
    ("train kto --data liked.jsonl", 3, "are liked"),
    ("train kto --data questions.jsonl", 3, "questions.jsonl, line 1"),
    ("train reward --data one_pair.jsonl --model embedded:tiny", 3, "leaves 1 pairs to train on and 0 held out"),
    ("train reward --data pairs.jsonl --extra-data broken.jsonl --model embedded:tiny", 3, "broken.jsonl, line"),
    ("train ppo --prompts broken.jsonl", 3, "broken.jsonl, line 2"),
    ("train grpo --config bad.yaml", 2, "not valid YAML"),
    ("train grpo --held-out empty.jsonl", 3, "empty.jsonl is empty"),
    ("train grpo --name blocked", 5, "blocked exists and is not a folder"),
    ("train grpo --set lora_r=64", 2, "max_trainable_share"),
    ("train grpo --with model=nosuch", 4, "no reward model"),
    ("train grpo --with model=encoder", 4, "not a reward model"),
    ("train irs --reward nosuch.yaml", 3, "nosuch.yaml does not exist"),
    ("predict empty.jsonl --output a.jsonl", 3, "is empty"),
    ("predict broken.jsonl --output a.jsonl", 3, "broken.jsonl, line 2"),
    ("predict questions.jsonl --output questions.jsonl", 2, "is the input itself"),
    ("predict questions.jsonl --output answers.jsonl", 2, "not answers of this model"),
    ("predict questions.jsonl --output /proc/a.jsonl", 3, "Cannot create /proc"),
    ("predict questions.jsonl --output a.jsonl --adapter nosuch", 4, "no adapter 'nosuch'"),
    ("predict questions.jsonl --output a.jsonl --model encoder", 4, "encoder"),
    ("eval --model embedded:tiny --predictions broken.jsonl --split dev", 3, "broken.jsonl, line"),
    ("eval --model embedded:tiny+nosuch", 4, "no adapter 'nosuch'"),
    ("--set seed=x embedded sample", 2, "seed is 'x'"),
    ("--set seed=x embedded build --output m", 2, "seed is 'x'"),
]


def test_a_wrong_input_is_told_before_torch_is_imported(home: Path) -> None:
    told(home, WRONG)


def test_a_missing_workspace_is_told_before_torch_is_imported(tmp_path: Path) -> None:
    commands = ("predict q.jsonl --output a.jsonl", "eval --model embedded:tiny", "train sft", "train grpo")
    told(tmp_path, [(words, 2, "workspace") for words in commands])


def test_a_dataset_that_was_changed_is_told_before_torch_is_imported(home: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(home, tmp_path / "clinic"))
    with (changed / "data/processed/dev.jsonl").open("a") as file:
        file.write("\n")
    commands = (
        "train sft",
        "train sft --data data/processed/train.jsonl",
        "train grpo",
        "eval --model embedded:tiny --split dev",
    )
    told(changed, [(words, 6, "dev.jsonl") for words in commands])


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        ("train sft", True),
        ("train grpo", True),
        ("train sft --set load_in_4bit=true", False),
        ("train ppo --set optimizer=paged_adamw_8bit", False),
        ("train grpo --with mine=my_module:judge", False),
    ],
)
def test_bitsandbytes_is_left_out_of_a_run_that_cannot_need_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: str, left_out: bool
) -> None:
    """peft would import it: two of nine seconds. A part of the reward that is somebody's own code may load a model with it."""
    calls: list[bool] = []
    monkeypatch.setattr(runner, "leave_out_bitsandbytes", lambda: calls.append(True))
    monkeypatch.setattr(runner, "run_stage", lambda *args, **more: sys.exit(99))
    monkeypatch.chdir(home)
    assert CliRunner().invoke(app, words.split()).exit_code == 99 and bool(calls) == left_out


@pytest.mark.parametrize(
    ("module", "work", "words", "left_out"),
    [
        ("predict", "answer_file", "predict questions.jsonl --output out.jsonl", True),
        ("eval", "evaluate_models", "eval --model embedded:tiny --rule chain", True),
        ("eval", "evaluate_models", "eval --model embedded:tiny --rule my_module:rule", False),
    ],
)
def test_answering_and_evaluating_leave_it_out_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, module: str, work: str, words: str, left_out: bool
) -> None:
    calls: list[bool] = []
    command = importlib.import_module(f"medloop.cli.{module}")
    monkeypatch.setattr(command, "leave_out_bitsandbytes", lambda: calls.append(True))
    monkeypatch.setattr(command, work, lambda *args, **more: sys.exit(99))
    monkeypatch.chdir(home)
    assert CliRunner().invoke(app, words.split()).exit_code == 99 and bool(calls) == left_out
