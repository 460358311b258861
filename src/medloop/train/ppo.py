"""PPO: every token gets a reward (its KL to the reference, and the score at the end), a critic says what was to be expected.

    config = PPOConfig(adapter="sft", steps=40)
    plan = state.plan(config, settings, state.find_run(config, settings, scorer=scorer), scorer=scorer)
    card = ppo.run(plan, settings)

https://arxiv.org/abs/1707.06347, with what made it work for language: KL inside the reward with a weight that steers to a target
(https://arxiv.org/abs/1909.08593), GAE, whitened advantages, clipped values, and an early end of the epoch when the policy has
moved far from the one that was sampled. Policy and critic share the base; the reference is a frozen adapter on it.

In: questions, a policy to start from, a scorer. Out: `models/rl/NAME`, whole or not at all. It leaves out several GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from medloop.contracts import TrainingCard
from medloop.settings import Settings
from medloop.train.configs.rl_config import PPOConfig as PPOConfig
from medloop.train.rl import maths, result, state
from medloop.train.rl.maths import AdaptiveKL, PolicyStats, Window
from medloop.train.rl.policy import Batch
from medloop.train.rl.rollout import Experience
from medloop.train.rl.state import Bench, RLPlan
from medloop.train.runs.progress import OnProgress, ignore_progress


@dataclass(frozen=True)
class Lesson:
    """What a batch of answers teaches, all (N, C): the old log-probabilities and values, advantages and returns, and the mask."""

    old: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    mask: Tensor
    weights: Tensor | None  # of samples from a server
    kl: float  # to the reference, nats per answer


def run(
    plan: RLPlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Train to the end and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    with plan.run.only_process():
        bench = state.set_up(plan, settings, with_values=True, on_progress=on_progress)
        bench.state.setdefault("kl", AdaptiveKL(plan.config.beta, plan.config.target_kl, plan.config.horizon).state())
        state.check_held_out(bench, first=True)
        for step in range(bench.step + 1, plan.config.steps + 1):
            bench.step = step
            state.guarded(bench, lambda: _step(bench))
            state.after_step(bench, should_stop)
        card = result.finish(bench)
    return card


def _step(bench: Bench) -> None:
    """Ask, score, look back, learn, and steer the weight of the KL."""
    config, controller = bench.plan.config, AdaptiveKL(**bench.state["kl"])
    rate = state.set_rate(bench)
    questions = state.questions_of(bench, bench.step, config.prompts_per_step)
    found = state.ask(bench, questions, config.samples, f"{config.seed}:{bench.step}")
    lesson = _look_back(bench, found, controller.beta)
    stats = _learn(bench, found, lesson)
    bench.sampler.refresh()
    answers = int(lesson.mask.any(1).sum())
    bench.state["kl"] = controller.after(lesson.kl, answers).state()
    explained = maths.explained_variance(lesson.values, lesson.returns, lesson.mask)
    state.report_step(
        bench, found, rate=rate, **stats, kl=lesson.kl, beta=controller.beta, explained_variance=explained,
        drift=state.mean_drift(found, lesson.old),
    )  # fmt: skip


def _look_back(bench: Bench, found: Experience, beta: float) -> Lesson:
    """What the policy and the critic thought while answering, and what came of it."""
    config, device = bench.plan.config, bench.policy.device
    then = state.score_all(bench, found, values=True)
    with bench.policy.reference():
        reference = state.score_all(bench, found).logprobs
    scores, present = (tensor.to(device) for tensor in found.values())
    ended = torch.tensor([row.ended for row in found.rows], device=device)
    worth = maths.token_rewards(
        scores, then.logprobs, reference, state.answer_mask(found, device), present=present, ended=ended, beta=beta,
        missing_eos_penalty=config.cut_penalty,
    )  # fmt: skip
    assert then.values is not None
    advantages, returns = maths.gae(worth.rewards, then.values, worth.mask, gamma=config.gamma, lam=config.lam)
    answers = max(int(worth.mask.any(1).sum()), 1)
    kl = float(worth.kl.sum()) / answers
    sampled = found.sampled(device)
    weights = maths.rollout_weights(then.logprobs, sampled, worth.mask, config.rollout_cap) if config.rollout_url else None
    return Lesson(then.logprobs, then.values, maths.whiten(advantages, worth.mask), returns, worth.mask, weights, kl)


def _learn(bench: Bench, found: Experience, lesson: Lesson) -> dict[str, Any]:
    config = bench.plan.config
    teach = [at for at in range(len(lesson.mask)) if lesson.mask[at].any()]
    first: PolicyStats | None = None
    last: PolicyStats | None = None
    sums = {"entropy": 0.0, "value_loss": 0.0, "tokens": 0.0}
    losses: list[float] = []
    early = False
    for epoch in range(config.epochs):
        for rows in state.shuffled(teach, config.minibatches, f"{config.seed}:{bench.step}:{epoch}"):
            window, parts = Window.of(lesson.mask[rows], config.max_new_tokens), list[PolicyStats]()

            def loss_of(part: list[int], batch: Batch, window: Window = window, parts: list[PolicyStats] = parts) -> Tensor:
                columns = batch.mask.shape[1]
                seen, before = lesson.mask[part, :columns], lesson.old[part, :columns]
                scored = bench.policy.score(
                    batch, temperature=config.temperature, entropy="gradient" if config.entropy_weight else "value", values=True
                )
                per_token, stats = maths.policy_losses(
                    scored.logprobs, before, lesson.advantages[part, :columns], seen, clip_low=config.clip,
                    dual_clip=config.dual_clip,
                    weights=None if lesson.weights is None else lesson.weights[part, :columns],
                )  # fmt: skip
                assert scored.values is not None and scored.entropy is not None
                critic = maths.value_losses(
                    scored.values, lesson.values[part, :columns], lesson.returns[part, :columns], seen, clip=config.value_clip
                )
                entropy = torch.where(seen, scored.entropy, 0.0)
                parts.append(stats)
                sums["entropy"] += float(entropy.detach().sum())
                sums["value_loss"] += float(critic.detach().sum())
                sums["tokens"] += float(seen.sum())
                whole = per_token + config.value_weight * critic - config.entropy_weight * entropy
                return maths.aggregate(whole, seen, window, "dapo")

            losses.append(state.optimise(bench, rows, found, loss_of))
            bench.phase("TRAINING", len(losses), config.epochs * config.minibatches)
            last = sum(parts[1:], parts[0])
            first = first or last
            early = maths.should_stop(last.means()["approx_kl"], config.step_kl)
            if early:
                break
        if early:
            break
    if first is None or last is None:
        return {"loss": 0.0}
    tokens = max(sums["tokens"], 1.0)
    return {
        "loss": sum(losses) / len(losses), "entropy": sums["entropy"] / tokens, "value_loss": sums["value_loss"] / tokens,
        **last.means(), "first_ratio": first.means()["ratio"], "updates": len(losses), "early_stop": early,
    }  # fmt: skip
