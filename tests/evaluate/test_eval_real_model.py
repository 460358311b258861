"""The seam to real models: a random one, loaded from a folder, asked through the command line."""

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Record
from medloop.store.files import jsonl
from medloop.testing.models import tiny_model
from medloop.testing.records import make_emergencies

Put = Callable[[str, list[Record]], Path]


def test_a_model_folder_is_asked_scored_and_not_asked_again(workspace: Path, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(3))
    tiny_model(workspace / "models/full/random")
    command = ["--home", str(workspace), "eval", "--model", "models/full/random", "--split", "red", "--max-new-tokens", "12"]
    for _ in range(2):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    (folder,) = (workspace / "reports/eval").iterdir()
    lines = list(jsonl.read(folder / "predictions_models_full_random.jsonl"))
    assert len(lines) == 3 and all(line["n_tokens"] <= 12 for line in lines)
    report = json.loads((folder / "eval_report.json").read_text(encoding="utf-8"))
    assert report["results"][0]["metrics"]["red"]["emergency"]["n"] == 3
    assert report["inputs"]["base of models/full/random"].startswith("sha256:")
