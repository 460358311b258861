"""Masked statistics, KL to the reference, the KL controller: the mathematics that PPO and GRPO share. Pure functions.

`advantages.py` has rewards per token and advantages, `losses.py` the losses. Shapes: B answers, T columns. A mask `(B, T)` is
boolean and True on the tokens that the policy wrote, its end token included. What a mask leaves out counts nowhere: not in a
numerator, not in a denominator, and its gradient is exactly 0, whatever number stands there. Log-probabilities are natural and
taken at the sampling temperature (`logprobs.py`).

No model, no file, no global state. `docs/stages/rl_maths.md` has the formulas and says which test holds which promise.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

BOUND = 20.0  # nats; e^20 is beyond any ratio worth learning from, and far below where float32 overflows


# Statistics


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` where the mask (same shape) is True; 0 for an empty mask."""
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)


def masked_var(values: Tensor, mask: Tensor) -> Tensor:
    """Unbiased variance where the mask is True; 0 for fewer than two values."""
    centred = torch.where(mask, values - masked_mean(values, mask), 0.0)
    return centred.square().sum() / (mask.sum() - 1).clamp(min=1)


def whiten(values: Tensor, mask: Tensor, *, shift_mean: bool = True, eps: float = 1e-8) -> Tensor:
    """Scale to standard deviation 1, and to mean 0 unless `shift_mean` is off; 0 where the mask is False.

    Call it on the whole batch, before it is split into mini-batches: each piece alone would get another mean. Rewards are
    whitened without the shift, because their sign matters. https://arxiv.org/abs/1909.08593
    """
    mean = masked_mean(values, mask)
    white = (values - mean) * torch.rsqrt(masked_var(values, mask) + eps)
    return torch.where(mask, white if shift_mean else white + mean, 0.0)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    """1 - Var(returns - values) / Var(returns): 1 is a perfect critic, 0 a constant one, below 0 a harmful one.

    None where the returns do not vary: there is nothing to explain.
    """
    spread = masked_var(returns, mask)
    return (1 - masked_var(returns - values, mask) / spread).item() if spread > 0 else None


# KL divergence from the reference, per token


def kl_k1(logprobs: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """log p - log ref, (B, T): unbiased, either sign; for the reward. http://joschu.net/blog/kl-approx.html"""
    return log_ratio(logprobs, reference, mask)


def kl_k3(logprobs: Tensor, reference: Tensor, mask: Tensor, old_logprobs: Tensor | None = None) -> Tensor:
    """ref/p - 1 - log(ref/p), (B, T): never negative, little variance; for the loss. http://joschu.net/blog/kl-approx.html

    With `old_logprobs`, those that the tokens were sampled under, it is multiplied by p/old. Only then is its gradient
    that of KL(p || ref), also on the first step, where p/old is 1 but has a gradient (DeepSeek-V3.2,
    https://arxiv.org/abs/2512.02556).
    """
    gap = log_ratio(reference, logprobs, mask)
    kl = torch.expm1(gap) - gap  # exp(gap) - 1 - gap would round below 0
    return kl if old_logprobs is None else kl * log_ratio(logprobs, old_logprobs, mask).exp()


def log_ratio(above: Tensor, below: Tensor, mask: Tensor) -> Tensor:
    """log(above / below), 0 outside the mask and bounded: both before any exp, or inf x 0 would turn a gradient of 0 into NaN."""
    return torch.where(mask, above - below, 0.0).clamp(-BOUND, BOUND)


# Control


@dataclass(frozen=True)
class AdaptiveKL:
    """The weight of the KL term, moved towards a target KL per answer, in nats; without a target it stays.

    The error is that of https://arxiv.org/abs/1909.08593, section 2.2; the step is its exponential, so that beta may move fast
    and stays positive. It falls more slowly than it rises, because every run starts at a KL of 0; and it is kept between `low`
    and `high`, because a beta that fell for the whole run could not rise in time.

    A value: `after` gives the next one, `asdict` and `AdaptiveKL(**...)` take it through JSON, as a checkpoint does.
    """

    beta: float
    target: float | None
    horizon: float = 200
    fall: float = 0.2
    rise: float = 1.0
    low: float = 0.0
    high: float = 1e9

    def after(self, kl: float, samples: int) -> AdaptiveKL:
        """beta x exp(e n / horizon), with e = KL / target - 1 kept between -`fall` and `rise`, after n `samples` of mean `kl`."""
        assert math.isfinite(kl), "the KL is not finite: skip this step instead of adapting beta"
        if self.target is None:
            return self
        assert samples <= self.horizon, f"the horizon must be at least {samples}, the answers of a step, or beta may jump"
        error = min(max(kl / self.target - 1, -self.fall), self.rise)
        beta = self.beta * math.exp(error * samples / self.horizon)
        return replace(self, beta=min(max(beta, self.low), self.high))

    def state(self) -> dict[str, float | None]:
        """Plain numbers for JSON; `AdaptiveKL(**state)` is the same controller."""
        return asdict(self)


def should_stop(approx_kl: float, target: float, factor: float = 1.5) -> bool:
    """Whether the policy has moved so far from the sampled one that this batch is spent."""
    return approx_kl > factor * target
