"""GRPO: several answers to each question, each judged against its siblings; no critic. https://arxiv.org/abs/2402.03300

    config = GRPOConfig(adapter="sft", steps=40)
    plan = state.plan(config, settings, state.find_run(config, settings, scorer=scorer), scorer=scorer)
    card = grpo.run(plan, settings)

In: questions (`data/rl/training_prompts.jsonl`), a policy to start from, a scorer. Out: `models/rl/NAME`, whole or not at all.

It leaves out: several GPUs, replay of old answers, and resampling of questions whose answers all score alike (they are counted).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from medloop.contracts import TrainingCard
from medloop.settings import Settings
from medloop.train.configs.rl_config import GRPOConfig as GRPOConfig
from medloop.train.rl import maths, result, state
from medloop.train.rl.maths import GroupAdvantages, PolicyStats, Window
from medloop.train.rl.policy import Batch
from medloop.train.rl.rollout import Experience
from medloop.train.rl.state import Bench, RLPlan
from medloop.train.runs.progress import OnProgress, ignore_progress


def run(
    plan: RLPlan,
    settings: Settings,
    *,
    on_progress: OnProgress = ignore_progress,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingCard:
    """Train to the end and publish. When `should_stop` says so: a checkpoint, then KeyboardInterrupt."""
    with plan.run.only_process():
        bench = state.set_up(plan, settings, on_progress=on_progress)
        state.check_held_out(bench, first=True)
        for step in range(bench.step + 1, plan.config.steps + 1):
            bench.step = step
            state.guarded(bench, lambda: _step(bench))
            state.after_step(bench, should_stop)
        card = result.finish(bench)
    return card


def _step(bench: Bench) -> None:
    """Ask, score, compare, learn."""
    config = bench.plan.config
    rate = state.set_rate(bench)
    questions = state.questions_of(bench, bench.step, config.prompts_per_step)
    found = state.ask(bench, questions, config.samples, f"{config.seed}:{bench.step}")
    advantages, present = _advantages(config, found, bench)
    mask = state.answer_mask(found, bench.policy.device) & present[:, None]
    if config.mask_cut:
        mask &= torch.tensor([row.ended for row in found.rows], device=mask.device)[:, None]
    old = None if config.epochs * config.minibatches == 1 else state.score_all(bench, found).logprobs
    reference = None
    if config.beta:
        with bench.policy.reference():
            reference = state.score_all(bench, found).logprobs
    stats = _learn(bench, found, advantages.values, mask, old, reference)
    bench.sampler.refresh()
    state.report_step(
        bench, found, rate=rate, **stats, flat_groups=advantages.flat_groups, groups=advantages.groups,
    )  # fmt: skip


def _advantages(config: GRPOConfig, found: Experience, bench: Bench) -> tuple[GroupAdvantages, Tensor]:
    values, present = found.values()
    if config.rewards == "sum":
        compared = maths.group_advantages(values, found.groups, present=present, scale=config.scale)
    else:
        weights = state.part_weights(bench.plan.scorer)
        parts, there, names = found.parts(weights)
        scale = torch.tensor([abs(weights[name]) for name in names])
        compared = maths.gdpo_advantages(parts, found.groups, scale, present=there & present[:, None])
    device = bench.policy.device
    moved = GroupAdvantages(compared.values.to(device), compared.groups, compared.flat_groups, compared.missing)
    return moved, present.to(device)


def _learn(
    bench: Bench, found: Experience, advantages: Tensor, mask: Tensor, old: Tensor | None, reference: Tensor | None
) -> dict[str, Any]:
    """The optimizer steps of one batch. Without a KL term, answers with advantage 0 teach nothing and are not computed."""
    config = bench.plan.config
    teach = [at for at in range(len(mask)) if mask[at].any() and (config.beta or advantages[at] != 0)]
    total: PolicyStats | None = None
    sums = {"entropy": 0.0, "kl": 0.0, "drift": 0.0}
    losses = []
    sampled = found.sampled(bench.policy.device)
    for epoch in range(config.epochs):
        for rows in state.shuffled(teach, config.minibatches, f"{config.seed}:{bench.step}:{epoch}"):
            window = Window.of(mask, config.max_new_tokens, steps=config.minibatches)

            def loss_of(part: list[int], batch: Batch, window: Window = window) -> Tensor:
                nonlocal total
                columns, scored = batch.mask.shape[1], bench.policy.score(batch, temperature=config.temperature, entropy="value")
                seen = mask[part, :columns]
                before = scored.logprobs.detach() if old is None else old[part, :columns]
                drawn = sampled[part, :columns]
                sums["drift"] += float(maths.rollout_drift(before, drawn, seen))
                weights = maths.rollout_weights(before, drawn, seen, config.rollout_cap) if config.rollout_url else None
                per_token, stats = maths.policy_losses(
                    scored.logprobs, before, advantages[part], seen, clip_low=config.clip, clip_high=config.clip_high,
                    weights=weights,
                )  # fmt: skip
                if reference is not None:
                    kl = maths.kl_k3(scored.logprobs, reference[part, :columns], seen, old=before)
                    per_token = per_token + config.beta * kl
                    sums["kl"] += float(kl.detach().sum())
                assert scored.entropy is not None
                sums["entropy"] += float(torch.where(seen, scored.entropy, 0.0).sum())
                total = stats if total is None else total + stats
                return maths.aggregate(per_token, seen, window, config.loss)

            losses.append(state.optimise(bench, rows, found, loss_of))
            bench.phase("TRAINING", len(losses), config.epochs * config.minibatches)
    if total is None:
        return {"loss": 0.0, "kl": 0.0}
    tokens, answers = max(float(total.tokens), 1.0), max(len(teach) * config.epochs, 1)
    return {
        "loss": sum(losses) / len(losses), "entropy": sums["entropy"] / tokens, "kl": sums["kl"] / answers, **total.means(),
        "drift": sums["drift"] / tokens,
    }  # fmt: skip
