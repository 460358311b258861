"""Overlap: the answers of the next step are drawn while those of this step are scored, and nothing else changes."""

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from medloop.cli import main
from medloop.cli.train import rl as rl_commands
from medloop.contracts import Reward, Sample
from medloop.errors import ConfigError
from medloop.models.rollout.sampler import Rollout, Sampler
from medloop.store.files.artifacts import file_sha256
from medloop.testing.fakes import FakeScorer
from medloop.train import grpo, ppo
from medloop.train.configs.rl_config import GRPOConfig, PPOConfig
from medloop.train.rl import overlap
from medloop.train.rl.experience import RLPrompt
from medloop.train.rl.plan import make_plan
from medloop.train.runs.find_run import find_run

WAIT = 300  # seconds, for a condition that is there at once on an idle machine
METHODS = {"grpo": (grpo, GRPOConfig), "ppo": (ppo, PPOConfig)}


def letters(sample: Sample) -> float:
    answer = sample.answer or ""
    return sum(character in "abcdefghijklm" for character in answer) / max(len(answer), 1)


def train(settings: Any, scorer: Any = None, method: str = "grpo", should_stop: Any = lambda: False, **more: Any) -> Any:
    stage, kind = METHODS[method]
    shape = {
        "model": settings.model, "name": "r", "learning_rate": 0.05, "max_new_tokens": 8, "held_out_n": 0, "save_every": 2,
        "lora_r": 4, "steps": 5, "prompts_per_step": 2, "samples": 4, "prompts": "data/processed/train.jsonl", "overlap": True,
    }  # fmt: skip
    config, scorer = kind(**{**shape, **more}), scorer or FakeScorer(letters)
    plan = make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer)
    return stage.run(plan, settings, should_stop=should_stop)


def lines(settings: Any, method: str = "grpo") -> list[dict[str, Any]]:
    text = (settings.home / f"jobs/train_{method}-r/metrics.jsonl").read_text()
    return [{key: value for key, value in json.loads(line).items() if key != "ts"} for line in text.splitlines()]


class WaitingScorer(FakeScorer):
    """Gives no score before the answers of the next step are being drawn."""

    def __init__(self, drawn: dict[int, threading.Event]) -> None:
        super().__init__(letters)
        self.drawn = drawn

    def score(self, samples: Any) -> list[Reward]:
        step = int(samples[0].id.split(":")[1])
        if step + 1 in self.drawn:
            assert self.drawn[step + 1].wait(WAIT), f"step {step} is scored before the answers of the next are drawn"
        return super().score(samples)


def test_the_next_answers_are_drawn_while_these_are_scored(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, plain = {step: threading.Event() for step in range(2, 6)}, Sampler.__call__

    def sample(self: Sampler, prompts: Any, streams: Any, **more: Any) -> Any:
        if event := drawn.get(int(streams[0].split(":")[1])):
            event.set()
        return plain(self, prompts, streams, **more)

    monkeypatch.setattr(Sampler, "__call__", sample)
    train(settings, WaitingScorer(drawn))
    assert all(event.is_set() for event in drawn.values())
    drifts = [row["extra"]["drift"] for row in lines(settings) if row["phase"] == "TRAINING"]
    assert drifts[0] < 1e-5 and all(drift > 1e-4 for drift in drifts[1:]), "only the first answers are of the policy as it is"


def test_answers_of_an_older_policy_are_weighted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, plain = [], grpo.rollout_weights

    def spy(*args: Any) -> Any:
        weights.append(plain(*args))
        return weights[-1]

    monkeypatch.setattr(grpo, "rollout_weights", spy)
    train(settings, steps=2, rollout_cap=1.5)
    assert float((weights[0][weights[0] > 0] - 1).abs().max()) < 1e-4
    assert 1e-3 < float((weights[-1][weights[-1] > 0] - 1).abs().max()) and float(weights[-1].max()) <= 1.5
    weights.clear()
    train(settings, steps=2, overlap=False, name="plain")
    assert not weights


@pytest.mark.parametrize("method", ["grpo", pytest.param("ppo", marks=pytest.mark.slow)])
def test_killed_or_stopped_anywhere_it_ends_with_the_same_bytes(settings: Any, untouched: Any, method: str) -> None:
    """A crash between two checkpoints, and a stop with answers that wait for their step."""
    train(untouched, method=method)

    def crash(sample: Sample) -> float:
        if sample.id.split(":")[1] == "4":
            raise RuntimeError("killed")
        return letters(sample)

    calls = iter([True])
    with pytest.raises(KeyboardInterrupt):
        train(settings, method=method, should_stop=lambda: next(calls, False))
    with pytest.raises(RuntimeError, match="killed"):
        train(settings, FakeScorer(crash), method)
    train(settings, method=method)
    assert lines(settings, method) == lines(untouched, method)
    for name in ("adapter_model.safetensors", "samples.jsonl", "rewards.csv"):
        assert file_sha256(settings.home / "models/rl/r" / name) == file_sha256(untouched.home / "models/rl/r" / name)


def test_answers_that_were_drawn_for_another_step_are_let_go() -> None:
    """As after a step that was undone."""
    prompt = RLPrompt("a", (1, 2), "?")
    rollout = Rollout((1, 2), (3,), (-0.5,), True, "42:3:a:0")
    saved = {"pending": {"step": 3, "rollouts": [overlap._stored(rollout)]}}
    plan = SimpleNamespace(config=SimpleNamespace(samples=1))
    for step, expected in ((3, [rollout]), (4, None)):
        state: Any = SimpleNamespace(saved=json.loads(json.dumps(saved)), step=step, plan=plan)
        assert overlap._waiting(state, [prompt]) == expected and not state.saved


def test_a_reward_model_on_the_same_gpu_is_refused() -> None:
    plan = SimpleNamespace(config=SimpleNamespace(overlap=True), scorer=SimpleNamespace(given={"model": object()}))
    state: Any = SimpleNamespace(plan=plan, policy=SimpleNamespace(device=SimpleNamespace(type="cuda")))
    with pytest.raises(ConfigError, match="needs a reward without a reward model"):
        overlap.check_overlap(state)
    state.policy.device.type = "cpu"
    overlap.check_overlap(state)


@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_the_flag_is_the_setting(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: dict[str, Any] = {}
    monkeypatch.setattr(rl_commands, "_train", lambda _, given, *rest, **more: flags.update(given))
    for words, value in ((["--overlap"], True), ([], None)):
        monkeypatch.setattr(sys, "argv", ["medloop", "train", method, *words])
        with pytest.raises(SystemExit) as caught:
            main()
        assert not caught.value.code and flags["overlap"] is value
