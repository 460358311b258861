"""Held-out checks: the reward on prompts that are never trained on, audited against the first check; and what ends a step."""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, stdev
from typing import Any

import torch

from medloop.train.rl import audit, samples
from medloop.train.rl.experience import Experience
from medloop.train.rl.rollout import collect_rollouts
from medloop.train.rl.state import TrainState
from medloop.train.rl.step import NonFiniteError, compute_logprobs


def check_held_out(state: TrainState, *, first: bool = False, with_kl: bool = False) -> bool:
    """Measure the reward on the held-out prompts, with the same random stream each time, so that checks can be paired.

    The `first` check is of the policy before training; a resumed run has had it. Later ones are audited against it, and True
    means that an alarm ends the run. `with_kl` logs the KL as that of the step, for a method that does not see it in its steps.
    """
    plan, config = state.plan, state.plan.config
    if not plan.held_out or (first and state.saved["held_out"]):
        return False
    experience = collect_rollouts(state, plan.held_out, config.held_out_samples, f"held-out:{config.seed}", held_out=True)
    means = state.saved["held_out"][str(state.step)] = _mean_by_prompt(experience, config.held_out_samples)
    summary = experience.summary()
    if (interval := _interval([mean for mean in means if mean is not None])) is not None:
        summary["reward_interval"] = interval
    extra: dict[str, Any] = {"held_out": summary}
    reference = _against_reference(state, experience)
    if with_kl and reference is not None:
        extra["kl"] = round(sum(kl for _, kl in reference) / len(reference), 8)
    samples.append_check(plan.run.folder, state.step, experience, reference)
    checks = samples.read_checks(plan.run.folder)
    ended = False
    if state.step in checks and min(checks) < state.step:
        looks = audit.planned_checks(config) + audit.early_checks(config)
        result = plan.audit.check(checks[min(checks)], checks[state.step], looks=looks)
        extra["alarms"] = [*result.alarms, *result.standing]
        extra["audit"] = result.measures
        state.saved.setdefault("alarms", {})[str(state.step)] = extra["alarms"]
        if result.alarms:
            ended = audit.answer_alarm(state, result.alarms)
        else:
            audit.mark_good(state)
            audit.keep_watch(state, result)
    else:
        audit.mark_good(state)
    state.log("HELD_OUT", avg_reward=summary["reward"], extra=extra)
    return ended


def _mean_by_prompt(experience: Experience, count: int) -> list[float | None]:
    """The mean reward of the `count` answers to each prompt; None where none of them has one."""
    rewards, present = (tensor.tolist() for tensor in experience.reward_tensor())
    means: list[float | None] = []
    for start in range(0, len(rewards), count):
        known = [rewards[row] for row in range(start, start + count) if present[row]]
        means.append(sum(known) / len(known) if known else None)
    return means


def _interval(means: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean over questions, by their spread: answers to one question are not independent."""
    if len(means) < 2:
        return None
    mean, error = fmean(means), 1.96 * stdev(means) / math.sqrt(len(means))
    return round(mean - error, 6), round(mean + error, 6)


def _against_reference(state: TrainState, experience: Experience) -> list[tuple[float, float]] | None:
    """Mean log-probability per token under the reference, and KL to it in nats, of each answer; None if not finite."""
    try:
        logprobs = compute_logprobs(state, experience).logprobs
        with state.policy.reference():
            reference = compute_logprobs(state, experience).logprobs
    except NonFiniteError:
        return None
    mask = experience.completion_mask(logprobs.device)
    kl = torch.where(mask, logprobs - reference, 0.0).sum(1)
    likelihood = torch.where(mask, reference, 0.0).sum(1) / mask.sum(1).clamp(min=1)
    return [(round(mean, 6), round(nats, 6)) for mean, nats in zip(likelihood.tolist(), kl.tolist(), strict=True)]


def steps_left(state: TrainState) -> Iterator[int]:
    """The steps that are still to do; none after an alarm or a KL beyond its bound has ended the run."""
    for step in range(state.step + 1, state.plan.config.steps + 1):
        if audit.has_ended(state) or "stopped" in state.saved:
            return
        yield step


def finish_step(state: TrainState, should_stop: Callable[[], bool]) -> None:
    """Held-out check and checkpoint where they are due. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    config = state.plan.config
    last = state.step == config.steps or "stopped" in state.saved
    due = audit.check_is_due(state)
    if last or due or state.step % config.eval_every == 0:
        last = check_held_out(state) or last
    stop = should_stop() and not last
    if last or stop or state.step % config.save_every == 0:
        state.save()
    if stop:
        raise KeyboardInterrupt
