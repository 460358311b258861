"""What holds PPO near its reference: a weight that steers to a target KL, updates that are shortened, and an end of the run.

1. `kl_controller`: the weight beta of the KL in the reward rises fast while the KL is above the target, and falls slowly below.
2. `limit_update`: an update that would take the policy beyond the target is shortened, as TRPO does, and the learning rate falls
   for the next ones. Adam's steps are as large as the rate, whatever the reward says: no beta alone can hold a target then. A
   policy that is beyond it all the same, because its new answers differ from those it was measured on, is moved back.
3. `stop_reason`: a KL beyond `abort_kl` x target ends the run, with a checkpoint and the reason wherever the result is read.

All three mean the policy as it is before the update. With `overlap`, the answers that are learnt are of the policy before that
one; the KL is then measured on those that wait for the next step, which this policy has just drawn (`fresh_kl_answers`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from medloop.train.configs.rl_config import PPOConfig
from medloop.train.rl.critic import CriticMoments
from medloop.train.rl.experience import Experience
from medloop.train.rl.maths import AdaptiveKL, kl_k1, kl_k3
from medloop.train.rl.overlap import next_answers
from medloop.train.rl.state import TrainState
from medloop.train.rl.step import compute_logprobs

UPDATE_LIMIT = 1.0  # times target_kl
SHORTEST = 1 / 64  # of an update; one that is still too long is left out
PULL = 0.8  # of the way from the reference to the policy is kept in each step back
RATE_FALL, RATE_RISE = 0.25, 1.25  # the rate falls with the share of a shortened update, at most to this; then it rises again
BETA_RANGE = (0.1, 1000.0)  # times the first beta: further out it would take too long to come back


def kl_controller(config: PPOConfig) -> AdaptiveKL:
    """The controller at the start of a run; without a target its beta stays."""
    low, high = (factor * config.beta for factor in BETA_RANGE)
    horizon = config.horizon or 1.5 * config.prompts_per_step * config.samples
    return AdaptiveKL(config.beta, config.target_kl, horizon, low=low, high=high)


@dataclass(frozen=True)
class KLAnswers:
    """Answers that the KL is measured on, and the log-probabilities (N, C) of their tokens: where they were `drawn`, by the
    policy `now`, before the update, and by the reference. Where `drawn` is `now`, the policy has drawn them itself."""

    experience: Experience
    drawn: Tensor
    now: Tensor
    reference: Tensor
    mask: Tensor

    @property
    def kl(self) -> float | None:
        """Of the policy before the update, nats per answer; None without an answer. Of answers of another policy: weighted."""
        if not bool(self.mask.any()):
            return None
        return self._mean(kl_k1(self.now, self.reference, self.mask)) if self.drawn is self.now else self.kl_of(self.now)

    def kl_of(self, logprobs: Tensor) -> float:
        """Of a policy near it with these log-probabilities."""
        return self._mean(kl_k3(logprobs, self.reference, self.mask, old_logprobs=self.drawn))

    def _mean(self, kl: Tensor) -> float:
        return float(kl.sum()) / max(int(self.mask.any(1).sum()), 1)


def fresh_kl_answers(state: TrainState) -> KLAnswers | None:
    """The answers that the policy drew for the next step, while those of this step were scored; None without any."""
    waiting = next_answers(state)
    if waiting is None:
        return None
    now = compute_logprobs(state, waiting).logprobs
    with state.policy.reference():
        reference = compute_logprobs(state, waiting).logprobs
    return KLAnswers(waiting, now, now, reference, waiting.completion_mask(now.device))


def limit_update(
    state: TrainState, before: dict[str, Tensor], experience: Experience, measured: KLAnswers, moments: CriticMoments
) -> dict[str, float]:
    """Shorten the update of the adapter from `before` until its KL is within the limit; if none of it is, go back further.

    The KL is that of the `measured` answers, in nats per answer: an estimate, because the policy would now write others.
    Returns it, the share of the update that was kept, and the share of the learning rate for the next step. `moments` are of
    `experience` and of the policy as it is then.
    """
    target, own = state.plan.config.target_kl, measured.experience is experience
    if target is None:
        compute_logprobs(state, experience, moments=moments)
        return {}

    def kl_now() -> float:
        return measured.kl_of(compute_logprobs(state, measured.experience, moments=moments if own else None).logprobs)

    after = adapter_weights(state)
    share, kept = 1.0, 1.0
    while (kl := kl_now()) > UPDATE_LIMIT * target:
        if share > 0:
            share = share / 2 if share > SHORTEST and measured.kl_of(measured.now) <= UPDATE_LIMIT * target else 0.0
            _move(state, {name: torch.lerp(before[name], after[name], share) for name in before})
        else:
            kept *= PULL
            start = state.policy.reference_weights()
            _move(state, {name: torch.lerp(start[name], before[name], kept) for name in before})
    if not own:
        compute_logprobs(state, experience, moments=moments)
    rate = state.saved.get("rate_share", 1.0)
    state.saved["rate_share"] = min(1.0, rate * RATE_RISE) if share == 1 else rate * max(share, RATE_FALL)
    return {"kl_after": kl, "update_share": share, "pulled_back": 1 - kept, "rate_share": state.saved["rate_share"]}


def adapter_weights(state: TrainState) -> dict[str, Tensor]:
    """A copy of the policy's weights, without the critic's."""
    return {name: p.detach().clone() for name, p in state.policy.trained().items() if not name.startswith("value_head")}


@torch.no_grad()
def _move(state: TrainState, weights: dict[str, Tensor]) -> None:
    for name, parameter in state.policy.trained().items():
        if name in weights:
            parameter.copy_(weights[name])


def stop_reason(config: PPOConfig, kl: float | None, step: int) -> str | None:
    """Why the run must end here, in a sentence; None while the KL is within bounds."""
    if kl is None or config.target_kl is None or config.abort_kl is None or kl <= config.abort_kl * config.target_kl:
        return None
    bound = f"{config.abort_kl:g} times its target of {config.target_kl:g}"
    return (
        f"STOPPED at step {step} of {config.steps}: the KL to the reference was {kl:.2f} nats per answer, above {bound} "
        "(abort_kl). Lower learning_rate, or raise beta or target_kl."
    )
