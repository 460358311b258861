"""GRPO: several answers to each prompt, each compared with the others of its group; no critic. https://arxiv.org/abs/2402.03300

    config = GRPOConfig(adapter="sft", steps=40)
    plan = make_plan(config, settings, find_run(config, settings, scorer=scorer), scorer=scorer)
    card = grpo.run(plan, settings)

In: prompts (`data/rl/training_prompts.jsonl`), a policy to start from, a scorer. Out: `models/rl/NAME`, whole or not at all.

It leaves out: several GPUs, replay of old answers, and resampling of prompts whose answers all score alike (they are counted).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from medloop.contracts import Scorer, TrainingCard
from medloop.errors import ConfigError
from medloop.settings import Settings
from medloop.train.configs.rl_config import GRPOConfig as GRPOConfig
from medloop.train.rl.advantages import GroupAdvantages, gdpo_advantages, group_advantages
from medloop.train.rl.audit import screen_batch
from medloop.train.rl.experience import Experience
from medloop.train.rl.held_out import check_held_out, finish_step, steps_left
from medloop.train.rl.losses import PolicyStats, Window, aggregate, policy_losses, rollout_drift, rollout_weights
from medloop.train.rl.maths import kl_k3
from medloop.train.rl.overlap import check_overlap, step_experience
from medloop.train.rl.plan import RLPlan
from medloop.train.rl.policy import Batch
from medloop.train.rl.result import publish_result
from medloop.train.rl.rollout import check_rollout_server, corrects_drift
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


def run(
    plan: RLPlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Train to the end and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    with plan.run.lock(), capped_memory(plan.config.memory_gb, settings):
        state = create_train_state(plan, settings, on_progress=on_progress)
        check_rollout_server(state)
        check_overlap(state, settings)
        check_held_out(state, first=True)
        for step in steps_left(state):
            state.step = step
            try_step(state, lambda: _step(state))
            finish_step(state, should_stop)
        return publish_result(state)


def _step(state: TrainState) -> None:
    """Sample, score, compare within groups, optimise."""
    config, device = state.plan.config, state.policy.device
    experience = step_experience(state)
    screen_batch(state, experience)
    rate = set_learning_rate(state, (state.step - 1) / config.steps)
    advantages = compute_advantages(config, experience, state.plan.scorer)
    mask = experience.completion_mask(device) & experience.reward_tensor()[1].to(device)[:, None]
    if config.mask_truncated_completions:
        mask &= experience.ended(device)[:, None]
    old_logprobs = None if config.epochs * config.minibatches == 1 else compute_logprobs(state, experience).logprobs
    reference = None
    if config.beta:
        with state.policy.reference():
            reference = compute_logprobs(state, experience).logprobs
    stats = optimise_policy(state, experience, advantages.values.to(device), mask, old_logprobs, reference)
    state.sampler.refresh()
    log_step(state, experience, rate=rate, **stats, flat_groups=advantages.flat_groups, groups=advantages.groups)


def compute_advantages(config: GRPOConfig, experience: Experience, scorer: Scorer) -> GroupAdvantages:
    """Of the summed reward, or of each part on its own (GDPO)."""
    rewards, present = experience.reward_tensor()
    if config.rewards == "sum":
        return group_advantages(rewards, experience.groups, present=present, scale=config.scale)
    weights = _part_weights(scorer)
    parts, part_present, names = experience.part_rewards(weights)
    scale = torch.tensor([abs(weights[name]) for name in names])
    return gdpo_advantages(parts, experience.groups, scale, present=part_present & present[:, None])


def _part_weights(scorer: Scorer) -> dict[str, float]:
    """The weights of a mix, by part; only a mix has parts that can be normalised one by one."""
    parts = getattr(getattr(scorer, "config", None), "parts", None)
    if parts is None:
        raise ConfigError("rewards=each needs a mix, whose parts have weights", "Use the default reward, or rewards=sum")
    return {name: float(part.weight) for name, part in parts.items()}


def optimise_policy(
    state: TrainState,
    experience: Experience,
    advantages: Tensor,
    mask: Tensor,
    old_logprobs: Tensor | None,
    reference: Tensor | None,
) -> dict[str, Any]:
    """The optimizer steps of one batch. Without a KL term, answers with advantage 0 change nothing and are not computed."""
    config = state.plan.config
    some, moves = mask.any(1).tolist(), (advantages != 0).tolist()
    trainable = [row for row in range(len(mask)) if some[row] and (config.beta or moves[row])]
    total: PolicyStats | None = None
    sums = dict.fromkeys(("entropy", "kl", "drift"), torch.zeros((), device=state.policy.device))  # read once, at the end
    losses = []
    sampled_logprobs = experience.sampled_logprobs(state.policy.device)
    for epoch in range(config.epochs):
        for rows in shuffled_minibatches(trainable, config.minibatches, f"{config.seed}:{state.step}:{epoch}"):
            window = Window.of(mask, config.max_new_tokens, steps=config.minibatches)

            def compute_loss(part: list[int], batch: Batch, window: Window = window) -> Tensor:
                nonlocal total
                columns = batch.mask.shape[1]
                output = state.policy.forward(batch, temperature=config.temperature, entropy="value")
                part_mask, sampled = mask[part, :columns], sampled_logprobs[part, :columns]
                old = output.logprobs.detach() if old_logprobs is None else old_logprobs[part, :columns]
                sums["drift"] = sums["drift"] + rollout_drift(old, sampled, part_mask)
                weights = rollout_weights(old, sampled, part_mask, config.rollout_cap) if corrects_drift(state) else None
                per_token, stats = policy_losses(
                    output.logprobs, old, advantages[part], part_mask, clip_low=config.clip, clip_high=config.clip_high,
                    weights=weights,
                )  # fmt: skip
                if reference is not None:
                    kl = kl_k3(output.logprobs, reference[part, :columns], part_mask, old_logprobs=old)
                    kl = kl if weights is None else kl * weights
                    per_token = per_token + config.beta * kl
                    sums["kl"] = sums["kl"] + kl.detach().sum()
                assert output.entropy is not None
                sums["entropy"] = sums["entropy"] + torch.where(part_mask, output.entropy, 0.0).sum()
                total = stats if total is None else total + stats
                return aggregate(per_token, part_mask, window, config.loss)

            losses.append(optimizer_step(state, rows, experience, compute_loss))
            state.phase("TRAINING", len(losses), config.epochs * config.minibatches)
    if total is None:
        return {"loss": 0.0}
    entropy, kl, drift = (float(sums[name]) for name in ("entropy", "kl", "drift"))
    tokens, answers = max(float(total.tokens), 1.0), max(len(trainable) * config.epochs, 1)
    return {
        "loss": sum(losses) / len(losses), "entropy": entropy / tokens, **total.means(), "drift": drift / tokens,
        "kl": None if reference is None else kl / answers,
    }  # fmt: skip
