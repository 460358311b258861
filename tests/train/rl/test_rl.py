"""PPO, GRPO and IRS: they learn, they mask what is missing, they survive, and they end the same way every time."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from medloop.contracts import ModelRef, Sample
from medloop.errors import ConfigError, InputError, ResultError
from medloop.knobs import load_config, read_yaml
from medloop.loop.audit import rl_audit
from medloop.loop.scoring import reward_scorer
from medloop.models.find import resolve
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256, verify_artifact
from medloop.testing.fakes import FakeScorer
from medloop.testing.rollout_server import RolloutServer
from medloop.train import grpo, irs, ppo
from medloop.train.configs.rl_config import RLConfig
from medloop.train.rl.checks import Answers, AuditResult, NoAudit
from medloop.train.rl.plan import RLPlan, make_plan
from medloop.train.rl.policy import Policy
from medloop.train.rl.rollout import prompts_of_step
from medloop.train.rl.state import create_train_state
from medloop.train.runs.find_run import find_run
from medloop.train.runs.progress import Progress
from medloop.train.runs.teacher_use import published_use, teacher_use

METHODS: dict[str, tuple[Any, type[RLConfig], dict[str, Any]]] = {
    "grpo": (grpo, grpo.GRPOConfig, {"steps": 4, "prompts_per_step": 4, "samples": 4}),
    "ppo": (ppo, ppo.PPOConfig, {"steps": 4, "prompts_per_step": 4, "samples": 4}),
    "irs": (irs, irs.IRSRunConfig, {"n_iterations": 2, "n_questions": 8, "n_candidates": 4, "batch_size": 8, "tolerance": 1.0}),
}
# What all three share in one piece of code: one of them in every run of the suite, the others in `make test-slow`.
SHARED = ["grpo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ppo", "irs"))]
SMALL = {"max_new_tokens": 12, "held_out_n": 6, "held_out_samples": 1, "save_every": 1, "eval_every": 2, "lora_r": 4}


def letters(sample: Sample) -> float:
    """The share of low bytes: something that any random model can learn to write more of."""
    answer = sample.answer or ""
    return sum(character in "abcdefghijklm" for character in answer) / max(len(answer), 1)


def config(settings: Any, method: str, **more: Any) -> Any:
    _, kind, shape = METHODS[method]
    held = {"prompts": "data/processed/train.jsonl", "held_out": "data/processed/dev.jsonl"}
    return kind(**{"model": settings.model, "name": "r", "learning_rate": 0.02, **SMALL, **shape, **held, **more})


def train(settings: Any, method: str, scorer: Any = None, *, replace: bool = False, **more: Any) -> Any:
    stage = METHODS[method][0]
    callbacks = {name: more.pop(name) for name in ("on_progress", "should_stop") if name in more}
    plan = planned(config(settings, method, **more), settings, scorer or FakeScorer(letters), replace=replace)
    return stage.run(plan, settings, **callbacks)


def planned(config: Any, settings: Any, scorer: Any, **more: Any) -> RLPlan:
    return make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer, **more)


def lines(settings: Any, method: str) -> list[dict[str, Any]]:
    text = (settings.home / f"jobs/train_{method}-r/metrics.jsonl").read_text()
    return [{key: value for key, value in json.loads(line).items() if key != "ts"} for line in text.splitlines()]


def weights(settings: Any) -> dict[str, torch.Tensor]:
    return load_file(settings.home / "models/rl/r/adapter_model.safetensors")


@pytest.mark.parametrize("method", METHODS)
def test_it_learns_what_is_rewarded(settings: Any, method: str) -> None:
    more = {"n_iterations": 3, "n_questions": 32} if method == "irs" else {"steps": 12, "prompts_per_step": 8}
    card = train(settings, method, **more, **({"samples": 8} if method != "irs" else {"n_candidates": 8, "epochs": 2}))
    assert card.metrics["reward_last"] > card.metrics["reward_first"] + 0.05
    assert card.metrics["held_out_gain"] > 0


@pytest.mark.parametrize("method", METHODS)
def test_the_result_has_what_people_and_programs_read(settings: Any, method: str) -> None:
    card = train(settings, method)
    folder = settings.home / "models/rl/r"
    verify_artifact(folder)
    [adapter] = re.findall(r"--adapter (\S+)", (folder / "README.md").read_text())
    resolve(
        ModelRef(base=settings.model, adapter=adapter), settings
    )  # what its README says can be loaded, with all that lies in it
    names = {file.name for file in folder.iterdir()}
    assert {
        "adapter_model.safetensors",
        "rewards.csv",
        "kl_metrics.json",
        "samples.jsonl",
        "report.html",
        "card.json",
    } <= names
    assert ("value_head.safetensors" in names) == (method == "ppo")
    steps = json.loads((folder / "kl_metrics.json").read_text())["steps"]
    assert len(steps) >= 2 and card.metrics["kl_last"] == steps[-1]["kl"]
    assert card.method == method and card.trainable_parameters < card.total_parameters
    report = (folder / "report.html").read_text()
    assert "Held-out gain (95 % CI)" in report and "Answer length, first → last" in report
    assert "<script" not in report and "<polyline" in report
    assert f"<h1>{method.upper()} run r</h1>" in report and "prefers-color-scheme:dark" in report
    assert report.index("held-out reward") < report.index("The reward-hacking panel") < report.index("<svg")
    assert "Reward (per answer)" in report and "Parts of the reward" in report and "(nats per answer)" in report
    first, last = (f"{word} (step " for word in ("Before", "After"))
    assert report.count(first) == report.count(last) > 0 and "data:image/png" not in report


@pytest.mark.parametrize("method", METHODS)
def test_stopped_and_continued_it_ends_with_the_same_bytes(settings: Any, untouched: Any, method: str) -> None:
    train(untouched, method, replace=True)
    calls = iter([False, True, True] + [False] * 1000)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(settings, method, should_stop=lambda: next(calls))
    train(settings, method)
    assert lines(settings, method) == lines(untouched, method)
    for name in ("adapter_model.safetensors", "samples.jsonl", "held_out.jsonl", "rewards.csv", "kl_metrics.json"):
        assert file_sha256(settings.home / "models/rl/r" / name) == file_sha256(untouched.home / "models/rl/r" / name)


@pytest.mark.parametrize("method", METHODS)
def test_a_finished_run_is_not_repeated_and_another_is_refused(settings: Any, method: str) -> None:
    train(settings, method)
    scorer = FakeScorer(letters)
    assert find_run(config(settings, method), settings, scorer=scorer).finished() is not None
    with pytest.raises(ConfigError, match="temperature"):
        find_run(config(settings, method, temperature=0.5), settings, scorer=scorer).finished()
    with pytest.raises(ConfigError, match="reward_version fake-1, now fake-2"):
        find_run(config(settings, method), settings, scorer=FakeScorer(letters, "fake-2")).finished()


@pytest.mark.parametrize("method", METHODS)
def test_missing_rewards_are_counted_and_not_taken_as_nothing(settings: Any, method: str) -> None:
    """Were they 0, the answers that lack a reward would be the worst ones and be unlearnt."""
    gone = FakeScorer(lambda sample: None if sample.id.endswith(":0") else 0.5)
    card = train(settings, method, gone, **({"threshold": 0.4} if method == "irs" else {}), held_out_n=0, max_missing=0.5)
    extras = [row["extra"] for row in lines(settings, method) if row["phase"] == "METRICS"]
    assert all(row["missing"] > 0 and row["reward"] == 0.5 for row in extras) and card.metrics["reward_last"] == 0.5


@pytest.mark.parametrize("method", SHARED)
def test_too_many_missing_rewards_stop_the_run_and_it_goes_on_later(settings: Any, untouched: Any, method: str) -> None:
    train(untouched, method, replace=True)
    tired = FakeScorer(letters)
    calls, plain = 0, tired.score

    def score(samples: Any) -> Any:
        nonlocal calls
        calls += 1
        return plain(samples) if calls < 4 else FakeScorer(lambda sample: None).score(samples)

    tired.score = score  # type: ignore[method-assign]
    with pytest.raises(ResultError, match="have no reward"):
        train(settings, method, tired)
    train(settings, method)
    assert lines(settings, method) == lines(untouched, method)


@pytest.mark.parametrize("method", SHARED[:2])
def test_a_broken_step_is_undone_and_counted_and_the_third_ends_the_run(
    settings: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = METHODS[method][0]
    plain: Callable[..., Any] = stage.policy_losses
    broken_at: set[int] = {2}
    step = 0

    def losses(logprobs: Any, *args: Any, **kwargs: Any) -> Any:
        loss, stats = plain(logprobs, *args, **kwargs)
        return (loss * math.nan if step in broken_at else loss), stats

    def on_progress(progress: Progress) -> None:
        nonlocal step
        step = progress.step

    monkeypatch.setattr(stage, "policy_losses", losses)
    card = train(settings, method, on_progress=on_progress)
    assert card.metrics["skipped_steps"] == 1 and bool(all(torch.isfinite(t).all() for t in weights(settings).values()))
    broken_at = {2, 3, 4}
    with pytest.raises(ResultError, match="3 steps ended in numbers that are not finite"):
        train(settings, method, on_progress=on_progress, name="other")
    assert not (settings.home / "models/rl/other").exists()


@pytest.mark.parametrize("method", SHARED)
def test_lack_of_memory_means_smaller_pieces_of_the_same_step(
    settings: Any, untouched: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(untouched, method, replace=True)
    plain, room = Policy.forward, 3

    def poor(self: Policy, batch: Any, **kwargs: Any) -> Any:
        if len(batch.input_ids) > room and len(batch.targets[0]) != 4:  # the look at one row when a policy is opened may pass
            raise torch.OutOfMemoryError("no room")
        return plain(self, batch, **kwargs)

    monkeypatch.setattr(Policy, "forward", poor)
    train(settings, method)
    for name, tensor in weights(untouched).items():
        assert torch.allclose(tensor, weights(settings)[name], atol=2e-3), name
    room = 0
    with pytest.raises(ResultError, match="not enough memory for a single answer"):
        train(settings, method, name="none")


def test_groups_without_a_difference_teach_nothing(settings: Any) -> None:
    train(settings, "grpo", FakeScorer(lambda sample: 0.5), beta=0.0)
    assert all(row["extra"]["flat_groups"] == 4 for row in lines(settings, "grpo") if row["phase"] == "TRAINING")
    assert all(bool((tensor == 0).all()) for name, tensor in weights(settings).items() if "lora_B" in name)


def test_parts_that_are_normalised_one_by_one_are_learnt(settings: Any) -> None:
    """GDPO on the real mix: a narrow part is heard beside a wide one."""
    mix = reward_scorer(settings, reward=None)
    card = train(settings, "grpo", mix, rewards="each", steps=2)
    extras = [row["extra"] for row in lines(settings, "grpo") if "flat_groups" in row.get("extra", {})]
    assert len(extras) == 2 and card.config["rewards"] == "each"
    with pytest.raises(ConfigError, match="rewards=each needs a mix"):
        train(settings, "grpo", rewards="each", replace=True)


def test_the_first_ratio_of_ppo_is_one_and_later_ones_are_not(settings: Any) -> None:
    train(settings, "ppo", epochs=3)
    extras = [row["extra"] for row in lines(settings, "ppo") if row["phase"] == "TRAINING"]
    assert all(abs(row["first_ratio"] - 1) < 1e-4 for row in extras)
    assert any(abs(row["ratio"] - 1) > 1e-4 for row in extras)


def test_an_epoch_ends_early_when_the_policy_has_moved_far(settings: Any) -> None:
    train(settings, "ppo", epochs=8, step_kl=1e-6)
    extras = [row["extra"] for row in lines(settings, "ppo") if row["phase"] == "TRAINING"]
    assert all(row["early_stop"] and row["updates"] < 16 for row in extras)


@pytest.mark.parametrize(("target", "grows"), [(1e-4, True), (1e4, False)])
def test_the_weight_of_the_kl_steers_to_its_target(
    settings: Any, target: float, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medloop.train.rl.kl_control.UPDATE_LIMIT", 1e9)  # beta alone
    train(settings, "ppo", target_kl=target, horizon=100, abort_kl=None)
    betas = [row["extra"]["beta"] for row in lines(settings, "ppo") if row["phase"] == "TRAINING"]
    assert (betas[-1] > betas[1]) == grows and betas[0] == 0.02


def test_held_out_questions_are_never_trained_on(settings: Any) -> None:
    run_config = config(settings, "grpo", held_out="data/processed/train.jsonl", held_out_n=53)
    plan = planned(run_config, settings, FakeScorer(letters))
    assert not plan.held_out and len(plan.prompts) == 53
    apart = planned(config(settings, "grpo"), settings, FakeScorer(letters))
    assert apart.held_out and not {p.token_ids for p in apart.held_out} & {p.token_ids for p in apart.prompts}


def test_every_question_has_its_turn_before_any_comes_again(settings: Any) -> None:
    plan = planned(config(settings, "grpo", steps=10), settings, FakeScorer(letters))
    state = create_train_state(plan, settings)
    ids = []
    for state.step in range(1, 14):
        ids += [prompt.id for prompt in prompts_of_step(state, 4)]
    assert len(set(ids)) == len(ids) == 52 and ids != sorted(ids)


def test_a_resumed_run_keeps_the_rate_it_began_with(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(config(settings, "grpo", learning_rate=None), settings, FakeScorer(letters))
    state = create_train_state(plan, settings)
    state.step = 1
    state.log("TRAINING")
    state.save()
    monkeypatch.setattr(type(plan.config), "small_rate", state.learning_rate / 2)  # another default in a later version
    resumed = create_train_state(plan, settings)
    assert resumed.step == 1 and resumed.learning_rate == state.learning_rate


def test_a_missing_file_of_questions_says_how_to_make_it(settings: Any) -> None:
    with pytest.raises(InputError, match="medloop data prompts"):
        train(settings, "grpo", prompts=None)


def test_samples_carry_no_identifiers(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    path.write_text(json.dumps({"id": "q", "question": "My phone is 13812345678, what now?"}) + "\n")
    train(settings, "grpo", prompts=str(path))
    assert "13812345678" not in (settings.home / "models/rl/r/samples.jsonl").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_the_run_file_opens_with_its_command_and_holds_every_setting(method: str) -> None:
    kind, path = METHODS[method][1], Path(__file__).parents[3] / f"configs/{method}.yaml"
    assert path.read_text().startswith(f"# medloop train {method} --config configs/{method}.yaml\n")
    loaded = load_config(kind, file=path, pairs=(), flags={}, defaults={})
    assert loaded == kind(adapter="sft") and set(read_yaml(path)) == set(kind.model_fields)
    assert all(field.description and field.description.endswith(".") for field in kind.model_fields.values())


@pytest.mark.parametrize("method", SHARED)
def test_it_learns_on_a_base_in_four_bits(settings: Any, method: str) -> None:
    pytest.importorskip("bitsandbytes")
    card = train(settings, method, load_in_4bit=True)
    assert card.config["load_in_4bit"] and card.metrics["kl_last"] != 0.0
    assert card.total_parameters == train(settings, method, name="whole").total_parameters


@pytest.mark.parametrize("method", METHODS)
def test_products_in_bfloat16_are_told_and_corrected(settings: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    module, weighed = METHODS[method][0], list[torch.Tensor]()
    if method != "irs":
        plain = module.rollout_weights
        monkeypatch.setattr(module, "rollout_weights", lambda *given: weighed.append(plain(*given)) or weighed[-1])
    card = train(settings, method, rollout_dtype="bfloat16")
    assert card.backend == "fast_bfloat16" and card.update_backend == "fast"
    if method == "irs":
        return  # it selects answers and fine-tunes on them: nothing is weighed
    drifts = [row["extra"]["drift"] for row in lines(settings, method) if "drift" in row.get("extra", {})]
    assert len(drifts) == 4 and all(1e-5 < drift < 0.05 for drift in drifts) and card.metrics["drift_last"] == drifts[-1]
    assert weighed and any(bool((weights != 1).any()) for weights in weighed)


@pytest.mark.parametrize("more", [{"load_in_4bit": True}, {"rollout_url": "http://127.0.0.1:1"}])
def test_products_in_bfloat16_are_of_the_built_in_sampler_in_full_precision(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"cannot be combined with {next(iter(more))}"):
        grpo.GRPOConfig(rollout_dtype="bfloat16", **more)


@pytest.mark.parametrize("method", SHARED)
def test_a_server_may_sample(settings: Any, method: str) -> None:
    with RolloutServer(ModelRef(base=settings.model), settings) as server:
        card = train(settings, method, rollout_url=server.url, temperature=0.8)
        assert not server.adapters and len(set(server.loaded)) >= card.config.get("steps", card.config.get("n_iterations"))
    drifts = [row["extra"]["drift"] for row in lines(settings, method) if "drift" in row.get("extra", {})]
    assert len(drifts) == (0 if method == "irs" else 4) and all(drift < 1e-4 for drift in drifts)
    assert card.config["rollouts"] == "vllm" and "rollout_url" not in card.config
    assert not list((settings.home / f"jobs/train_{method}-r/rollout").iterdir())


@pytest.mark.parametrize("wrong", ["deaf", "raw"])
def test_a_server_that_samples_something_else_is_found_out_before_it_teaches(settings: Any, wrong: str, small_base: Path) -> None:
    train(settings, "grpo", steps=2, learning_rate=0.1)
    adapter = {"adapter": "models/rl/r", "name": "second", "temperature": 0.5}
    more = {wrong: True}
    with (
        RolloutServer(ModelRef(base=settings.model), settings, **more) as server,
        pytest.raises(ConfigError, match="does not sample this policy"),
    ):
        train(settings, "grpo", rollout_url=server.url, **adapter)


def test_the_teachers_cost_is_kept_step_by_step_also_over_a_stop(settings: Any) -> None:
    teacher = SimpleNamespace(calls=0, tokens=0, spent=0.0)

    def judged(sample: Sample) -> float:
        teacher.calls, teacher.tokens, teacher.spent = teacher.calls + 1, teacher.tokens + 100, teacher.spent + 0.001
        return letters(sample)

    scorer = FakeScorer(judged)
    scorer.given = {"teacher": teacher}
    calls = iter([False, True] + [False] * 100)
    with pytest.raises(KeyboardInterrupt):
        train(settings, "ppo", scorer, should_stop=lambda: next(calls))
    train(settings, "ppo", scorer)
    table = (settings.home / "models/rl/r/teacher_usage.csv").read_text().splitlines()
    assert table == ["step,calls,tokens,usd", "0,6,600,0.006000", "1,16,1600,0.016000", "2,22,2200,0.022000",
                     "3,16,1600,0.016000", "4,22,2200,0.022000"]  # fmt: skip
    train(settings, "ppo", name="alone", replace=True)
    assert (settings.home / "models/rl/alone/teacher_usage.csv").read_text() == "step,calls,tokens,usd\n"
    assert published_use(settings.home / "models/rl/alone") is None
    used = published_use(settings.home / "models/rl/r")
    assert (
        used is not None and used == teacher_use(list(jsonl.read(settings.home / "models/rl/r/metrics.jsonl"))) and used.calls > 0
    )


class Auditor(NoAudit):
    """Raises alarms from a step on; `looks` are what it was shown."""

    def __init__(self, alarm_at: int = 1, standing: tuple[str, ...] = ()) -> None:
        self.alarm_at, self.standing = alarm_at, standing
        self.looks: list[tuple[Answers, Answers]] = []

    def check(self, before: Answers, now: Answers, *, looks: int) -> AuditResult:
        self.looks.append((before, now))
        alarms = (f"look {len(self.looks)} is <bad>.",) if len(self.looks) >= self.alarm_at else ()
        return AuditResult(alarms, self.standing, {"overtriage": 0.25})


def test_every_held_out_check_is_audited_against_the_first(settings: Any) -> None:
    auditor = Auditor(alarm_at=99, standing=("It was so before.",))
    plan = planned(config(settings, "grpo", held_out_samples=3), settings, FakeScorer(letters), audit=auditor)
    card = grpo.run(plan, settings)
    (before, first), (same, second) = auditor.looks
    assert before == same and first != second and len(before) == len(first) == 18 and before[0].sample.id == "r0"
    assert len({answer.sample.answer for answer in first[:3]}) > 1, "several answers to a question"
    assert all(answer.likelihood < 0 and answer.truncated is not None for answer in second)
    assert before[0].kl == 0 and sum(answer.kl for answer in second) > 0
    assert card.alarms == ("It was so before.",) and card.alarm_action is None and card.metrics["audit_overtriage"] == 0.25
    audits = [row["extra"]["audit"] for row in lines(settings, "grpo") if "audit" in row.get("extra", {})]
    assert audits == [{"overtriage": 0.25}] * 2


@pytest.mark.parametrize("method", METHODS)
def test_an_alarm_stops_the_run_and_the_last_good_weights_are_published(settings: Any, method: str) -> None:
    """The second check of four raises it: what is published is what the first check saw, byte for byte, and says so first."""
    more = {"n_iterations": 4} if method == "irs" else {"steps": 4, "eval_every": 1}
    plan = planned(config(settings, method, **more), settings, FakeScorer(letters), audit=Auditor(alarm_at=2))
    card = METHODS[method][0].run(plan, settings)
    assert card.alarms == ("step 2: look 2 is <bad>.",) and card.alarm_action == "stopped" and card.metrics["published_step"] == 1
    folder = settings.home / "models/rl/r"
    sentence = "ALARM: step 2: look 2 is <bad>. The run was stopped, and the result is the policy of step 1"
    assert (folder / "README.md").read_text().splitlines()[2].startswith(f"**{sentence}")
    page = (folder / "report.html").read_text()
    assert page.index("look 2 is &lt;bad&gt;") < page.index("held-out reward") and "After (step 1)" in page
    assert max(line["iter"] for line in lines(settings, method)) == 2


def test_an_alarm_can_be_undone_or_only_told(settings: Any) -> None:
    shape = {"steps": 6, "eval_every": 1}
    plan = planned(config(settings, "grpo", on_alarm="undo", **shape), settings, FakeScorer(letters), audit=Auditor())
    undone = grpo.run(plan, settings)
    assert undone.alarm_action == "stopped" and len(undone.alarms) == 4 and undone.metrics["published_step"] == 0
    first = {name: tensor.clone() for name, tensor in weights(settings).items() if "lora_B" in name}
    assert all(not tensor.any() for tensor in first.values()), "a fresh adapter changes nothing until it is trained"
    plan = planned(
        config(settings, "grpo", on_alarm="warn", **shape), settings, FakeScorer(letters), audit=Auditor(), replace=True
    )
    warned = grpo.run(plan, settings)
    assert warned.alarm_action == "warned" and len(warned.alarms) == 6 and "published_step" not in warned.metrics
    assert any(tensor.any() for name, tensor in weights(settings).items() if "lora_B" in name)


def test_a_reward_for_brevity_alone_raises_the_panels_alarm(settings: Any) -> None:
    """With these settings answers of 38 tokens shrink below 5, whatever the seed: far beyond what rounding can move."""
    scorer = FakeScorer(lambda sample: max(1 - len(sample.answer or "") / 40, 0.0))
    group = {"prompts_per_step": 8, "samples": 16, "max_new_tokens": 40, "scale": "none", "beta": 0.0}
    brief = config(settings, "grpo", steps=12, learning_rate=0.1, on_alarm="warn", **group)
    card = grpo.run(planned(brief, settings, scorer, audit=rl_audit(settings, scorer, seed=1)), settings)
    assert card.metrics["length_last"] < 0.5 * card.metrics["length_first"]
    assert card.alarm_action == "warned" and any("shorter" in alarm for alarm in card.alarms)
    assert "shorter" in (settings.home / "models/rl/r/report.html").read_text()


@pytest.mark.parametrize("method", SHARED)
def test_the_backend_that_sampled_is_in_card_metrics_and_readme(settings: Any, method: str) -> None:
    card = train(settings, method)
    assert card.backend == "fast"
    assert {line["extra"]["backend"] for line in lines(settings, method) if "reward" in (line.get("extra") or {})} == {"fast"}
    assert "| Answers sampled by | the fast decoder |" in (settings.home / "models/rl/r/README.md").read_text()
