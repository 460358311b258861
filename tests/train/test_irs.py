"""Rejection sampling: what is chosen and why, where it came from, and what happens to a round that made things worse."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from medloop.cli.train.runner import Terminal
from medloop.contracts import ModelRef, Reward, Sample, Score
from medloop.models.load import load
from medloop.models.rollout.rollouts import Rollout
from medloop.models.rollout.sampler import Sampler, stop_ids
from medloop.testing.fakes import FakeScorer
from medloop.train import irs
from medloop.train.irs import IRSRunConfig, select
from medloop.train.rl.experience import Experience, RLPrompt, read_prompts
from medloop.train.rl.plan import RLPlan, make_plan
from medloop.train.rl.state import TrainState, create_train_state
from medloop.train.runs.find_run import find_run

SMALL = {"max_new_tokens": 12, "held_out_n": 6, "lora_r": 4, "learning_rate": 0.02, "n_candidates": 4, "batch_size": 8}


def answers(*groups: list[tuple[str, float | None]]) -> Experience:
    """One group of (text, reward) per question."""
    prompts = [RLPrompt(f"q{n}", (1,), "?") for n, group in enumerate(groups) for _ in group]
    texts = [text for group in groups for text, _ in group]
    rewards = [
        Reward(value=value, version="1", reason=None if value is not None else "down", parts=(), weights={})
        for group in groups
        for _, value in group
    ]
    rollouts = [Rollout((1,), tuple(range(2, 3 + len(text))), (0.0,) * (len(text) + 1), True, "") for text in texts]
    return Experience(prompts, rollouts, texts, rewards)


def a_score(name: str, value: float) -> Score:
    return Score(name=name, value=value, reason="r", author="a", version="1")


def selected(experience: Experience, **more: Any) -> list[str]:
    chosen = select(experience, IRSRunConfig(**{"threshold": 0.5, "all_pass_share": 1.0, **more}))
    return [experience.texts[row] for row in chosen.rows]


def test_one_gold_answer_per_question_is_kept_and_it_must_pass_the_threshold() -> None:
    experience = answers([("b", 0.8), ("a", 0.9), ("c", 0.7), ("d", 0.1)], [("e", 0.4), ("f", 0.3)])
    assert selected(experience) == ["a"]
    assert selected(experience, threshold=0.35, top_k=4) == ["a", "e"]  # top_k is about passages, not about answers


def test_an_answer_that_fails_a_safety_rule_is_never_gold_however_good_the_rest_is() -> None:
    experience = answers([("risky", 0.9), ("safe", 0.6), ("mild", 0.7)], [("only risky", 0.9)])
    for row, value in ((0, 0.5), (2, 0.4), (3, 1.0)):
        experience.rewards[row] = experience.rewards[row].model_copy(update={"parts": (a_score("risk", value),)})
    chosen = select(experience, IRSRunConfig(threshold=0.5, all_pass_share=1.0))
    assert [experience.texts[row] for row in chosen.rows] == ["mild"] and chosen.unsafe == 2
    assert selected(experience, must_pass=()) == ["risky", "only risky"]


def test_without_a_threshold_it_is_the_mean_of_the_round() -> None:
    chosen = select(answers([("a", 1.0), ("b", 0.0)], [("c", 0.6), ("d", None)]), IRSRunConfig(threshold=None))
    assert chosen.threshold == pytest.approx(1.6 / 3, abs=1e-6) and chosen.rows == [0, 2]


def test_copies_count_once_and_are_counted() -> None:
    experience = answers([("same", 0.9), (" same\n", 0.9), ("other", 0.8), ("bad", 0.0)])
    assert selected(experience) == ["same"]
    chosen = select(experience, IRSRunConfig(threshold=0.5))
    assert (chosen.duplicates, chosen.below) == (1, 1)


def test_a_missing_reward_is_never_chosen() -> None:
    assert selected(answers([("a", None), ("b", 0.9)]), threshold=0.0) == ["b"]


def test_questions_whose_answers_all_pass_are_capped_and_counted() -> None:
    easy = [[(f"e{n}{m}", 0.9) for m in range(2)] for n in range(4)]
    experience = answers(*easy, [("h", 0.9), ("low", 0.1)], [("k", 0.9), ("low", 0.0)])
    chosen = select(experience, IRSRunConfig(threshold=0.5, all_pass_share=0.5))
    assert len(chosen.rows) == 4 and chosen.capped == 2
    assert {"h", "k"} <= {experience.texts[row] for row in chosen.rows}


def test_of_equal_answers_the_shorter_is_the_better() -> None:
    assert selected(answers([("longer one", 0.9), ("short", 0.9), ("bad", 0.0)])) == ["short"]


def letters(sample: Sample) -> float:
    answer = sample.answer or ""
    return sum(character in "abcdefghijklm" for character in answer) / max(len(answer), 1)


def planned(settings: Any, worth: Any = letters, **more: Any) -> RLPlan:
    files = {"prompts": "data/processed/train.jsonl", "held_out": "data/processed/dev.jsonl"}
    config = IRSRunConfig(**{"model": settings.model, "name": "r", "n_questions": 8, **SMALL, **files, **more})
    scorer = FakeScorer(worth)
    return make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer)


def run(settings: Any, worth: Any = letters, **more: Any) -> Any:
    return irs.run(planned(settings, worth, **more), settings)


def metrics(settings: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (settings.home / "jobs/train_irs-r/metrics.jsonl").read_text().splitlines()]


def test_a_round_that_made_held_out_answers_worse_is_undone_and_ends_the_run(settings: Any) -> None:
    """What training rewards is what the held-out check punishes."""

    def worth(sample: Sample) -> float:
        return 1 - letters(sample) if sample.id.startswith("held-out") else letters(sample)

    card = run(settings, worth, n_iterations=3, n_questions=32, n_candidates=8, tolerance=0.0, learning_rate=0.05)
    rows = metrics(settings)
    assert [row["extra"]["undone"] for row in rows if "undone" in (row.get("extra") or {})] == [1]
    assert max(row["iter"] for row in rows) == 1 and card.metrics["held_out_gain"] == 0.0
    weights = load_file(settings.home / "models/rl/r/adapter_model.safetensors")
    assert all(not weight.any() for name, weight in weights.items() if "lora_B" in name)  # as the fresh adapter was


def test_a_kept_answer_can_be_made_again_from_what_is_written_beside_it(settings: Any) -> None:
    run(settings, n_iterations=1)
    rows = [json.loads(line) for line in (settings.home / "models/rl/r/samples.jsonl").read_text().splitlines()]
    assert rows and all(
        {"iter", "prompt_id", "reward", "parts", "reward_version", "model", "stream"} <= row.keys() for row in rows
    )
    loaded = load(ModelRef(base=settings.model), settings)
    prompts = read_prompts(settings.home / "data/processed/train.jsonl", loaded.tokenizer, max_tokens=256).prompts
    ids = {prompt.id: prompt.token_ids for prompt in prompts}
    sampler = Sampler(loaded.model, stop_ids=stop_ids(loaded.model, loaded.tokenizer), pad_id=loaded.tokenizer.pad_token_id)
    again = sampler([ids[row["prompt_id"]] for row in rows], [row["stream"] for row in rows], max_new_tokens=12)
    bare = [loaded.tokenizer.decode([t for t in rollout.tokens if t < 256]) for rollout in again]
    same = [answer == row["answer"] for answer, row in zip(bare, rows, strict=True) if "[" not in row["answer"]]
    assert len(same) > 2 and all(same)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_old_records_are_the_wanted_share_of_what_is_trained_on(
    settings: Any, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Rollout]] = []
    real = irs._fine_tune
    monkeypatch.setattr(irs, "_fine_tune", lambda state, rows, stop: (seen.append(rows), real(state, rows, stop)))
    run(settings, n_iterations=2, replay=share)
    prompts = {tuple(row.prompt) for row in seen[0]}
    assert len(seen) == 2 and prompts
    kept_rows = [int(row["extra"]["selected"]) for row in metrics(settings) if "selected" in (row.get("extra") or {})]
    assert [len(rows) for rows in seen] == [round(n / (1 - share)) for n in kept_rows]


def test_each_round_goes_on_from_the_last_and_leaves_its_adapter(settings: Any) -> None:
    run(settings, n_iterations=2, tolerance=1.0)
    folder = settings.home / "jobs/train_irs-r/checkpoints"
    adapters = [load_file(folder / name / "adapter_model.safetensors") for name in ("iter_1", "iter_2", "final")]
    assert any(not torch.equal(adapters[0][name], adapters[1][name]) for name in adapters[0])
    assert all(torch.equal(adapters[1][name], adapters[2][name]) for name in adapters[1])
    assert all("length_ratio" in row["extra"] for row in metrics(settings) if "selected" in (row.get("extra") or {}))


def test_after_a_restart_rounds_are_counted_and_not_the_saves_of_a_round(
    settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"n_iterations": 3, "tolerance": 1.0, "save_every": 1}
    first_adapter = settings.home / "jobs/train_irs-r/checkpoints/iter_1"
    assert planned(settings, **more).steps_done is None
    for stops, rounds in ((lambda: True, 0), (first_adapter.exists, 1)):
        with pytest.raises(KeyboardInterrupt):
            irs.run(planned(settings, **more), settings, should_stop=stops)
        plan = planned(settings, **more)
        with Terminal("irs", lambda plan, cost: None, live=False) as terminal:
            terminal.on_plan(plan, None)
        assert plan.steps_done == rounds and f"Continuing: {rounds} of 3 steps are done." in capsys.readouterr().out


def test_nothing_worth_learning_is_said(settings: Any) -> None:
    from medloop.errors import ResultError

    with pytest.raises(ResultError, match="No candidate was worth learning from"):
        run(settings, n_iterations=1, threshold=2.0)
    assert not Path(settings.home / "models/rl/r").exists()


def test_the_optimizer_is_the_one_that_others_reproduced(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from medloop.train import grpo

    norms: list[float] = []
    real = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda p, norm: (norms.append(norm), real(p, norm))[1])
    files = {"prompts": "data/processed/train.jsonl", "held_out_n": 0, "model": settings.model, "max_new_tokens": 8}
    config = grpo.GRPOConfig(**files, steps=4, prompts_per_step=2, samples=2, learning_rate=0.02, lora_r=4, max_grad_norm=0.3)
    scorer = FakeScorer(letters)
    plan = make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer)
    states: list[TrainState] = []
    monkeypatch.setattr(
        grpo, "create_train_state", lambda *given, **more: states.append(create_train_state(*given, **more)) or states[0]
    )
    grpo.run(plan, settings)
    [state] = states
    assert state.optimizer.defaults["eps"] == 1e-5 and state.optimizer.defaults["weight_decay"] == 0.0
    assert set(norms) == {0.3}
    rates = [json.loads(line) for line in (settings.home / "models/rl/round1/metrics.jsonl").read_text().splitlines()]
    assert [row["extra"]["learning_rate"] for row in rates if "learning_rate" in row.get("extra", {})] == pytest.approx(
        [0.02, 0.015, 0.01, 0.005]
    )
    assert all(p.dtype == torch.float32 for p in state.policy.trained().values())
