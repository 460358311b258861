"""Mistakes that people make, typed as they type them: what each message must say, and what it must not.

The numbers are those of the list of mistakes that was tried. A run of the same name with other settings (11), a second process on
one run (30) and Ctrl-C (31) are in tests/train; mistakes over HTTP (33, 34) are in tests/api/test_api_errors.py.
"""

import gzip
import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.errors import MedloopError
from medloop.loop.workspace import init_workspace
from medloop.store.files.artifacts import new_artifact

QUESTION = '{"id": "1", "question": "I have chest pain.", "answer": "Call an ambulance now."}\n'
LEAKS = ("nput should", "pattern", "^[", "Known: name", "Traceback", "pydantic")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("mistakes") / "clinic"
    init_workspace(home)
    files = {
        "bad.yaml": "seed: 42\nepochs: [\n", "keys.yaml": "epochz: 3\nlora_r: many\n", "list.yaml": "- a\n- b\n",
        "qa.csv": "q,a\nIs it flu?,Rest.\n", "answers.jsonl": QUESTION, "empty.jsonl": "", "data/processed/train.jsonl": QUESTION,
        "broken.jsonl": QUESTION + "{broken\n", "data/preferences/preferences.jsonl": QUESTION,
        "encoder/config.json": '{"architectures": ["BertForMaskedLM"]}', "encoder/tokenizer_config.json": "{}",
    }  # fmt: skip
    for name, text in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    (home / "latin1.csv").write_bytes(
        "question,answer\nJ'ai de la fièvre,Voyez un médecin\nÀ côté,Très élevé\n".encode("latin-1")
    )
    (home / "gb.csv").write_bytes("question,answer\n头疼怎么办,多休息\n".encode("gb18030"))
    (home / "book.xlsx").write_bytes(b"PK\x03\x04\x14\x00\x06\x00xl/workbook.xml")
    (home / "scan.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    (home / "answers.jsonl.gz").write_bytes(gzip.compress(QUESTION.encode()))
    with new_artifact(home / "models/lora/hurt") as folder:
        (folder / "adapter_config.json").write_text("{}")
        (folder / "adapter_model.safetensors").write_bytes(b"12345678")
    (home / "models/lora/hurt/adapter_model.safetensors").write_bytes(b"123456789")
    for place in ("lora", "rl"):
        (home / f"models/{place}/twin").mkdir()
        (home / f"models/{place}/twin/adapter_config.json").write_text("{}")
    return home


def medloop(command: str) -> str:
    """What a person reads on the terminal."""
    done = CliRunner().invoke(app, command.split(), env={"DEEPSEEK_API_KEY": "", "COLUMNS": "200"})
    if done.exception is not None and not isinstance(done.exception, SystemExit | MedloopError):
        raise done.exception
    return f"{done.output}\n{done.exception if isinstance(done.exception, MedloopError) else ''}"


PREDICT = "predict answers.jsonl -o out.jsonl"
MISTAKES = [
    ("1 option", "data prepare --sourc x", ("No such option: --sourc", "--source")),
    ("2 command", "dta", ("No such command 'dta'", "Did you mean 'data'?")),
    ("3 not a number", "train sft --epochs many", ("'--epochs': must be a number, not 'many'",)),
    ("4 out of range", "train sft --epochs 0", ("epochs is 0.0: must be greater than 0",)),
    ("5 bad YAML", "train sft --config bad.yaml", ("bad.yaml, line 3: not valid YAML", "Settings are lines like 'seed: 42'")),
    ("6 unknown key", "train sft --config keys.yaml", ("'epochz' (did you mean epochs?)", "lora_r is 'many': must be a whole number")),
    ("6 unknown key of --set", "train sft --set epochz=3", ("unknown setting 'epochz' (did you mean epochs?)",)),
    ("6 unknown workspace setting", "--set thread=2 data list", ("unknown setting 'thread'", "did you mean threads?")),
    ("7 YAML is a list", "train sft --config list.yaml", ("list.yaml: expected settings, not a list",)),
    ("8 config missing", "train sft --config nofile.yaml", ("nofile.yaml does not exist. Check the path",)),
    ("9 unknown model", f"--set offline=true {PREDICT} --model no/such", ("no/such is not on this machine", "embedded:tiny")),
    ("10 name", "train sft --name ../evil", ("name is '../evil': use up to 64 letters, digits",)),
    ("12 no adapter", f"{PREDICT} --adapter nosuch", ("There is no adapter 'nosuch'", "Adapters in this workspace: hurt, twin")),
    ("12 adapter typo", f"{PREDICT} --adapter twn", ("There is no adapter 'twn'", "Did you mean twin?")),
    ("13 two of a name", f"{PREDICT} --adapter twin", ("'twin' fits 2 adapters: models/lora/twin, models/rl/twin", "Name the folder")),
    ("14 damaged adapter", f"{PREDICT} --adapter hurt", ("adapter_model.safetensors has 9 bytes instead of 8",)),
    ("15 no adapter inside", f"{PREDICT} --adapter models/reward", ("has no adapter_config.json, so it is not a LoRA adapter",)),
    ("16 encoder", f"{PREDICT} --model encoder", ("encoder is BertForMaskedLM, an encoder, which cannot generate text", "chat model")),
    ("16 encoder to train", "train sft --model encoder", ("an encoder, which cannot generate text",)),
    ("18 columns", "data import qa.csv", ("no known shape fits its columns (q, a)", "--map question=COLUMN")),
    ("19 --map column", "data import qa.csv --map question=q --map answer=b", ("has no column 'b'", "Its columns are: q, a")),
    ("20 --map field", "data import qa.csv --map quest=q", ("there is no field 'quest'", "Fields: answer")),
    ("21 Latin-1", "data import latin1.csv", ("it looks like Latin-1", "Save it as UTF-8", "--encoding latin-1")),
    ("22 GB18030", "data import gb.csv --encoding utf-8", ("line 2: has bytes that are not UTF-8", "--encoding")),
    ("23 broken line", "data import broken.jsonl", ("broken.jsonl, line 2: is not valid JSON", "--on-error skip")),
    ("24 Excel", "data import book.xlsx", ("book.xlsx is an Excel workbook", "save the sheet as 'CSV UTF-8'")),
    ("24 Excel to score", "reward score book.xlsx", ("book.xlsx is an Excel workbook", "save the sheet as 'CSV UTF-8'")),
    ("24 picture", "data import scan.png", ("scan.png is a picture, not text",)),
    ("25 empty", "data import empty.jsonl", ("empty.jsonl is empty", "at least one record")),
    ("28 no key", "teacher judge answers.jsonl", ("No teacher key. Set DEEPSEEK_API_KEY, then run again. Nothing was written",)),
    ("32 init", "init /proc/foo", ("Cannot create /proc/foo", "where you can write")),
    ("32 output", f"{PREDICT.replace('out.jsonl', '/proc/x.jsonl')}", ("Cannot create /proc/x.jsonl", "where you can write")),
    ("38 date", "feedback metrics --since yesterday", ("--since: 'yesterday' is not a date", "30d")),
    ("38 report", "feedback metrics --output report.txt", ("--output must end in .md",)),
    ("stage", "jobs submit SFTT", ("There is no stage SFTT", "SFT, REWARD, DPO")),
    ("value of --set", "jobs submit SFT --set epochs=[", ("--set epochs=[: the value is not valid YAML",)),
    ("word", "data export --to sharegp --output x.jsonl", ("'sharegp' is not one of 'sharegpt', 'alpaca'",)),
    ("word in a setting", "--set device=gpu data list", ("device is 'gpu'", "must be 'auto', 'cpu' or 'cuda'")),
]  # fmt: skip


@pytest.mark.parametrize(("command", "words"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_is_told_in_plain_words(clinic: Path, monkeypatch, command: str, words: tuple[str, ...]) -> None:
    monkeypatch.chdir(clinic)
    files = sorted(clinic.rglob("*"))
    message = medloop(command)
    for word in words:
        assert word in message
    for leak in LEAKS:
        assert leak not in message
    assert message.count(words[0]) == 1, "told once"
    assert [path for path in sorted(clinic.rglob("*")) if path not in files and not path.name.endswith(".lock")] == []


def test_17_a_missing_workspace_says_how_to_make_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is not a medloop workspace. Make one with: medloop init DIR" in medloop("data list")


def test_21_latin_1_is_read_when_it_is_requested(clinic: Path, monkeypatch) -> None:
    monkeypatch.chdir(clinic)
    shown = medloop("data preview latin1.csv --encoding latin-1")
    assert "fièvre" in shown and "2 rows can be read" in shown and "latin-1" in shown


def test_26_gzipped_json_lines_are_read_by_every_command(clinic: Path, monkeypatch) -> None:
    monkeypatch.chdir(clinic)
    assert "Scored 1 answers" in medloop("reward score answers.jsonl.gz --output gz_scores.jsonl")
    assert "1 rows" in medloop("privacy check answers.jsonl.gz")
    assert "line 1: chosen is missing" in medloop("train reward --data answers.jsonl.gz"), "read, and refused for what it lacks"


def test_29_a_port_in_use_is_named(clinic: Path, monkeypatch) -> None:
    monkeypatch.chdir(clinic)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"Port {port} is in use. Choose another one with --port" in medloop(f"api serve --port {port}")


@pytest.mark.parametrize(
    "words",
    ["data preview qa.csv --format CSV --map question=q --map answer=a", "--set device=CPU data list", "jobs submit sft --check"],
)
def test_words_are_accepted_in_either_case(clinic: Path, monkeypatch, words: str) -> None:
    monkeypatch.chdir(clinic)
    message = medloop(words)
    assert "not one of" not in message and "must be" not in message and "no stage" not in message


def test_the_settings_of_a_job_are_accepted_in_either_case(clinic: Path, monkeypatch) -> None:
    monkeypatch.chdir(clinic)
    (clinic / "job.json").write_text(json.dumps({"stage": "grpo", "config": {"loss": "DAPO", "scale": "Group", "stepz": 3}}))
    message = medloop("jobs submit job.json")
    assert (
        "config.stepz: there is no such setting (did you mean steps?)" in message
        and "loss" not in message.split("Settings of")[0]
    )
