"""Held-out checks: the reward on prompts that are never trained on, audited against the first check; and what ends a step."""

from collections.abc import Callable
from typing import Any

import torch

from medloop.train.rl import samples
from medloop.train.rl.experience import Experience
from medloop.train.rl.rollout import collect_rollouts
from medloop.train.rl.state import TrainState
from medloop.train.rl.step import compute_logprobs


def check_held_out(state: TrainState, *, first: bool = False, with_kl: bool = False) -> None:
    """Measure the reward on the held-out prompts, with the same random stream each time, so that checks can be paired.

    The `first` check is of the policy before training; a resumed run has had it. Later ones are audited against it. `with_kl`
    also measures the KL to the reference, in nats per answer, for a method that does not see it in its steps.
    """
    plan = state.plan
    if not plan.held_out or (first and state.saved["held_out"]):
        return
    experience = collect_rollouts(state, plan.held_out, 1, f"held-out:{plan.config.seed}", held_out=True)
    rewards, present = experience.reward_tensor()
    state.saved["held_out"][str(state.step)] = [
        float(reward) if there else None for reward, there in zip(rewards.tolist(), present.tolist(), strict=True)
    ]
    summary = experience.summary()
    extra: dict[str, Any] = {"held_out": summary}
    if with_kl:
        extra["kl"] = _kl_to_reference(state, experience)
    samples.append_check(plan.run.folder, state.step, experience)
    checks = samples.read_checks(plan.run.folder)
    if state.step in checks and min(checks) < state.step:
        extra["alarms"] = plan.audit(checks[min(checks)], checks[state.step])
        state.saved.setdefault("alarms", {})[str(state.step)] = extra["alarms"]
    state.log("HELD_OUT", avg_reward=summary["reward"], extra=extra)


def _kl_to_reference(state: TrainState, experience: Experience) -> float:
    """In nats per answer."""
    logprobs = compute_logprobs(state, experience).logprobs
    with state.policy.reference():
        log_ratio = logprobs - compute_logprobs(state, experience).logprobs
    mask = experience.completion_mask(logprobs.device)
    return round(float(torch.where(mask, log_ratio, 0.0).sum()) / len(experience.rollouts), 8)


def finish_step(state: TrainState, should_stop: Callable[[], bool]) -> None:
    """Held-out check and checkpoint where they are due. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    config = state.plan.config
    last = state.step == config.steps
    if last or state.step % config.eval_every == 0:
        check_held_out(state)
    stop = should_stop() and not last
    if last or stop or state.step % config.save_every == 0:
        state.save()
    if stop:
        raise KeyboardInterrupt
