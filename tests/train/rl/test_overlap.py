"""Overlap: the answers of the next step are drawn while those of this step are scored, and nothing else changes."""

import json
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from medloop.cli import main
from medloop.cli.train import rl as rl_commands
from medloop.contracts import Objective, Reward, Sample
from medloop.contracts.score import ObjectivePart
from medloop.errors import ConfigError, ModelError
from medloop.loop.scoring import reward_scorer
from medloop.models.rollout.rollouts import Rollout
from medloop.models.rollout.sampler import Sampler
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256
from medloop.testing.fakes import FakeScorer
from medloop.train import grpo, ppo
from medloop.train.configs.rl_config import GRPOConfig, PPOConfig
from medloop.train.rl import kl_control, overlap
from medloop.train.rl.checks import AuditResult, NoAudit
from medloop.train.rl.experience import Experience, RLPrompt
from medloop.train.rl.maths import kl_k1
from medloop.train.rl.plan import make_plan
from medloop.train.rl.step import compute_logprobs
from medloop.train.runs.find_run import find_run

WAIT = 300  # seconds, for a condition that is there at once on an idle machine
SHAPE: dict[str, Any] = {
    "name": "r", "learning_rate": 0.05, "max_new_tokens": 8, "held_out_n": 0, "save_every": 2, "lora_r": 4, "steps": 5,
    "prompts_per_step": 2, "samples": 4, "prompts": "data/processed/train.jsonl", "overlap": True,
}  # fmt: skip
METHODS = {"grpo": (grpo, GRPOConfig), "ppo": (ppo, PPOConfig)}


def letters(sample: Sample) -> float:
    answer = sample.answer or ""
    return sum(character in "abcdefghijklm" for character in answer) / max(len(answer), 1)


def train(settings: Any, scorer: Any = None, method: str = "grpo", should_stop: Any = lambda: False, **more: Any) -> Any:
    on_progress, audit = more.pop("on_progress", lambda _: None), more.pop("audit", NoAudit())
    stage, kind = METHODS[method]
    config, scorer = kind(**{**SHAPE, "model": settings.model, **more}), scorer or FakeScorer(letters)
    plan = make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer, audit=audit)
    return stage.run(plan, settings, on_progress=on_progress, should_stop=should_stop)


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


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_answers_of_an_older_policy_are_weighted(settings: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = METHODS[method][0]
    weights, plain = [], stage.policy_losses

    def spy(*args: Any, **more: Any) -> Any:
        weights.append(more["weights"])
        return plain(*args, **more)

    monkeypatch.setattr(stage, "policy_losses", spy)
    train(settings, method=method, steps=2, rollout_cap=1.5)
    assert float((weights[0][weights[0] > 0] - 1).abs().max()) < 1e-4
    assert 1e-3 < float((weights[-1][weights[-1] > 0] - 1).abs().max()) and float(weights[-1].max()) <= 1.5
    weights.clear()
    train(settings, method=method, steps=2, overlap=False, name="plain")
    assert weights and all(one is None for one in weights)


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


@pytest.mark.parametrize("part", ["model", "rel", "faith"])
def test_a_reward_on_the_same_gpu_is_refused(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs where reward.device says, a CPU by default, whatever the policy's device is."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    on_cpu, on_gpu = Settings(home=tmp_path), Settings(home=tmp_path, reward={"device": "cuda"})

    def check(where: Settings, *, device: str = "cuda", url: str | None = None, version: str = "1", scorer: Any = None) -> None:
        objective = Objective(version="1", parts={part: ObjectivePart(weight=1.0, version=version)})
        config = SimpleNamespace(overlap=True, rollout_url=url)
        plan = SimpleNamespace(config=config, scorer=scorer or SimpleNamespace(objective=objective))
        state: Any = SimpleNamespace(plan=plan, policy=SimpleNamespace(device=torch.device(device)))
        overlap.check_overlap(state, where)

    check(on_cpu)
    with pytest.raises(ConfigError, match=f"but {part} would"):
        check(on_gpu)
    check(on_gpu, device="cpu")
    check(on_gpu, url="http://127.0.0.1:1")
    check(on_gpu, version="absent")
    with pytest.raises(ConfigError, match="but rel and faith would"):
        check(on_gpu, scorer=reward_scorer(on_cpu, dw="", load_models=False))


def test_a_run_from_before_the_setting_goes_on(settings: Any) -> None:
    """Whether it does not know the setting, or stored that it is off."""
    calls = iter([True])
    with pytest.raises(KeyboardInterrupt):
        train(settings, overlap=False, should_stop=lambda: next(calls, False))
    config = settings.home / "jobs/train_grpo-r/config.json"
    stored = json.loads(config.read_text())
    assert "overlap" not in stored["identity"]["config"]
    stored["identity"]["config"]["overlap"] = False
    config.write_text(json.dumps(stored))
    run_config = GRPOConfig(**{**SHAPE, "model": settings.model, "overlap": False})
    run = find_run(run_config, settings, scorer=FakeScorer(letters))
    run.check_unfinished()
    assert run.resumable() is not None
    with pytest.raises(ConfigError, match="overlap False, now True"):
        find_run(run_config.model_copy(update={"overlap": True}), settings, scorer=FakeScorer(letters)).check_unfinished()


@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_the_kl_is_that_of_the_policy_as_it_is(settings: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against fresh draws of the policy before each update. Of answers of the policy before it, unweighted, PPO's would be -3 for 3."""
    stage, name = METHODS[method][0], {"ppo": "compute_advantages", "grpo": "optimise_policy"}[method]
    fresh: list[float] = []
    plain = getattr(stage, name)

    def measure(state: Any, *rest: Any) -> Any:
        prompts = [prompt for prompt in state.plan.prompts[:6] for _ in range(32)]
        draws = state.sampler(
            [prompt.token_ids for prompt in prompts], [f"fresh:{n}" for n in range(len(prompts))],
            max_new_tokens=state.plan.config.max_new_tokens, temperature=1.0,
        )  # fmt: skip
        drawn = Experience(prompts, draws, [""] * len(draws), [])
        now = compute_logprobs(state, drawn).logprobs
        with state.policy.reference():
            reference = compute_logprobs(state, drawn).logprobs
        fresh.append(float(kl_k1(now, reference, drawn.completion_mask(now.device)).sum()) / len(draws))
        return plain(state, *rest)

    monkeypatch.setattr(stage, name, measure)
    more: dict[str, Any] = {"target_kl": None} if method == "ppo" else {"beta": 0.01, "rollout_cap": 100}
    train(settings, method=method, learning_rate=0.02, prompts_per_step=6, samples=16, steps=3, **more)
    measured = [row["extra"]["kl"] for row in lines(settings, method) if row["phase"] == "TRAINING"]
    assert fresh[-1] > 1, "it moves"
    assert measured == pytest.approx(fresh, rel=0.5, abs=0.1), "PPO's last one is of weighted answers"


def test_a_policy_that_runs_away_is_stopped_by_its_kl(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the step after the one that moved it, as without overlap; here nothing shortens the update."""
    monkeypatch.setattr(kl_control, "UPDATE_LIMIT", 1e9)
    shape = {"learning_rate": 0.02, "target_kl": 0.5, "abort_kl": 2.0, "prompts_per_step": 6, "samples": 8}
    stopped = train(settings, method="ppo", **shape).stopped
    assert stopped is not None and stopped.startswith("STOPPED at step 2 of 5")


class FailingSampler:
    """Sampler.__call__ that fails for one step, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self.steps: list[int] = []
        plain = Sampler.__call__

        def sample(sampler: Sampler, prompts: Any, streams: Any, **more: Any) -> Any:
            self.steps.append(int(streams[0].split(":")[1]))
            if self.steps[-1] == step and self.steps.count(step) == 1:
                raise ModelError("The model is gone", "Start it again")
            return plain(sampler, prompts, streams, **more)

        monkeypatch.setattr(Sampler, "__call__", sample)


def test_a_step_that_was_scored_is_learnt_though_the_next_cannot_be_drawn(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, scorer = FailingSampler(monkeypatch, 3), FakeScorer(letters)
    train(settings, scorer, steps=4)
    assert failing.steps == [1, 2, 3, 3, 4]
    drifts = [row["extra"]["drift"] for row in lines(settings) if row["phase"] == "TRAINING"]
    assert len(drifts) == 4 and drifts[2] < 1e-5 and drifts[3] > 1e-4, "step 3 drew its answers itself"


def test_where_scoring_fails_nobody_waits_for_the_next_answers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scoring_failed, plain, waited = threading.Event(), Sampler.__call__, list[bool]()

    def sample(self: Sampler, prompts: Any, streams: Any, *, progress: Any, **more: Any) -> Any:
        if streams[0].split(":")[1] == "2":
            assert scoring_failed.wait(WAIT)
            end = time.monotonic() + WAIT
            while time.monotonic() < end:
                progress(1, 8)
                time.sleep(0.001)
            waited.append(True)
        return plain(self, prompts, streams, progress=progress, **more)

    def fail(sample: Sample) -> float:
        scoring_failed.set()
        raise RuntimeError("the teacher is gone")

    monkeypatch.setattr(Sampler, "__call__", sample)
    with pytest.raises(RuntimeError, match="the teacher is gone"):
        train(settings, FakeScorer(fail))
    assert not waited


def test_the_wait_for_the_next_answers_is_seen(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, plain = threading.Event(), Sampler.__call__

    def look(progress: Any) -> None:
        if progress.phase == "GENERATING" and progress.reward is not None:
            seen.set()

    def sample(self: Sampler, prompts: Any, streams: Any, **more: Any) -> Any:
        assert streams[0].split(":")[1] == "1" or seen.wait(WAIT)
        return plain(self, prompts, streams, **more)

    monkeypatch.setattr(overlap, "LOOK_S", 0.01)
    monkeypatch.setattr(Sampler, "__call__", sample)
    train(settings, on_progress=look, steps=2)


class OneAlarm(NoAudit):
    looks = 0

    def check(self, before: Any, now: Any, *, looks: int) -> AuditResult:
        self.looks += 1
        return AuditResult(("bad",) if self.looks == 1 else (), (), {})


def test_after_an_alarm_the_answers_of_the_policy_that_is_no_more_are_let_go(settings: Any) -> None:
    train(settings, audit=OneAlarm(), on_alarm="undo", eval_every=2, held_out_n=2, steps=4)
    drifts = [row["extra"]["drift"] for row in lines(settings) if row["phase"] == "TRAINING"]
    assert drifts[1] > 1e-4 and drifts[2] < 1e-5 < drifts[3], "the alarm of step 2 goes back to the first policy"


@pytest.mark.parametrize("method", ["ppo", "grpo"])
def test_the_flag_is_the_setting(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: dict[str, Any] = {}
    monkeypatch.setattr(rl_commands, "_train", lambda _, given, *rest, **more: flags.update(given))
    for words, value in ((["--overlap"], True), ([], None)):
        monkeypatch.setattr(sys, "argv", ["medloop", "train", method, *words])
        with pytest.raises(SystemExit) as caught:
            main()
        assert not caught.value.code and flags["overlap"] is value
