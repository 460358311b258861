"""The answers of a step, scored; with `overlap`, those of the next step are drawn while this one's are scored.

A slow teacher then does not idle the sampler. The answers of a step are drawn before the update of the step before it: they are
one step off-policy, and the loss weighs each token by truncated importance weights (`losses.rollout_weights`), as for a server.

Sampling runs in a second thread; scoring, progress and everything that is stored stay in the first. Answers that wait for their
step are part of the checkpoint: a run that is killed and continued does what the uninterrupted one does, to the byte on a CPU.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from medloop.errors import ConfigError
from medloop.models.rollout.sampler import Rollout
from medloop.train.rl.experience import Experience, RLPrompt
from medloop.train.rl.rollout import collect_rollouts, draw_rollouts, prompts_of_step, score_rollouts
from medloop.train.rl.state import PENDING, TrainState


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
    following = None
    with ThreadPoolExecutor(1, "rollouts") as pool:
        if state.step < config.steps:
            following = pool.submit(_draw_step, state, state.step + 1)
        experience = score_rollouts(state, prompts, config.samples, stream, rollouts)
    if following is not None:
        state.saved[PENDING] = {"step": state.step + 1, "rollouts": [_stored(rollout) for rollout in following.result()]}
    return experience


def check_overlap(state: TrainState) -> None:
    """A reward model on the GPU would work there while the sampler captures its CUDA graphs, which CUDA refuses."""
    config, given = state.plan.config, getattr(state.plan.scorer, "given", {})
    if config.overlap and state.policy.device.type == "cuda" and "model" in given:
        raise ConfigError(
            "overlap=true needs a reward without a reward model, because both would use the GPU at once",
            "Leave overlap out, or take the part 'model' out of the reward",
        )


def _draw_step(state: TrainState, step: int) -> list[Rollout]:
    config = state.plan.config
    return draw_rollouts(state, prompts_of_step(state, config.prompts_per_step, step), config.samples, f"{config.seed}:{step}")


def _waiting(state: TrainState, prompts: Sequence[RLPrompt]) -> list[Rollout] | None:
    """The answers that were drawn for this step; None without any, as after a step that was undone."""
    pending = state.saved.pop(PENDING, None)
    if pending is None or pending["step"] != state.step:
        return None
    samples = state.plan.config.samples
    repeated = [prompt for prompt in prompts for _ in range(samples)]
    return [_restored(stored, prompt) for stored, prompt in zip(pending["rollouts"], repeated, strict=True)]


def _stored(rollout: Rollout) -> dict[str, Any]:
    """Without the prompt, which the plan has."""
    return {
        "tokens": list(rollout.tokens), "logprobs": list(rollout.logprobs), "ended": rollout.ended, "stream": rollout.stream
    }  # fmt: skip


def _restored(stored: dict[str, Any], prompt: RLPrompt) -> Rollout:
    return Rollout(
        prompt.token_ids, tuple(stored["tokens"]), tuple(stored["logprobs"]), stored["ended"], stored["stream"]
    )  # fmt: skip
