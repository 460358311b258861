"""The answers of a step, scored; with `overlap`, those of the next step are drawn while this one's are scored.

A slow teacher then does not idle the sampler. The answers of a step are drawn before the update of the step before it: they are
one step off-policy, and the loss weighs each token by truncated importance weights (`losses.rollout_weights`), as for a server.

Sampling runs in a second thread; scoring, progress and everything that is stored stay in the first. Answers that wait for their
step are part of the checkpoint: a run that is killed and continued does what the uninterrupted one does, to the byte on a CPU.
"""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from medloop.contracts.score import ABSENT
from medloop.errors import ConfigError
from medloop.models import runtime
from medloop.models.rollout.rollouts import Rollout
from medloop.models.rollout.sampler import OnRows
from medloop.settings import Settings
from medloop.train.rl.experience import Experience, RLPrompt
from medloop.train.rl.rollout import collect_rollouts, draw_rollouts, prompts_of_step, score_rollouts
from medloop.train.rl.state import PENDING, TrainState
from medloop.train.runs.find_run import objective_of

ON_REWARD_DEVICE = ("model", "rel", "faith")  # parts of a reward that compute with a network
LOOK_S = 0.5  # between two reports of how far drawing is, where scoring was faster
log = logging.getLogger(__name__)


def step_experience(state: TrainState) -> Experience:
    """The scored answers to the prompts of this step."""
    config = state.plan.config
    prompts, stream = prompts_of_step(state, config.prompts_per_step), f"{config.seed}:{state.step}"
    if not config.overlap:
        return collect_rollouts(state, prompts, config.samples, stream)
    state.reward = None
    rollouts = _waiting(state, prompts)
    if rollouts is None:
        rollouts = draw_rollouts(
            state, prompts, config.samples, stream, lambda done, total: state.phase("GENERATING", done, total)
        )
    if state.step == config.steps:
        return score_rollouts(state, prompts, config.samples, stream, rollouts)
    experience, following = _score_and_draw(state, prompts, stream, rollouts)
    if following is not None:
        state.saved[PENDING] = {"step": state.step + 1, "rollouts": [_stored(rollout) for rollout in following]}
    return experience


def next_answers(state: TrainState) -> Experience | None:
    """The answers that wait for the next step, not scored yet: the policy before this step's update has drawn them."""
    pending = state.saved.get(PENDING)
    if pending is None:
        return None
    config = state.plan.config
    prompts = prompts_of_step(state, config.prompts_per_step, pending["step"])
    repeated, rollouts = _restored(pending, prompts, config.samples)
    return Experience(repeated, rollouts, [""] * len(rollouts), [])


def check_overlap(state: TrainState, settings: Settings) -> None:
    """A reward model or an encoder on the GPU would work there while the sampler captures its CUDA graphs, which CUDA refuses."""
    config, objective = state.plan.config, objective_of(state.plan.scorer)
    if not config.overlap or config.rollout_url or state.policy.device.type != "cuda" or objective is None:
        return
    used = [name for name in ON_REWARD_DEVICE if name in objective.parts and objective.parts[name].version != ABSENT]
    if used and runtime.device_of(settings, "reward.device").type == "cuda":
        raise ConfigError(
            f"overlap=true needs a reward that does not use the GPU, but {' and '.join(used)} would (reward.device), beside the "
            "sampler",
            "Set reward.device to cpu, or leave overlap out",
        )


class _GivenUpError(Exception):
    """Nobody waits for the answers any more."""


def _score_and_draw(
    state: TrainState, prompts: Sequence[RLPrompt], stream: str, rollouts: list[Rollout]
) -> tuple[Experience, list[Rollout] | None]:
    """The scored answers of this step, and those of the next; None where they could not be drawn: the next step tries again.

    Where scoring fails, drawing ends with the batch it is at.
    """
    drawn, given_up = (0, 0), threading.Event()

    def progress(done: int, total: int) -> None:
        nonlocal drawn
        drawn = (done, total)
        if given_up.is_set():
            raise _GivenUpError

    with ThreadPoolExecutor(1, "rollouts") as pool:
        following = pool.submit(_draw_step, state, state.step + 1, progress)
        try:
            experience = score_rollouts(state, prompts, state.plan.config.samples, stream, rollouts)
            while wait([following], LOOK_S).not_done:
                state.phase("GENERATING", *drawn)
        except BaseException:
            given_up.set()
            raise
    if (error := following.exception()) is None:
        return experience, following.result()
    log.warning(
        "The answers of step %d could not be drawn beside the scores (%s): step %d is learnt, then they are drawn again.",
        state.step + 1, type(error).__name__, state.step,
    )  # fmt: skip
    return experience, None


def _draw_step(state: TrainState, step: int, progress: OnRows) -> list[Rollout]:
    config = state.plan.config
    prompts = prompts_of_step(state, config.prompts_per_step, step)
    return draw_rollouts(state, prompts, config.samples, f"{config.seed}:{step}", progress)


def _waiting(state: TrainState, prompts: Sequence[RLPrompt]) -> list[Rollout] | None:
    """The answers that were drawn for this step; None without any, as after a step that was undone."""
    pending = state.saved.pop(PENDING, None)
    if pending is None or pending["step"] != state.step:
        return None
    return _restored(pending, prompts, state.plan.config.samples)[1]


def _stored(rollout: Rollout) -> dict[str, Any]:
    """Without the prompt, which the plan has."""
    return {
        "tokens": list(rollout.tokens), "logprobs": list(rollout.logprobs), "ended": rollout.ended, "stream": rollout.stream
    }  # fmt: skip


def _restored(pending: dict[str, Any], prompts: Sequence[RLPrompt], samples: int) -> tuple[list[RLPrompt], list[Rollout]]:
    """The prompt of each answer, and the answers."""
    repeated = [prompt for prompt in prompts for _ in range(samples)]
    return repeated, [
        Rollout(prompt.token_ids, tuple(stored["tokens"]), tuple(stored["logprobs"]), stored["ended"], stored["stream"])
        for stored, prompt in zip(pending["rollouts"], repeated, strict=True)
    ]
