"""The losses of PPO and GRPO per token, and how they become one number. Pure functions; shapes as in maths.py."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from medloop.train.configs.rl_config import Aggregation
from medloop.train.rl.maths import log_ratio


@dataclass(frozen=True)
class Window:
    """What one optimizer step divides by: counts over all its micro-batches, so that their sizes change nothing.

    Rows without a token (truncated answers that are masked, missing scores) are not counted.
    """

    rows: float
    tokens: float
    max_length: int

    @classmethod
    def of(cls, mask: Tensor, max_length: int, steps: int = 1) -> Window:
        """From the mask (B, T) of the step; or of a whole rollout that is used in `steps` steps, as DAPO counts."""
        return cls(int(mask.any(1).sum()) / steps, int(mask.sum()) / steps, max_length)


def aggregate(per_token: Tensor, mask: Tensor, window: Window, kind: Aggregation) -> Tensor:
    """One loss from losses per token (B, T) of a micro-batch. The sum over the micro-batches is the loss of the window.

    | kind | divided by | |
    |---|---|---|
    | `grpo` | own length, then rows | long answers weigh less per token. https://arxiv.org/abs/2402.03300 |
    | `dr_grpo` | rows x `max_length` | a constant: no length bias. https://arxiv.org/abs/2503.20783 |
    | `dapo` | tokens of the window | each token weighs the same. https://arxiv.org/abs/2503.14476 |
    | `bnpo` | the same | TRL's name for it when the window is the step's own batch |
    """
    losses = torch.where(mask, per_token, 0.0)
    if kind == "grpo":
        return (losses.sum(1) / mask.sum(1).clamp(min=1)).sum() / max(window.rows, 1)
    if kind == "dr_grpo":
        return losses.sum() / (max(window.rows, 1) * window.max_length)
    return losses.sum() / max(window.tokens, 1)


@dataclass(frozen=True)
class PolicyStats:
    """Sums over tokens, so that `+` over micro-batches equals the whole batch; `means()` is what is logged."""

    tokens: Tensor
    ratio: Tensor
    approx_kl: Tensor
    clipped_low: Tensor
    clipped_high: Tensor

    def __add__(self, other: PolicyStats) -> PolicyStats:
        return PolicyStats(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def means(self) -> dict[str, float]:
        """`ratio` is 1 and `approx_kl` and `clip_fraction` are 0 on the first step, or the log-probabilities disagree."""
        count = max(float(self.tokens), 1.0)
        sums = {name: float(total) / count for name, total in vars(self).items() if name != "tokens"}
        return {**sums, "clip_fraction": sums["clipped_low"] + sums["clipped_high"]}


def policy_losses(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, PolicyStats]:
    """PPO's clipped loss per token (B, T): -min(r A, clip(r, 1 - low, 1 + high) A). https://arxiv.org/abs/1707.06347

    Advantages are (B, T), or (B,) for one per answer. `clip_high` (default: `clip_low`) may be wider, 0.28 in DAPO, so that
    rare good tokens can grow. `dual_clip` c (3 is usual, https://arxiv.org/abs/1912.09729) bounds the loss of a bad token
    whose ratio ran away, to c |A|. `clipped_low` and `clipped_high` count tokens whose gradient min has cut off. `weights`
    (B, T) are those of `rollout_weights`, for samples of another engine.
    """
    high = clip_low if clip_high is None else clip_high
    advantages = torch.where(mask, advantages[:, None] if advantages.dim() == 1 else advantages, 0.0)
    log_ratios = log_ratio(logprobs, old_logprobs, mask)
    ratio = log_ratios.exp()
    losses = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + high) * advantages)
    if dual_clip is not None:
        losses = torch.where(advantages < 0, torch.minimum(losses, -dual_clip * advantages), losses)
    if weights is not None:
        losses = losses * weights
    with torch.no_grad():
        stats = PolicyStats(
            tokens=mask.sum(),
            ratio=torch.where(mask, ratio, 0.0).sum(),
            approx_kl=(torch.expm1(log_ratios) - log_ratios).sum(),
            clipped_low=((ratio < 1 - clip_low) & (advantages < 0)).sum(),
            clipped_high=((ratio > 1 + high) & (advantages > 0)).sum(),
        )
    return losses, stats


def rollout_weights(logprobs: Tensor, sampled_logprobs: Tensor, mask: Tensor, cap: float) -> Tensor:
    """Truncated importance weights (B, T) of tokens from another engine: their probability here over that there, at most `cap`.

    An engine with other kernels or number types draws from a slightly different policy; the weights correct for it. They carry
    no gradient. https://fengyao.notion.site/off-policy-rl
    """
    return torch.where(mask, log_ratio(logprobs.detach(), sampled_logprobs, mask).exp().clamp(max=cap), 0.0)


def rollout_drift(logprobs: Tensor, sampled_logprobs: Tensor, mask: Tensor) -> Tensor:
    """Sum over tokens of |log-probability here - log-probability where it was drawn|."""
    return torch.where(mask, (logprobs.detach() - sampled_logprobs).abs(), 0.0).sum()


def value_losses(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """Half the squared error of the critic per token (B, T)."""
    return 0.5 * torch.where(mask, values - returns, 0.0).square()
