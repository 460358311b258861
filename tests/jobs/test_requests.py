"""Settings that do not fit are refused where a request comes in: all at once, by field, without a value, without torch."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import TrainRequest
from medloop.jobs import queue, requests
from medloop.jobs.requests import InvalidConfigError
from medloop.loop.train import STAGES
from medloop.settings import Settings

HERE = Settings(home=Path("nowhere"), device="cpu")
SECRET = "the patient Li Wei"


def problems(stage: str, config: dict | None = None, **more) -> dict[str, str]:
    try:
        requests.check_config(TrainRequest.model_validate({"stage": stage, "config": config or {}, **more}), HERE)
    except InvalidConfigError as error:
        assert SECRET not in str(error)
        return dict(error.problems)
    return {}


@pytest.mark.parametrize("stage", STAGES)
def test_a_misspelt_or_impossible_setting_is_named_with_its_place(stage):
    errors = problems(stage, {"lora_rr": 4, "lora_r": 0, "seed": SECRET, "learning_rate": 2, "name": "../x"})
    assert set(errors) == {"config.name", "config.learning_rate", "config.lora_r", "config.seed", "config.lora_rr"}
    assert errors["config.lora_rr"] == "there is no such setting (did you mean lora_r?)" and "at least" in errors["config.lora_r"]


@pytest.mark.parametrize("stage", STAGES)
def test_settings_that_the_stage_takes_fit(stage):
    usual = {name: field.get_default(call_default_factory=True) for name, field in STAGES[stage].config.model_fields.items()}
    del usual["model"]
    assert problems(stage, usual) == {} == problems(stage)


def test_where_a_value_came_from_is_told():
    assert list(problems("IRS", {"n_iterations": 0})) == ["config.n_iterations"]
    assert list(problems("IRS", irs_config={"learning_rate": 7})) == ["irs_config.learning_rate"]
    assert list(problems("IRS", model_id="x", top_k=2, config={"top_k": SECRET})) == []  # the outer one counts
    assert list(problems("IRS", {"load_in_4bit": SECRET})) == ["config.load_in_4bit"]
    assert list(problems("GRPO", {"given": {"teacher": 3}})) == ["config.given.teacher"]


@pytest.mark.parametrize(
    ("weights", "field"),
    [
        ({"history_window": 1}, ".history_window"),
        ({"temprature": 2}, ".temprature"),
        ({"initial_weights": {"rel": SECRET}}, ".initial_weights.rel"),
        ({"initial_weights": {"rel": 1.0, "nice": 1.0}}, ".initial_weights"),
        ({"initial_weights": {"rel": 0, "faith": 0, "conc": 0}}, ""),
    ],
)
def test_dynamic_weights_are_looked_into(weights, field):
    assert list(problems("IRS", {"dw_config": weights})) == [f"config.dw_config{field}"]


def test_what_does_not_go_together_is_told_for_the_whole():
    assert "exo_pair" in problems("DPO", {"loss": "exo_pair"})["config"]
    for stage in ("SFT", "REWARD"):
        assert "does not divide" in problems(stage, {"batch_size": 8, "micro_batch_size": 3})["config"]


def test_made_up_names_are_cut_and_counted():
    errors = problems("GRPO", {f"{n}" + "x" * 500: 1 for n in range(100)})
    assert len(errors) == 20 and all(len(field) < 80 for field in errors)
    assert list(problems("GRPO", {"a\nb": 1})) == ["config.?"]


def test_the_command_refuses_before_there_is_a_job(settings):
    result = CliRunner().invoke(
        app, ["--home", str(settings.home), "jobs", "submit", "ppo", "--set", "epochz=2", "--set", "clip=7"]
    )
    assert isinstance(result.exception, InvalidConfigError) and [field for field, _ in result.exception.problems] == [
        "config.clip",
        "config.epochz",
    ]
    assert "minibatches" in result.exception.to_do and queue.ids(settings) == []


def test_no_stage_needs_torch_to_be_checked():
    code = (
        "import sys; from medloop.jobs import requests; from medloop.contracts import TrainRequest\n"
        "from medloop.loop.train import STAGES; from medloop.settings import Settings; from pathlib import Path\n"
        "for stage in STAGES: requests.check_config(TrainRequest(stage=stage), Settings(home=Path('.')))\n"
        "print({'torch', 'transformers', 'trl', 'peft', 'datasets'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"
