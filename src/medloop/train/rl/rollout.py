"""Collect experience: the prompts of a step, the policy's answers to them, and the scorer's rewards.

When too many rewards are missing the run stops, because what is left is no longer a sample of what the policy does.
"""

import random
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from medloop.contracts import Sample, Scorer
from medloop.errors import ConfigError, ResultError
from medloop.models.rollout.rollouts import Rollout
from medloop.models.rollout.sampler import OnRows
from medloop.train.rl.degraded import count_missing
from medloop.train.rl.experience import Experience, RLPrompt
from medloop.train.rl.losses import rollout_drift
from medloop.train.rl.state import TrainState
from medloop.train.rl.step import compute_logprobs
from medloop.train.runs.progress import StepReward

SCORED_AT_ONCE = 16  # answers; all answers to a prompt are always scored together
MAX_DRIFT = 0.25  # nats per token between a server and this policy; bfloat16 against float32 stays below 0.05


def prompts_of_step(state: TrainState, count: int, step: int | None = None) -> list[RLPrompt]:
    """The `count` prompts of this step, or of another one: each pass goes through all of them in a new order."""
    every, step = state.plan.prompts, state.step if step is None else step
    places = range((step - 1) * count, step * count)
    orders: dict[int, list[int]] = {}
    for place in places:
        epoch = place // len(every)
        if epoch not in orders:
            orders[epoch] = random.Random(f"{state.plan.config.seed}:{epoch}").sample(range(len(every)), len(every))
    # A small file may come round within one step: a prompt stands in it once.
    chosen = [every[orders[place // len(every)][place % len(every)]] for place in places]
    return list({prompt.id: prompt for prompt in chosen}.values())


def collect_rollouts(
    state: TrainState, prompts: Sequence[RLPrompt], samples: int, stream: str, *, held_out: bool = False
) -> Experience:
    """`samples` answers to each prompt, scored. The stream's name decides the answers: the same name, the same experience.

    A held-out check is a phase of its own: its first half is sampling, its second half scoring.
    """
    if not held_out:
        state.reward = None

    def report(done: int, total: int) -> None:
        state.phase(*(("HELD_OUT", done, 2 * total) if held_out else ("GENERATING", done, total)))

    rollouts = draw_rollouts(state, prompts, samples, stream, report)
    return score_rollouts(state, prompts, samples, stream, rollouts, held_out=held_out)


def draw_rollouts(
    state: TrainState, prompts: Sequence[RLPrompt], samples: int, stream: str, progress: OnRows | None = None
) -> list[Rollout]:
    """`samples` answers to each prompt, those to one prompt side by side."""
    config = state.plan.config
    repeated, streams = _repeated(prompts, samples, stream)
    return state.sampler(
        [prompt.token_ids for prompt in repeated], streams, max_new_tokens=config.max_new_tokens,
        temperature=config.temperature, batch_size=config.rollout_batch_size, progress=progress,
    )  # fmt: skip


def _repeated(prompts: Sequence[RLPrompt], samples: int, stream: str) -> tuple[list[RLPrompt], list[str]]:
    """The prompt of each answer, and the name of its random stream."""
    repeated = [prompt for prompt in prompts for _ in range(samples)]
    return repeated, [f"{stream}:{prompt.id}:{index % samples}" for index, prompt in enumerate(repeated)]


def score_rollouts(
    state: TrainState, prompts: Sequence[RLPrompt], samples: int, stream: str, rollouts: list[Rollout], *, held_out: bool = False
) -> Experience:
    """The answers with their rewards; what the teacher cost and how many are missing is counted."""
    config, scorer = state.plan.config, state.plan.scorer
    spent_before, checked_before = _teacher_usage(scorer), len(getattr(_teacher(scorer), "agreements", []))
    repeated, streams = _repeated(prompts, samples, stream)
    texts = [prompt.opening + state.policy.text(rollout.tokens) for prompt, rollout in zip(repeated, rollouts, strict=True)]
    experience = Experience(repeated, rollouts, texts, [])
    _score(state, experience, streams, samples, held_out=held_out)
    _check_missing(experience, config.max_missing)
    agreements = getattr(_teacher(scorer), "agreements", [])
    state.saved.setdefault("agreements", []).extend(agreements[checked_before:])
    for name, value in _teacher_usage(scorer).items():
        usage = state.saved.setdefault("usage", {}).setdefault(str(state.step), {})
        usage[name] = usage.get(name, 0) + value - spent_before[name]
    return experience


def _score(state: TrainState, experience: Experience, streams: Sequence[str], samples: int, *, held_out: bool) -> None:
    """Fill in the rewards, some prompts at a time, so that whoever watches sees how far it is and how good so far.

    Held-out answers are measured by the plain sum of a mix that is normalised in training: one z-score alone is always 0.
    """
    scorer, total = state.plan.scorer, len(experience.texts)
    if held_out:
        scorer = getattr(scorer, "unnormalised", scorer)
    # Ranks of two held-out checks cannot be compared, so there every answer stands alone and a teacher that ranks does not apply.
    is_alone = held_out and any(getattr(part, "compares", False) for part in getattr(scorer, "given", {}).values())
    answers = [
        Sample(id=name, question=prompt.question, answer=text, group=name if is_alone else prompt.id, context=prompt.context)
        for name, prompt, text in zip(streams, experience.prompts, experience.texts, strict=True)
    ]

    def report(done: int) -> None:
        state.phase(*(("HELD_OUT", total + done, 2 * total) if held_out else ("SCORING", done, total)))

    report(0)
    teacher = _teacher(scorer)
    if teacher is not None:
        teacher.progress = lambda done, of: report(total * done // max(of, 1))
    size = total if _needs_all(scorer) else samples * max(1, SCORED_AT_ONCE // samples)
    for start in range(0, total, size):
        experience.rewards.extend(scorer.score(answers[start : start + size]))
        if not held_out:
            state.reward = _reward_so_far(scorer, experience)
        report(len(experience.rewards))
    count_missing(state.saved, experience.rewards, getattr(scorer, "given", {}))
    state.plan.on_scored(answers, experience.rewards)


def _needs_all(scorer: Scorer) -> bool:
    """Whether a score depends on the others of its batch: normalised over it, or by a teacher that is probed now and then."""
    normalise = getattr(getattr(scorer, "config", None), "normalise", "none")
    return normalise == "batch" or _teacher(scorer) is not None


def _reward_so_far(scorer: Scorer, experience: Experience) -> StepReward:
    n = len(experience.rewards)
    scored = Experience(experience.prompts[:n], experience.rollouts[:n], experience.texts[:n], experience.rewards)
    summary = scored.summary()
    return StepReward(summary["reward"], summary["parts"], weights_of(scorer, scored))


def weights_of(scorer: Any, experience: Experience) -> dict[str, float]:
    """The weights in force: those that move, of a scorer with dynamic weights; else the mean of those used."""
    return dict(scorer.weights) if hasattr(scorer, "end_round") else experience.mean_part_weights()


def _check_missing(experience: Experience, max_missing: float) -> None:
    missing = 1 - float(experience.reward_tensor()[1].float().mean())
    if missing > max_missing:
        reasons = (reward.reason for reward in experience.rewards if reward.value is None and reward.reason)
        raise ResultError(
            f"{missing:.0%} of the answers have no reward ({next(reasons, 'no reason given')[:160]}); at most {max_missing:.0%} "
            "may lack one",
            "Repair the scorer and run the same command: it continues from the last checkpoint",
        )


def _teacher(scorer: Scorer) -> Any:
    """The teacher among a scorer's parts, also when only a part of its verdict is taken (`teacher.risk`); None without one."""
    given = getattr(scorer, "given", {})
    view = next((part for name, part in given.items() if name.startswith("teacher.")), None)
    return given.get("teacher") or getattr(view, "teacher", None)


def _teacher_usage(scorer: Scorer) -> dict[str, float]:
    """What the teacher among a scorer's parts has cost so far; empty without one."""
    teacher = _teacher(scorer)
    return {} if teacher is None else {"calls": teacher.calls, "tokens": teacher.tokens, "usd": teacher.spent}


def corrects_drift(state: TrainState) -> bool:
    """Whether answers count by how likely they are here: those of a server, of a sampler in low precision (a GPU's, or
    `rollout_dtype`), and those that were drawn before the last update (`overlap`)."""
    config = state.plan.config
    low = state.policy.device.type == "cuda" or config.rollout_dtype == "bfloat16"
    return low or bool(config.rollout_url) or getattr(config, "overlap", False)


def mean_drift(experience: Experience, logprobs: Tensor) -> float:
    """How far the sampler's log-probabilities are from the trainer's own, per token."""
    mask = experience.completion_mask(logprobs.device)
    return float(rollout_drift(logprobs, experience.sampled_logprobs(logprobs.device), mask) / mask.sum())


def check_rollout_server(state: TrainState) -> None:
    """Refuse a server with other weights, other positions or raw log-probabilities before training on its samples."""
    config, prompt = state.plan.config, state.plan.prompts[0]
    if not config.rollout_url:
        return
    rollouts = state.sampler(
        [prompt.token_ids] * 4, [f"check:{n}" for n in range(4)], max_new_tokens=min(32, config.max_new_tokens),
        temperature=config.temperature,
    )  # fmt: skip
    experience = Experience([prompt] * 4, rollouts, [""] * 4, [])
    drift = mean_drift(experience, compute_logprobs(state, experience).logprobs)
    if drift > MAX_DRIFT:
        raise ConfigError(
            f"The rollout server does not sample this policy: log-probabilities differ by {drift:.2f} per token",
            f"Serve the weights of {config.model} with --logprobs-mode processed_logprobs",
        )
