"""The seam to real models: a random one, loaded from a folder, asked through the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Record
from medloop.errors import ConfigError
from medloop.models.generate import TorchGenerator
from medloop.store.files import jsonl
from medloop.testing.models import tiny_adapter, tiny_model
from medloop.testing.records import make_emergencies

Put = Callable[[str, list[Record]], Path]


def test_a_model_folder_is_asked_scored_and_not_asked_again(workspace: Path, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(3))
    tiny_model(workspace / "models/full/random")
    command = ["--home", str(workspace), "eval", "--model", "models/full/random", "--split", "red", "--max-new-tokens", "12"]
    for _ in range(2):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    (folder,) = (path for path in (workspace / "reports/eval").iterdir() if path.name != "answers")
    lines = list(jsonl.read(folder / "predictions_models_full_random.jsonl"))
    assert len(lines) == 3 and all(line["n_tokens"] <= 12 for line in lines)
    report = json.loads((folder / "eval_report.json").read_text(encoding="utf-8"))
    assert report["results"][0]["metrics"]["red"]["emergency"]["n"] == 3
    assert report["inputs"]["base of models/full/random"].startswith("sha256:")


def test_eval_shows_each_model_the_passages_that_the_candidate_was_trained_to_read(workspace: Path, put_split: Put) -> None:
    """The same prompt for both; other passages are another question; two trainings that disagree are refused."""
    records = [record.model_copy(update={"context": ("Call 911 now.", "Second.", "Third.")}) for record in make_emergencies(2)]
    put_split("red_team.jsonl", records)
    base = tiny_model(workspace / "models/full/random")
    for name, top_k in (("one", 1), ("two", 2)):
        tiny_adapter(workspace / "models/rl" / name, base, top_k=top_k, max_prompt=300)
    seen: list[str] = []

    def evaluate(*adapters: str) -> Result:
        models = [f"--model={base}", *(f"--model={base}+{adapter}" for adapter in adapters)]
        return CliRunner().invoke(
            app, ["--home", str(workspace), "eval", *models, "--split", "red", "--max-new-tokens", "4", "--name", "r"]
        )

    with pytest.MonkeyPatch.context() as patch:
        original = TorchGenerator.__call__
        patch.setattr(
            TorchGenerator, "__call__",
            lambda self, prompts, **more: seen.extend(p[-1].content for p in prompts) or original(self, prompts, **more),
        )  # fmt: skip
        assert evaluate("one").exit_code == 0 and len(seen) == 4 and len(set(seen)) == 2
        assert all("[1] Call 911 now." in text and "Second." not in text for text in seen)
        assert evaluate("two").exit_code == 0 and len(seen) == 8 and all("[2] Second." in text for text in seen[4:])
    refused = evaluate("one", "two")
    assert isinstance(refused.exception, ConfigError) and "top_k 1, max_prompt 300 and top_k 2" in str(refused.exception)
