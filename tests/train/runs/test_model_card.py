"""README.md of a result: labels instead of raw keys, and a command that names the real folder."""

from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import TrainingCard, utc_now
from medloop.train.runs.model_card import ROWS, metric_rows, readme


def card(**more: Any) -> TrainingCard:
    now = utc_now()
    known = {
        "name": "r", "method": "grpo", "base": "embedded:tiny", "base_sha256": "sha256:" + "0" * 64, "inputs": {},
        "config": {"lora_r": 8}, "seed": 1, "metrics": {}, "trainable_parameters": 1, "total_parameters": 2, "versions": {},
        "started": now, "finished": now,
    }  # fmt: skip
    return TrainingCard(**{**known, **more})


def test_a_mean_and_its_interval_are_one_row() -> None:
    metrics = {"held_out_gain": 0.1354, "held_out_gain_low": 0.0574715, "held_out_gain_high": 0.216, "kl_last": 1.25}
    assert dict(metric_rows(metrics)) == {
        "Held-out gain (95 % CI)": "+0.135 [+0.057, +0.216]",
        "KL to reference": "1.250 nats per answer",
    }


def test_a_metric_without_a_label_is_shown_and_half_a_row_is_too() -> None:
    assert dict(metric_rows({"new_number": 12345.0, "length_first": 3.0})) == {"New number": "12,345", "Length first": "3"}


def test_no_metric_stands_in_two_rows() -> None:
    names = [name for _, row, _ in ROWS for name in row]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("method", "config", "folder", "usage"),
    [
        ("grpo", {}, "rl", "--model embedded:tiny --adapter models/rl/r"),
        ("sft", {}, "lora", "--model embedded:tiny --adapter models/lora/r"),
        ("sft", {"full": True}, "full", "answers.jsonl --model models/full/r"),
        ("reward", {}, "reward", "--with model=models/reward/r"),
    ],
)
def test_the_command_names_the_folder_of_the_result(method: str, config: dict[str, Any], folder: str, usage: str) -> None:
    text = readme(card(method=method, config=config), Path("/w/models") / folder / "r")
    assert f"{usage}\n```" in text


def test_inputs_have_names_that_people_know() -> None:
    text = readme(card(inputs={"adapter": "sha256:" + "1" * 64}), Path("/w/models/rl/r"))
    assert "| Start adapter | `sha256:111111111111…` |" in text
