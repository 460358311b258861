"""Promises that cross several parts, each was once broken, reproduced and fixed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from medloop.contracts import Conversation, Message
from medloop.loop.workspace import init_workspace
from medloop.testing.processes import run_medloop


def medloop(cwd: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run_medloop(*args, cwd=cwd, **env)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("prepared") / "ws"
    init_workspace(home)
    assert medloop(home, "embedded", "corpus", "--output", "c.jsonl", "--rows", "300").returncode == 0
    assert medloop(home, "data", "import", "c.jsonl", "--name", "c").returncode == 0
    assert medloop(home, "data", "prepare").returncode == 0
    return home


@pytest.fixture
def home(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "ws"))


def test_the_demo_keeps_out_of_the_workspace_named_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from medloop.cli.demo import demo

    init_workspace(tmp_path / "real")
    monkeypatch.setenv("MEDLOOP_HOME", str(tmp_path / "real"))
    steps = ("embedded corpus --output c.jsonl --rows 20", "data import c.jsonl --name c")
    monkeypatch.setattr(demo, "STEPS", tuple(("A step", step) for step in steps))
    monkeypatch.chdir(tmp_path)
    demo.demo(tmp_path / "play")
    assert (tmp_path / "play/data/raw/c").is_dir() and not list((tmp_path / "real/data/raw").iterdir())


def test_an_import_that_was_killed_is_swept_and_never_listed(home: Path) -> None:
    shutil.copytree(home / "data/raw/c", home / "data/raw/.d.tmp-0123456789ab")
    listed = medloop(home, "data", "list")
    assert listed.returncode == 0 and ".d.tmp" not in listed.stdout
    assert medloop(home, "data", "import", "c.jsonl", "--name", "c").returncode == 0
    assert not list((home / "data/raw").glob(".d.tmp*"))


@pytest.mark.parametrize("command", [("train", "sft"), ("eval", "--model", "embedded:tiny", "--split", "gold")])
def test_a_damaged_dataset_is_refused(home: Path, command: tuple[str, ...]) -> None:
    for name in ("train.jsonl", "gold_set.jsonl"):
        path = home / "data/processed" / name
        path.write_bytes(path.read_bytes()[:-40])
    done = medloop(home, *command)
    assert done.returncode == 6 and ".jsonl" in done.stderr


def test_a_danger_named_in_an_earlier_turn_is_still_asked_about() -> None:
    texts = ("My 3-year-old son has a seizure.", "How long?", "About ten minutes, what should I do?")
    talk = Conversation(
        messages=tuple(Message(role=r, content=t) for r, t in zip(("user", "assistant", "user"), texts, strict=True))
    )
    assert talk.user_text == f"{texts[0]}\n{texts[2]}" and talk.question == texts[2]


def test_a_broken_last_line_of_a_users_file_is_an_error(home: Path) -> None:
    (home / "q.jsonl").write_text('{"question": "What is a cold?"}\n\n{"question": "Wha')
    done = medloop(home, "predict", "q.jsonl", "--output", "a.jsonl")
    assert done.returncode == 3 and "q.jsonl, line 3" in done.stderr and not (home / "a.jsonl").exists()


def test_prediction_files_with_one_name_stay_two_columns(home: Path) -> None:
    ids = [json.loads(line)["record_id"] for line in (home / "data/processed/gold_set.jsonl").read_text().splitlines()]
    for folder in ("a", "b"):
        (home / folder).mkdir()
        (home / folder / "answers.jsonl").write_text("".join(json.dumps({"record_id": i, "text": folder}) + "\n" for i in ids))
    files = ("--predictions", "a/answers.jsonl", "--predictions", "b/answers.jsonl")
    assert medloop(home, "eval", *files, "--split", "gold", "--name", "two").returncode == 0
    report = json.loads((home / "reports/eval/two/eval_report.json").read_text(encoding="utf-8"))
    assert [r["label"] for r in report["results"]][:2] == ["a/answers.jsonl", "b/answers.jsonl"]
    assert medloop(home, "eval", *files[:2], *files[:2], "--split", "gold", "--name", "x").returncode == 2


def test_data_that_leaves_nothing_to_train_on_is_refused_and_the_old_stays(home: Path) -> None:
    before = (home / "data/processed/card.json").read_bytes()
    rows = [
        {"question": f"I have had a bad cough for {n} days, what now doctor?", "answer": "Rest well and drink."}
        for n in range(60)
    ]
    (home / "same.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert medloop(home, "data", "import", "same.jsonl", "--name", "same").returncode == 0
    done = medloop(home, "data", "prepare", "--source", "same")
    assert done.returncode == 3 and "train" in done.stderr
    assert (home / "data/processed/card.json").read_bytes() == before


@pytest.mark.parametrize("pair", ["gold=[1", "gold=2020-13-45"])
def test_a_value_that_cannot_be_read_is_one_sentence(home: Path, pair: str) -> None:
    done = medloop(home, "data", "prepare", "--set", pair)
    assert done.returncode == 2 and pair in done.stderr and "Traceback" not in done.stderr


def test_a_settings_file_in_another_encoding_is_one_sentence(home: Path) -> None:
    (home / "medloop.yaml").write_bytes("model: 模型\n".encode("gbk"))
    done = medloop(home, "config", "show")
    assert done.returncode == 2 and "not UTF-8" in done.stderr


def test_init_takes_the_flags_it_is_given(tmp_path: Path) -> None:
    done = medloop(tmp_path, "--set", "nonsense=1", "init", "ws")
    assert done.returncode == 2 and "nonsense" in done.stderr


def test_a_new_workspace_is_its_owners_alone(tmp_path: Path) -> None:
    init_workspace(tmp_path / "ws")
    assert (tmp_path / "ws").stat().st_mode & 0o777 == 0o700


def test_text_after_a_json_array_is_not_passed_over(home: Path) -> None:
    row = '[{"question": "What is a cold?", "answer": "A virus."}]'
    (home / "two.json").write_text(row + "\n" + row)
    done = medloop(home, "data", "import", "two.json", "--name", "two")
    assert done.returncode == 3 and "end of its array" in done.stderr


def test_an_old_terminal_shows_a_question_mark_instead_of_dying(home: Path) -> None:
    env = os.environ | {"PYTHONIOENCODING": "latin-1", "MEDLOOP_MODEL": "模型"}
    done = subprocess.run([sys.executable, "-m", "medloop", "config", "show"], cwd=home, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "??" in done.stdout
