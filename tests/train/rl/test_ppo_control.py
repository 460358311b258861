"""PPO under control, from the command line: the KL stays near its target or the run ends and says why; rewards that cannot teach."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from medloop.cli import main
from medloop.testing.fakes import FakeScorer
from medloop.train import ppo
from medloop.train.rl.checks import Answers, AuditResult, NoAudit
from medloop.train.rl.plan import make_plan
from medloop.train.rl.state import create_train_state
from medloop.train.runs.find_run import find_run

FILES = {"prompts": "data/processed/train.jsonl", "held_out": "data/processed/dev.jsonl"}
SMALL: dict[str, Any] = {"max_new_tokens": 12, "held_out_n": 6, "lora_r": 4, "learning_rate": 0.02}
STEPS = {"steps": 4, "prompts_per_step": 4, "samples": 4}


def command(monkeypatch: pytest.MonkeyPatch, settings: Any, method: str, *more: str, **values: Any) -> int:
    pairs = [word for name, value in {**FILES, **SMALL, **values}.items() for word in ("--set", f"{name}={value}")]
    flags = ["train", method, "--model", settings.model, *more, *pairs]
    monkeypatch.setattr(sys, "argv", ["medloop", "--home", str(settings.home), *flags])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def metrics(settings: Any, method: str = "ppo") -> list[dict[str, Any]]:
    lines = (settings.home / f"jobs/train_{method}-round1/metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def own_reward(settings: Any, monkeypatch: pytest.MonkeyPatch, body: str, **mix: Any) -> Path:
    """A reward file whose only part is a rule that a hospital wrote; `body` computes `value` from question and answer."""
    module = f"own_rule_{abs(hash(body)) % 10**8}"
    (settings.home / f"{module}.py").write_text(
        "from medloop.contracts import Score\n\n\nclass Own:\n    name, version, penalty, calls = 'own', '1', False, 0\n\n"
        f"    def score(self, question, answer):\n        Own.calls += 1\n        {body}\n"
        "        return Score(name='own', value=value, reason='r', author='own', version='1')\n"
    )
    monkeypatch.syspath_prepend(str(settings.home))
    file = settings.home / f"{module}.yaml"
    file.write_text(json.dumps({**mix, "parts": {"own": {"weight": 1.0, "rule": f"{module}:Own"}}}))
    return file


LETTERS = "value = sum(letter in 'abcdefghijklm' for letter in answer) / max(len(answer), 1)"


def test_held_out_rewards_are_plain_sums_where_training_normalises(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = own_reward(settings, monkeypatch, LETTERS, normalise="group")
    assert command(monkeypatch, settings, "grpo", "--reward", str(file), **STEPS) == 0
    checks = [row["extra"]["held_out"] for row in metrics(settings, "grpo") if "held_out" in (row.get("extra") or {})]
    assert len(checks) >= 2 and all(0 < check["reward"] < 1 and check["reward_std"] > 0 for check in checks)


def test_irs_undoes_a_round_that_fell_also_where_training_normalises(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule likes every answer less than the one before, so that the held-out reward falls whatever is learnt."""
    file = own_reward(settings, monkeypatch, "value = 1 / (1 + Own.calls)", normalise="group")
    rounds = {"n_iterations": 2, "n_questions": 4, "n_candidates": 4, "batch_size": 8}
    assert command(monkeypatch, settings, "irs", "--reward", str(file), **rounds) == 0
    assert [row["extra"]["undone"] for row in metrics(settings, "irs") if "undone" in (row.get("extra") or {})] == [1]


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ({"horizon": 1}, "horizon=1 is below the 16 answers of a step"),
        ({"beta": 0}, "beta=0 cannot steer to target_kl=6"),
        ({"abort_kl": 1}, "abort_kl"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_loaded(
    pairs: dict[str, Any], says: str, settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, settings, "ppo", **STEPS, **pairs) != 0
    assert says in " ".join(capsys.readouterr().err.split()) and not (settings.home / "jobs/train_ppo-round1").exists()


def test_without_a_target_beta_may_be_0_and_stays(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = own_reward(settings, monkeypatch, LETTERS)
    assert command(monkeypatch, settings, "ppo", "--reward", str(file), **STEPS, target_kl="null", beta=0) == 0
    steps = [row["extra"] for row in metrics(settings) if row["phase"] == "TRAINING"]
    assert [step["beta"] for step in steps] == [0.0] * 4 and "update_share" not in steps[0]


@pytest.mark.parametrize("rate", [pytest.param(0.02, marks=pytest.mark.slow), 0.08])
def test_the_kl_stays_near_its_target_however_high_the_rate(rate: float, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = own_reward(settings, monkeypatch, LETTERS)
    shape = {"steps": 10, "prompts_per_step": 8, "samples": 8, "learning_rate": rate, "held_out_n": 0}
    assert command(monkeypatch, settings, "ppo", "--reward", str(file), "--target-kl", "0.2", **shape) == 0
    steps = [row["extra"] for row in metrics(settings) if row["phase"] == "TRAINING"]
    assert max(step["kl"] for step in steps[4:]) <= 0.4, [step["kl"] for step in steps]


def test_beyond_abort_kl_the_run_ends_with_a_checkpoint_and_says_so_everywhere(
    settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A target so small that the noise of an update is beyond it."""
    file = own_reward(settings, monkeypatch, LETTERS)
    shape = {**STEPS, "steps": 8, "learning_rate": 0.2, "save_every": 100}
    monkeypatch.setattr("medloop.train.rl.kl_control.UPDATE_LIMIT", 1e9)
    assert command(monkeypatch, settings, "ppo", "--reward", str(file), "--target-kl", "0.01", **shape) == 10
    shown = capsys.readouterr()
    result = settings.home / "models/rl/round1"
    card = json.loads((result / "card.json").read_text())
    assert card["stopped"].startswith("STOPPED at step ") and "above 4 times its target of 0.01 (abort_kl)" in card["stopped"]
    pages = [shown.out, shown.err, (result / "README.md").read_text(), (result / "report.html").read_text()]
    assert all("STOPPED at step " in " ".join(page.split()) for page in pages)
    assert [row["extra"]["stopped"] for row in metrics(settings) if "stopped" in (row.get("extra") or {})] == [card["stopped"]]
    last = metrics(settings)[-1]["iter"]
    assert last < 8 and [path.name for path in (settings.home / "jobs/train_ppo-round1/checkpoints").iterdir()] == [
        f"step-{last:08d}"
    ]


class Alarmed(NoAudit):
    def check(self, before: Answers, now: Answers, *, looks: int) -> AuditResult:
        return AuditResult(("every answer is the same.",))


def test_a_run_that_the_audit_stopped_is_not_a_success_for_a_script(
    settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor when the same command finds it trained already; one that was only warned is."""
    file = own_reward(settings, monkeypatch, LETTERS)
    monkeypatch.setattr("medloop.loop.train.rl_audit", lambda *_, **__: Alarmed())
    for _ in range(2):
        assert command(monkeypatch, settings, "grpo", "--reward", str(file), **STEPS) == 10
        message = " ".join(capsys.readouterr().err.split())
        assert "The audit stopped the run: step 4: every answer is the same." in message and "report.html" in message
    assert command(monkeypatch, settings, "grpo", "--reward", str(file), "--name", "told", **STEPS, on_alarm="warn") == 0


def test_the_critic_moves_no_weight_of_the_policy(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With advantages of 0 and huge errors of the critic, only the value head moves."""
    shape: dict[str, Any] = {**FILES, **SMALL, **STEPS, "model": settings.model, "name": "r"}
    config, scorer = ppo.PPOConfig(**shape), FakeScorer(lambda sample: 1e6)
    plan = make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer)
    with plan.run.lock():
        state = create_train_state(plan, settings, with_values=True)
        state.saved["kl"], state.step = ppo.kl_controller(config).state(), 1
        monkeypatch.setattr(ppo, "whiten", lambda advantages, mask: torch.zeros_like(advantages))
        assert state.policy.value_head is not None
        torch.nn.init.ones_(state.policy.value_head.weight)  # a head of 0 would pass nothing on
        before = {name: weight.detach().clone() for name, weight in state.policy.trained().items()}
        ppo._step(state)
    moved = {name for name, weight in state.policy.trained().items() if not torch.equal(weight, before[name])}
    assert moved and all(name.startswith("value_head.") for name in moved)


def test_kl_is_shown_only_where_it_was_measured(
    settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = own_reward(settings, monkeypatch, LETTERS)
    assert command(monkeypatch, settings, "grpo", "--reward", str(file), "--live", **STEPS, beta=0) == 0
    assert not re.search(r"\bkl\b", capsys.readouterr().out, re.IGNORECASE)
    assert not any("kl" in (row.get("extra") or {}) for row in metrics(settings, "grpo"))
    assert "kl_last" not in json.loads((settings.home / "models/rl/round1/card.json").read_text())["metrics"]


@pytest.mark.parametrize("method", ["ppo", "grpo", "irs"])
def test_a_run_whose_groups_are_all_flat_warns(
    method: str, settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = own_reward(settings, monkeypatch, "value = 0.5")
    shape = {"n_iterations": 1, "n_questions": 4, "n_candidates": 4} if method == "irs" else STEPS
    assert command(monkeypatch, settings, method, "--reward", str(file), **shape) == 0
    says = "all answers to a question had the same reward"
    result = settings.home / "models/rl/round1"
    pages = [capsys.readouterr().out, *((result / name).read_text() for name in ("card.json", "README.md", "report.html"))]
    assert all(says in " ".join(page.split()) for page in pages)


@pytest.mark.parametrize("body", ["raise ValueError(question)", "value = float('nan')"])
def test_a_rule_that_fails_ends_a_run_with_its_name_and_no_traceback(
    body: str, settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = own_reward(settings, monkeypatch, f"value = 0.5; {body}")
    assert command(monkeypatch, settings, "ppo", "--reward", str(file), **STEPS) == 10
    message = " ".join(capsys.readouterr().err.split())
    assert "own: the rule failed with" in message and "Traceback" not in message and "pain" not in message
