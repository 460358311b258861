"""A run whose held-out reward fell, or shows no gain, says so first, wherever its result is read."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from medloop.cli import main
from medloop.contracts import Sample, TrainingCard, TrainRequest
from medloop.jobs import queue, worker
from medloop.jobs.submit import submit_training
from medloop.loop import train as stages
from medloop.testing.fakes import FakeScorer
from medloop.train.rl.checks import NoAudit
from medloop.train.rl.held_out import _interval
from medloop.train.runs.model_card import held_out_sentence

FILES = {"prompts": "data/processed/train.jsonl", "held_out": "data/held_out.jsonl"}
SMALL: dict[str, Any] = {"max_new_tokens": 12, "held_out_n": 8, "lora_r": 4, "learning_rate": 0.05}
STEPS = {"steps": 8, "prompts_per_step": 8, "samples": 8, "eval_every": 20}
ROUNDS = {"n_iterations": 2, "n_questions": 24, "n_candidates": 8, "batch_size": 8, "epochs": 2, "tolerance": 1.0}


def hacked(sample: Sample) -> float:
    """What pays in training costs on held-out questions."""
    answer = sample.answer or ""
    share = sum(character in "abcdefghijklm" for character in answer) / max(len(answer), 1)
    return 1 - share if sample.question.startswith("Held out") else share


@pytest.fixture(autouse=True)
def unaudited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that the audit does not stop and nobody distrusts: here the verdict on the held-out reward is alone."""
    monkeypatch.setattr(stages, "rl_audit", lambda *_, **__: NoAudit())
    monkeypatch.setattr(stages.trust, "check", lambda *_, **__: ())


@pytest.fixture
def home(settings: Any) -> Path:
    rows = [{"id": f"h{n}", "question": f"Held out {n}: what now?"} for n in range(8)]
    (settings.home / "data/held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return settings.home


def command(monkeypatch: pytest.MonkeyPatch, settings: Any, method: str, **values: Any) -> int:
    pairs = [word for name, value in {**FILES, **SMALL, **values}.items() for word in ("--set", f"{name}={value}")]
    monkeypatch.setattr(
        sys, "argv", ["medloop", "--home", str(settings.home), "train", method, "--model", settings.model, *pairs]
    )
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def summary(output: str) -> list[str]:
    """From the line before `Trained in` on: what the command says about its result."""
    lines = output.splitlines()
    return lines[next(n for n, line in enumerate(lines) if line.startswith("Trained in")) - 1 :]


@pytest.mark.parametrize(("method", "shape"), [("ppo", {**STEPS, "target_kl": "null"}), ("grpo", STEPS), ("irs", ROUNDS)])
def test_a_fall_is_said_first(method: str, shape: Any, home: Path, settings: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(stages, "_scorer", lambda *_, **__: FakeScorer(hacked))
    assert command(monkeypatch, settings, method, **shape) == 0
    result = home / "models/rl/round1"
    first = summary(capsys.readouterr().out)[0]
    assert first.startswith("The held-out reward FELL by 0.")
    assert json.loads((result / "card.json").read_text())["held_out_verdict"] == "fell"
    assert (result / "README.md").read_text().splitlines()[2] == f"**{first}**"
    assert first in (result / "report.html").read_text()
    assert command(monkeypatch, settings, method, **shape) == 0 and "FELL" in capsys.readouterr().out


def test_an_interval_that_contains_zero_shows_no_gain(home: Path, settings: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(stages, "_scorer", lambda *_, **__: FakeScorer(lambda sample: 0.5))
    assert command(monkeypatch, settings, "grpo", steps=1, prompts_per_step=2, samples=2) == 0
    first = summary(capsys.readouterr().out)[0]
    assert first.startswith("No gain shown: the held-out reward changed by +0.000")
    assert json.loads((home / "models/rl/round1/card.json").read_text())["held_out_verdict"] == "no_gain_shown"
    assert first in (home / "models/rl/round1/report.html").read_text()


def test_the_status_of_a_job_says_it_first(home: Path, settings: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(stages, "_scorer", lambda *_, **__: FakeScorer(hacked))
    monkeypatch.setattr("medloop.jobs.preflight.objective_of", lambda *_: None)
    job_id = submit_training(TrainRequest(stage="GRPO", config={**FILES, **SMALL, **STEPS}), settings).job_id
    worker.work(job_id, settings)
    assert (queue.status_of(job_id, settings).detail.message or "").startswith("The held-out reward FELL by 0.")


def test_a_gain_that_only_the_reward_has_seen_says_so() -> None:
    numbers = {"held_out_gain": 0.2, "held_out_gain_low": 0.1, "held_out_gain_high": 0.3, "held_out": 96.0}
    card = TrainingCard.model_construct(held_out_verdict="gained", stopped=None, metrics=numbers)
    assert "no second judge has read the answers" in held_out_sentence(card)
    judged = card.model_copy(update={"metrics": {**numbers, "audit_judge": 0.4}})
    assert held_out_sentence(judged).endswith("96 questions).")


def test_the_interval_of_a_check_is_that_of_its_questions() -> None:
    low, high = _interval([0.0, 0.2, 0.4])  # mean 0.2, spread 0.2, error 1.96 * 0.2 / sqrt(3)
    assert (low, high) == (pytest.approx(-0.026321), pytest.approx(0.426321))
    assert _interval([0.5]) is None
