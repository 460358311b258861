"""Rewards per token and advantages: PPO's GAE, and the groups of GRPO and GDPO. Pure functions; shapes as in maths.py."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from medloop.train.configs.rl_config import Scale
from medloop.train.rl.maths import kl_k1, masked_var


def last_token(mask: Tensor) -> Tensor:
    """True on the last real token of each row, (B, T); a row without tokens has none."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, columns, -1).amax(1, keepdim=True)
    return mask & (columns == last)


@dataclass(frozen=True)
class TokenRewards:
    """Rewards and k1 per token (B, T), and the mask of tokens to train on: rows without a score are out."""

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

    `present` (B,) says which scores exist. A missing score is not 0: its whole row leaves the mask. A truncated answer
    (`ended` (B,) False) pays `missing_eos_penalty`, on its last token.
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

    After the last real token the value is 0: the answer is over, or the length limit counts as its end (the usual choice,
    since the score has judged the truncated text). `bootstrap` (B,) puts a value there instead, for rows that were truncated
    only for convenience; give 0 for those that ended. Returns are advantages + old values.
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

    An easy reward with a wide spread cannot drown the others, and one missing reward (`present` (N, K)) leaves the
    sample's other parts as they are. https://arxiv.org/abs/2601.05242. The sum has mean 0 already, so the batch only divides.
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
