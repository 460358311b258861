"""A job reads what training is for: not the keys, not the database, not other people's files, under no spelling and through no link."""

import json
import os

import pytest
from typer.testing import CliRunner

from medloop.cli import app as cli
from medloop.contracts import TrainRequest
from medloop.errors import ConfigError
from medloop.jobs import queue, requests

SPELLINGS = (
    "keys", "keys/master.key", "./keys/master.key", "keys//master.key", "KEYS/master.key", "ｋｅｙｓ/master.key",
    "medloop.db", "medloop.db-wal", "medloop.yaml", "jobs", "logs/x", "data/raw/visits.jsonl", "data", "data/rl/to-keys",
    "data/rl/to-database.jsonl", "data/rl/hard.jsonl", "data/rl/to-passwd", "data/rl/loop", "models/linked", "notes.txt",
)  # fmt: skip


@pytest.fixture
def planted(sqlite_settings):
    home = sqlite_settings.home
    row = json.dumps({"id": "q", "question": "Pain?"}) + "\n"
    for name in ("data/raw/visits.jsonl", "data/rl/training_prompts.jsonl", "data/rl/other.jsonl", "notes.txt", "reward.yaml"):
        (home / name).write_text(row)
    (home / "data/rl/to-keys").symlink_to(home / "keys")
    (home / "data/rl/to-database.jsonl").symlink_to("../../medloop.db")
    (home / "data/rl/to-passwd").symlink_to("/etc/passwd")
    (home / "data/rl/loop").symlink_to("loop")
    os.link(home / "keys/master.key", home / "data/rl/hard.jsonl")
    (home / "models/linked").mkdir()
    (home / "models/linked/model.safetensors").symlink_to(home / "keys/master.key")
    (home / "models/mine").mkdir()
    return sqlite_settings


def ask(field: str, name: str) -> TrainRequest:
    if field == "model_id":
        return TrainRequest(stage="GRPO", model_id=name)
    config = {"given": {"teacher": name}} if field == "given" else {field: name}
    return TrainRequest(stage="GRPO", config=config)


@pytest.mark.parametrize("field", ["prompts", "adapter", "reward", "model_id", "given"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_a_request_names_neither_keys_nor_the_database_nor_anything_outside_its_folders(planted, field, name):
    with pytest.raises(ConfigError, match=r"(model_id|config\.\w+).*: (a job may read only data/, models/, configs/|not a name)"):
        requests.check_remote(ask(field, name), planted)


@pytest.mark.parametrize(
    "name", ["data/rl/other.jsonl", "./data/rl/other.jsonl", "models/mine", "mine", "reward.yaml", "data/rl/none"]
)
def test_what_training_is_for_is_still_named(planted, name):
    requests.check_remote(ask("prompts", name), planted)


@pytest.mark.parametrize("name", ["keys/master.key", "medloop.db", "data/rl/to-keys", "data/rl/hard.jsonl", "models/linked"])
def test_the_keyboard_names_no_secret_either(planted, name):
    words = ["--home", str(planted.home), "jobs", "submit", "grpo", "--set"]
    for given in (name, str(planted.home / name)):
        refused = CliRunner().invoke(cli, [*words, f"prompts={given}"])
        assert "cannot read the keys, the database or the settings" in str(refused.exception)
    assert queue.ids(planted) == []
