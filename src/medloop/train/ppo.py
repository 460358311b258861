"""PPO: every token gets a reward (its KL to the reference, and the score at the end); a critic predicts what is to come.

    config = PPOConfig(adapter="sft", steps=40)
    plan = make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer)
    card = ppo.run(plan, settings)

https://arxiv.org/abs/1707.06347, with what made it work for language: KL inside the reward with a weight that steers to a target
(https://arxiv.org/abs/1909.08593), GAE, whitened advantages, an early end of the epoch when the policy has moved
far from the one that was sampled, and updates that stay near the reference (kl_control.py). The critic reads the policy's
features and fits its own head (critic.py); the reference is a frozen adapter on the same base.

In: prompts, a policy to start from, a scorer. Out: `models/rl/NAME`, whole or not at all. It leaves out several GPUs.
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
from medloop.train.rl.advantages import gae, group_advantages, token_rewards
from medloop.train.rl.audit import screen_batch
from medloop.train.rl.critic import CriticMoments, fit_critic
from medloop.train.rl.experience import Experience
from medloop.train.rl.held_out import check_held_out, finish_step, steps_left
from medloop.train.rl.kl_control import (
    KLAnswers,
    adapter_weights,
    fresh_kl_answers,
    kl_controller,
    limit_update,
    stop_reason,
)
from medloop.train.rl.losses import PolicyStats, Window, aggregate, policy_losses, rollout_weights, value_losses
from medloop.train.rl.maths import AdaptiveKL, explained_variance, masked_mean, should_stop, whiten
from medloop.train.rl.overlap import check_overlap, step_experience
from medloop.train.rl.plan import RLPlan
from medloop.train.rl.policy import Batch
from medloop.train.rl.result import publish_result
from medloop.train.rl.rollout import check_rollout_server, corrects_drift, mean_drift
from medloop.train.rl.state import TrainState, capped_memory, create_train_state
from medloop.train.rl.step import (
    compute_logprobs,
    log_step,
    optimizer_step,
    set_learning_rate,
    shuffled_minibatches,
    try_step,
)
from medloop.train.runs.progress import OnProgress, ignore_progress


@dataclass(frozen=True)
class PPOBatch:
    """What the updates on a batch of answers need; all tensors are (N, C)."""

    old_logprobs: Tensor
    old_values: Tensor
    advantages: Tensor
    returns: Tensor
    mask: Tensor
    reference: Tensor  # log-probabilities under the reference
    weights: Tensor | None  # of samples from a server
    measured: KLAnswers  # those that the KL to the reference is measured on

    def select(self, rows: list[int], columns: int) -> PPOBatch:
        """Some answers, without the columns that none of them reaches."""
        tensors = (self.old_logprobs, self.old_values, self.advantages, self.returns, self.mask, self.reference)
        old_logprobs, old_values, advantages, returns, mask, reference = (tensor[rows, :columns] for tensor in tensors)
        weights = None if self.weights is None else self.weights[rows, :columns]
        return PPOBatch(old_logprobs, old_values, advantages, returns, mask, reference, weights, self.measured)


def run(
    plan: RLPlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Train to the end and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    with plan.run.lock(), capped_memory(plan.config.memory_gb, settings):
        state = create_train_state(plan, settings, with_values=True, on_progress=on_progress)
        check_rollout_server(state)
        check_overlap(state, settings)
        state.saved.setdefault("kl", kl_controller(plan.config).state())
        check_held_out(state, first=True)
        for step in steps_left(state):
            state.step = step
            try_step(state, lambda: _step(state))
            finish_step(state, should_stop)
        return publish_result(state)


def _step(state: TrainState) -> None:
    """Sample, score, compute advantages, optimise, and adapt the weight of the KL. Too far from the reference, only measure."""
    config, controller = state.plan.config, AdaptiveKL(**state.saved["kl"])
    experience = step_experience(state)
    screen_batch(state, experience)
    rate = set_learning_rate(state, (state.step - 1) / config.steps)
    batch = compute_advantages(state, experience, controller.beta)
    kl = batch.measured.kl
    stats: dict[str, Any] = {"loss": 0.0}
    if reason := stop_reason(config, kl, state.step):
        state.saved["stopped"] = reason
    else:
        before = adapter_weights(state)
        stats = optimise_policy(state, experience, batch)
        moments = CriticMoments(batch.returns, batch.mask)
        stats |= limit_update(state, before, experience, batch.measured, moments)
        fit_critic(state, moments)
        state.sampler.refresh()
    if kl is not None:
        state.saved["kl"] = controller.after(kl, int(batch.mask.any(1).sum())).state()
    explained = explained_variance(batch.old_values, batch.returns, batch.mask)
    value_loss = masked_mean(value_losses(batch.old_values, batch.returns, batch.mask), batch.mask)
    rewards, present = experience.reward_tensor()
    groups = group_advantages(rewards, experience.groups, present=present)
    log_step(
        state, experience, rate=rate, **stats, kl=kl, beta=controller.beta, explained_variance=explained,
        value_loss=value_loss, drift=mean_drift(experience, batch.old_logprobs), flat_groups=groups.flat_groups,
        groups=groups.groups,
    )  # fmt: skip


def compute_advantages(state: TrainState, experience: Experience, beta: float) -> PPOBatch:
    """Log-probabilities and values while answering, the rewards of each token, and the advantages they give."""
    config, device = state.plan.config, state.policy.device
    old = compute_logprobs(state, experience, values=True)
    with state.policy.reference():
        reference = compute_logprobs(state, experience).logprobs
    scores, present = (tensor.to(device) for tensor in experience.reward_tensor())
    paid = token_rewards(
        scores, old.logprobs, reference, experience.completion_mask(device), present=present, ended=experience.ended(device),
        beta=beta, missing_eos_penalty=config.missing_eos_penalty,
    )  # fmt: skip
    assert old.values is not None
    mask = paid.mask
    advantages, returns = gae(paid.rewards, old.values, mask, gamma=config.gamma, lam=config.lam)
    sampled = experience.sampled_logprobs(device)
    weights = rollout_weights(old.logprobs, sampled, mask, config.rollout_cap) if corrects_drift(state) else None
    own = KLAnswers(experience, sampled if config.overlap else old.logprobs, old.logprobs, reference, mask)
    measured = fresh_kl_answers(state) or own
    return PPOBatch(old.logprobs, old.values, whiten(advantages, mask), returns, mask, reference, weights, measured)


def optimise_policy(state: TrainState, experience: Experience, batch: PPOBatch) -> dict[str, Any]:
    """The optimizer steps of one batch, and their numbers. An epoch ends early when the policy has moved far."""
    config = state.plan.config
    trainable = [row for row in range(len(batch.mask)) if batch.mask[row].any()]
    first: PolicyStats | None = None
    last: PolicyStats | None = None
    sums = {"entropy": 0.0, "tokens": 0.0}
    losses: list[float] = []
    early_stop = False
    for epoch in range(config.epochs):
        for rows in shuffled_minibatches(trainable, config.minibatches, f"{config.seed}:{state.step}:{epoch}"):
            window, parts = Window.of(batch.mask[rows], config.max_new_tokens), list[PolicyStats]()

            def compute_loss(
                part: list[int], micro_batch: Batch, window: Window = window, parts: list[PolicyStats] = parts
            ) -> Tensor:
                old = batch.select(part, micro_batch.mask.shape[1])
                output = state.policy.forward(
                    micro_batch, temperature=config.temperature, entropy="gradient" if config.entropy_weight else "value"
                )
                per_token, stats = policy_losses(
                    output.logprobs, old.old_logprobs, old.advantages, old.mask, clip_low=config.clip,
                    dual_clip=config.dual_clip, weights=old.weights,
                )  # fmt: skip
                assert output.entropy is not None
                entropy = torch.where(old.mask, output.entropy, 0.0)
                parts.append(stats)
                sums["entropy"] += float(entropy.detach().sum())
                sums["tokens"] += float(old.mask.sum())
                return aggregate(per_token - config.entropy_weight * entropy, old.mask, window, "dapo")

            losses.append(optimizer_step(state, rows, experience, compute_loss))
            state.phase("TRAINING", len(losses), config.epochs * config.minibatches)
            last = sum(parts[1:], parts[0])
            first = first or last
            early_stop = should_stop(last.means()["approx_kl"], config.step_kl)
            if early_stop:
                break
        if early_stop:
            break
    if first is None or last is None:
        return {"loss": 0.0}
    tokens = max(sums["tokens"], 1.0)
    return {
        "loss": sum(losses) / len(losses), "entropy": sums["entropy"] / tokens, **last.means(),
        "first_ratio": first.means()["ratio"], "updates": len(losses), "early_stop": early_stop,
    }  # fmt: skip
