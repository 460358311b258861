"""The mathematics of PPO and GRPO: masks, KL, rewards per token, advantages, losses, the KL controller. Pure functions.

Shapes: B answers, T columns. A mask `(B, T)` is boolean and True on the tokens the policy wrote, its end token included.
What a mask leaves out counts nowhere: not in a numerator, not in a denominator, and its gradient is exactly 0, whatever
number stands there. Log-probabilities are natural and taken at the sampling temperature (`medloop.train.rl.logprobs`).

No model, no file, no global state. `docs/stages/rl_maths.md` has the formulas and says which test holds which promise.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from medloop.train.configs.rl_config import Aggregation as Aggregation
from medloop.train.configs.rl_config import Scale as Scale

BOUND = 20.0  # nats; e^20 is beyond any ratio worth learning from, and far below where float32 overflows


# Masks


def completion_mask(tokens: Tensor, eos_ids: Sequence[int], lengths: Tensor | None = None) -> Tensor:
    """True up to and including the first end token, (B, T) from completions `tokens` (B, T).

    It goes by place, not by id: what follows the first end token is padding even if it reads like text, and a pad id that
    is also an end id works. `lengths` (B,) is for rows that were cut before the last column without an end token.
    """
    is_end = torch.isin(tokens, torch.tensor(list(eos_ids), device=tokens.device, dtype=tokens.dtype))
    ends_before = is_end.cumsum(1) - is_end.long()
    mask = ends_before == 0
    if lengths is not None:
        mask &= torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
    return mask


def has_ended(tokens: Tensor, mask: Tensor, eos_ids: Sequence[int]) -> Tensor:
    """Which answers (B,) came to their end token; the others were cut."""
    is_end = torch.isin(tokens, torch.tensor(list(eos_ids), device=tokens.device, dtype=tokens.dtype))
    return (is_end & mask).any(1)


def position_ids(mask: Tensor) -> Tensor:
    """Positions (B, T) for the attention mask (B, T) of left-padded rows: the first real token is 0, padding is 0 too.

    Absolute embeddings (GPT-2) are nats off without it.
    """
    return (mask.long().cumsum(1) - 1).clamp(min=0)


def last_token(mask: Tensor) -> Tensor:
    """True on the last real token of each row, (B, T); a row without tokens has none."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, columns, -1).amax(1, keepdim=True)
    return mask & (columns == last)


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

    Call it on the whole batch, before it is cut into mini-batches: each piece alone would get another mean. Rewards are
    whitened without the shift, for their sign is the message. https://arxiv.org/abs/1909.08593
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
    return _log_ratio(logprobs, reference, mask)


def kl_k3(logprobs: Tensor, reference: Tensor, mask: Tensor, old: Tensor | None = None) -> Tensor:
    """ref/p - 1 - log(ref/p), (B, T): never negative, little variance; for the loss. http://joschu.net/blog/kl-approx.html

    With `old`, the log-probabilities the tokens were sampled under, it is multiplied by p/old. Only then is its gradient
    that of KL(p || ref), also on the first step, where p/old is 1 but has a gradient (DeepSeek-V3.2,
    https://arxiv.org/abs/2512.02556).
    """
    gap = _log_ratio(reference, logprobs, mask)
    kl = torch.expm1(gap) - gap  # exp(gap) - 1 - gap would round below 0
    return kl if old is None else kl * _log_ratio(logprobs, old, mask).exp()


def _log_ratio(above: Tensor, below: Tensor, mask: Tensor) -> Tensor:
    """0 outside the mask, and bounded: both before any exp, or inf x 0 would make a NaN of a gradient that is 0."""
    return torch.where(mask, above - below, 0.0).clamp(-BOUND, BOUND)


# Rewards and advantages


@dataclass(frozen=True)
class TokenRewards:
    """Rewards and k1 per token (B, T), and the mask of what may be learnt from: rows without a score are out."""

    rewards: Tensor
    kl: Tensor
    mask: Tensor


def token_rewards(
    scores: Tensor,
    logprobs: Tensor,
    reference: Tensor,
    mask: Tensor,
    *,
    present: Tensor,
    ended: Tensor,
    beta: float,
    missing_eos_penalty: float = 0.0,
) -> TokenRewards:
    """PPO's reward: -beta x k1 on each token, plus the score (B,) on the last one. https://arxiv.org/abs/1909.08593

    `present` (B,) says which scores were given. A missing score is not 0: its row leaves the mask as a whole. An answer
    that was cut (`ended` (B,) False) pays `missing_eos_penalty`, on its last token.
    """
    assert bool(torch.isfinite(scores[present]).all()), "a present score is not finite: mark it missing"
    mask = mask & present[:, None]
    kl = kl_k1(logprobs, reference, mask)
    outcome = scores - missing_eos_penalty * (~ended).to(scores.dtype)
    rewards = torch.where(last_token(mask), outcome[:, None], 0.0) - beta * kl
    return TokenRewards(rewards, kl, mask)


def gae(
    rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float = 1.0, lam: float = 0.95, bootstrap: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Advantages and returns, both (B, T), from rewards and old values (B, T). https://arxiv.org/abs/1506.02438

    After the last real token the value is 0: the answer is over, or the length limit is taken as its end (the usual choice
    for answers, since the score has judged the cut text). `bootstrap` (B,) puts a value there instead, for rows that were
    cut only for convenience; give 0 for those that ended. Returns are advantages + old values.
    """
    advantages = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[:, 0]) if bootstrap is None else bootstrap
    carried = torch.zeros_like(following)
    for t in reversed(range(rewards.shape[1])):
        real = mask[:, t]
        delta = rewards[:, t] + gamma * following - values[:, t]
        here = delta + gamma * lam * carried
        advantages[:, t] = torch.where(real, here, 0.0)
        carried, following = torch.where(real, here, carried), torch.where(real, values[:, t], following)
    return advantages, torch.where(mask, advantages + values, 0.0)


@dataclass(frozen=True)
class GroupAdvantages:
    """Advantages (N,), and how many groups there were, how many had no signal, how many samples had no reward."""

    values: Tensor
    groups: int
    flat_groups: int
    missing: int


def group_size(groups: Sequence[Hashable]) -> int:
    """How many samples each prompt has; `groups` names the prompt of each sample, in order."""
    runs = [(name, len(list(rows))) for name, rows in groupby(groups)]
    assert len({name for name, _ in runs}) == len(runs), "the samples of a prompt must stand together: sort them by prompt"
    sizes = {size for _, size in runs}
    assert len(sizes) == 1, f"each prompt needs the same number of samples, here there are {sorted(sizes)}"
    return sizes.pop()


def group_advantages(
    rewards: Tensor, groups: Sequence[Hashable], *, present: Tensor, scale: Scale = "group", eps: float = 1e-4
) -> GroupAdvantages:
    """Reward (N,) minus the mean of its group, divided by a standard deviation. https://arxiv.org/abs/2402.03300

    `scale`: `group` (GRPO), `batch` (one spread for all), `none` (Dr. GRPO, https://arxiv.org/abs/2503.20783). Samples not
    `present` (N,) have advantage 0 and no part in any mean or spread. A group whose rewards are all equal, or that has
    fewer than two, is flat: exactly 0, not rounding errors divided by `eps`.
    """
    size = group_size(groups)
    centred, spread, flat = _centre(rewards.view(-1, size), present.view(-1, size))
    if scale == "batch":
        spread = masked_var(rewards, present).sqrt()
    values = centred if scale == "none" else centred / (spread + eps)
    return GroupAdvantages(values.view(-1), len(flat), int(flat.sum()), int((~present).sum()))


def gdpo_advantages(
    rewards: Tensor, groups: Sequence[Hashable], weights: Tensor, *, present: Tensor, eps: float = 1e-4
) -> GroupAdvantages:
    """Several rewards (N, K): each normalised in its group, then summed with weights (K,), then scaled over the batch.

    An easy reward with a wide spread cannot drown the others, and one missing reward (`present` (N, K)) takes nothing from
    its sample's other parts. https://arxiv.org/abs/2601.05242. The sum has mean 0 already, so the batch only divides.
    """
    assert bool((weights >= 0).all()), f"reward weights must not be negative, here they are {weights.tolist()}"
    size = group_size(groups)
    total, all_flat = torch.zeros_like(rewards[:, 0]), torch.ones(len(groups) // size, dtype=torch.bool, device=rewards.device)
    for k, weight in enumerate(weights):
        centred, spread, flat = _centre(rewards[:, k].view(-1, size), present[:, k].view(-1, size))
        total = total + weight * (centred / (spread + eps)).view(-1)
        all_flat &= flat
    scored = present.any(1)
    values = total / (masked_var(total, scored).sqrt() + eps)
    return GroupAdvantages(values, len(all_flat), int(all_flat.sum()), int((~scored).sum()))


def _centre(rewards: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of (G, n): rewards less their group's mean (G, n), the unbiased spread (G, 1), which groups are flat (G,)."""
    assert bool(torch.isfinite(rewards[present]).all()), "a present reward is not finite: mark it missing"
    count = present.sum(1, keepdim=True)
    known = torch.where(present, rewards, 0.0)
    centred = torch.where(present, rewards - known.sum(1, keepdim=True) / count.clamp(min=1), 0.0)
    low, high = torch.where(present, rewards, math.inf).amin(1), torch.where(present, rewards, -math.inf).amax(1)
    flat = low >= high  # all equal, one alone, or none at all (inf > -inf)
    centred = torch.where(flat[:, None], 0.0, centred)
    spread = (centred.square().sum(1, keepdim=True) / (count - 1).clamp(min=1)).sqrt()
    return centred, spread, flat


# Losses


@dataclass(frozen=True)
class Window:
    """What one optimizer step divides by: counts over all its micro-batches, so that cutting it otherwise changes nothing.

    Rows without a token (cut answers that are not learnt from, missing scores) are not counted.
    """

    rows: float
    tokens: float
    max_length: int

    @classmethod
    def of(cls, mask: Tensor, max_length: int, steps: int = 1) -> Window:
        """From the mask (B, T) of the step; or of a whole rollout that is spent in `steps` steps, as DAPO counts."""
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
    kept = torch.where(mask, per_token, 0.0)
    if kind == "grpo":
        return (kept.sum(1) / mask.sum(1).clamp(min=1)).sum() / max(window.rows, 1)
    if kind == "dr_grpo":
        return kept.sum() / (max(window.rows, 1) * window.max_length)
    return kept.sum() / max(window.tokens, 1)


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
    old: Tensor,
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
    whose ratio ran away, to c |A|. `clipped_low` and `clipped_high` count tokens whose gradient was cut by min. `weights` (B, T)
    are those of `rollout_weights`, for samples of another engine.
    """
    high = clip_low if clip_high is None else clip_high
    advantages = torch.where(mask, advantages[:, None] if advantages.dim() == 1 else advantages, 0.0)
    log_ratio = _log_ratio(logprobs, old, mask)
    ratio = log_ratio.exp()
    losses = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + high) * advantages)
    if dual_clip is not None:
        losses = torch.where(advantages < 0, torch.minimum(losses, -dual_clip * advantages), losses)
    if weights is not None:
        losses = losses * weights
    with torch.no_grad():
        stats = PolicyStats(
            tokens=mask.sum(),
            ratio=torch.where(mask, ratio, 0.0).sum(),
            approx_kl=(torch.expm1(log_ratio) - log_ratio).sum(),
            clipped_low=((ratio < 1 - clip_low) & (advantages < 0)).sum(),
            clipped_high=((ratio > 1 + high) & (advantages > 0)).sum(),
        )
    return losses, stats


def rollout_weights(own: Tensor, sampled: Tensor, mask: Tensor, cap: float) -> Tensor:
    """How much a token of another engine counts (B, T): its probability here over that there, at most `cap`, without gradient.

    An engine with other kernels or number types draws from a slightly other policy; truncated importance sampling takes the
    difference out. https://fengyao.notion.site/off-policy-rl
    """
    return torch.where(mask, _log_ratio(own.detach(), sampled, mask).exp().clamp(max=cap), 0.0)


def rollout_drift(own: Tensor, sampled: Tensor, mask: Tensor) -> Tensor:
    """Sum over tokens of |log-probability here - log-probability where it was drawn|."""
    return torch.where(mask, (own.detach() - sampled).abs(), 0.0).sum()


def value_losses(values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float = 0.2) -> Tensor:
    """Half the squared error per token (B, T): the worse of the value and the value kept within `clip` of the old one.

    `aggregate(..., "dapo")` makes it a mean per token. https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details
    """
    values, old_values, returns = (torch.where(mask, x, 0.0) for x in (values, old_values, returns))
    near = old_values + (values - old_values).clamp(-clip, clip)
    return 0.5 * torch.maximum((values - returns).square(), (near - returns).square())


# Control


@dataclass(frozen=True)
class AdaptiveKL:
    """The weight of the KL term, moved towards a target KL per answer, in nats. https://arxiv.org/abs/1909.08593, section 2.2

    A value: `after` gives the next one, `asdict` and `AdaptiveKL(**...)` take it through JSON, as a checkpoint does.
    """

    beta: float
    target: float
    horizon: float = 10_000
    clip: float = 0.2

    def after(self, kl: float, samples: int) -> AdaptiveKL:
        """beta x (1 + e n / horizon), with e = KL / target - 1 kept within +-`clip`, after `samples` answers of mean `kl`."""
        assert math.isfinite(kl), "the KL is not finite: skip this step instead of steering by it"
        assert self.clip * samples < self.horizon, f"the horizon must be above {self.clip * samples:g}, or beta may turn negative"
        error = min(max(kl / self.target - 1, -self.clip), self.clip)
        return replace(self, beta=self.beta * (1 + error * samples / self.horizon))

    def state(self) -> dict[str, float]:
        """Plain numbers for JSON; `AdaptiveKL(**state)` is the same controller."""
        return asdict(self)


def should_stop(approx_kl: float, target: float, factor: float = 1.5) -> bool:
    """Whether the policy has moved so far from the sampled one that this batch is spent."""
    return approx_kl > factor * target


def is_finite(loss: Tensor, parameters: Iterable[torch.nn.Parameter] = ()) -> bool:
    """Whether the loss and every gradient are finite; if not, the step must be skipped."""
    found = [torch.isfinite(loss).all(), *(torch.isfinite(p.grad).all() for p in parameters if p.grad is not None)]
    return bool(torch.stack(found).all())  # one wait for the device, not one per parameter
