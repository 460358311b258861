"""What a run optimises, and how far it can be trusted, is said in its plan, its summary and its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_held_out_verdict import FILES, SMALL
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts.validity import LabelledCase
from medloop.loop.trust import validate
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.trust import TrustConfig

GOOD = "This may be a heart attack. Call an ambulance now and sit down until help comes."
BAD = "Do not worry, this is nothing. Have some tea and sleep, it will pass by itself tomorrow."


@pytest.fixture
def untrusted(settings: Any) -> Path:
    rows = [{"id": f"h{n}", "question": f"Held out {n}: what now?"} for n in range(4)]
    (settings.home / "data/held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    question = "I have had crushing chest pain for an hour, and my left arm is numb."
    cases = [LabelledCase(id=f"{n}", question=f"{question} {n}", chosen=BAD, rejected=GOOD, source="ward") for n in range(30)]
    validate(settings, cases, build_mix(MixConfig()), config=TrustConfig())
    return settings.home


def test_irs_on_the_default_mix_says_so_and_an_accepted_untrusted_reward_stands_in_the_card(
    untrusted: Path, settings: Any
) -> None:
    shape = {
        "n_iterations": 1,
        "n_questions": 2,
        "n_candidates": 2,
        "batch_size": 2,
        "epochs": 1,
        "held_out_n": 2,
        "on_alarm": "warn",
    }
    pairs = [word for name, value in {**FILES, **SMALL, **shape}.items() for word in ("--set", f"{name}={value}")]
    command = ["--home", str(settings.home), "train", "irs", "--model", settings.model, *pairs]
    refused = CliRunner().invoke(app, command)
    assert "People's labels do not support this reward: the whole reward (agreement 0.00" in str(refused.exception)
    output = CliRunner().invoke(app, [*command, "--accept-untrusted"]).output
    plan, _, summary = output.partition("Trained in")
    fixed = "IRS uses the default mix, whose weights do not change: neither dw nor dw_config names dynamic weights."
    assert fixed in plan and fixed in summary and "UNTRUSTED, and accepted: the whole reward (agreement 0.00" in plan
    assert "UNTRUSTED, and accepted: the whole reward" in summary
    (result,) = (untrusted / "models/rl").iterdir()
    readme, card = (result / "README.md").read_text(), json.loads((result / "card.json").read_text())
    assert fixed in readme and "UNTRUSTED, and accepted: the whole reward" in readme
    assert "UNTRUSTED, and accepted: the whole reward" in (result / "report.html").read_text()
    assert card["config"]["accept_untrusted"] is True and card["config"]["objective"]["notes"] == [fixed]
