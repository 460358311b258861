"""What a step of RL is made of: the optimizer step in micro-batches, log-probabilities without gradients, and its metrics.

Out of memory halves the micro-batches and does the same step again in smaller pieces. A step whose loss, gradient or
log-probabilities are not finite is undone and counted; the third ends the run.
"""

import logging
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from medloop.errors import ResultError
from medloop.train.rl import samples
from medloop.train.rl.audit import CAUTIOUS, watched
from medloop.train.rl.experience import Experience
from medloop.train.rl.policy import Batch, PolicyOutput
from medloop.train.rl.state import TrainState

log = logging.getLogger(__name__)
MAX_SKIPPED = 3  # steps that may end in a number that is not finite


class HiddenMoments(Protocol):
    """What a critic remembers of a pass over the answers."""

    def clear(self) -> None: ...

    def add(self, rows: list[int], hidden: Tensor) -> None: ...


class NonFiniteError(Exception):
    """A loss, a gradient or a log-probability was NaN or infinite; the step must not count."""


def optimizer_step(
    state: TrainState, rows: Sequence[int], experience: Experience, compute_loss: Callable[[list[int], Batch], Tensor]
) -> float:
    """One optimizer step over some answers. `compute_loss` gives a micro-batch's share of the loss, so that shares add up.

    A loss or gradient that is not finite raises NonFiniteError before any weight has moved.
    """
    order = _order(state, rows, experience)
    while True:
        state.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=state.policy.device)
        try:
            for part, batch in _micro_batches(state, order, experience):
                loss = compute_loss(part, batch)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
            break
        except torch.OutOfMemoryError:
            _halve_micro_batches(state)
    norm = torch.nn.utils.clip_grad_norm_(state.policy.trained().values(), state.plan.config.max_grad_norm)
    loss_and_norm = torch.stack([total, norm]).tolist()  # one wait for the device
    if not all(map(math.isfinite, loss_and_norm)):
        state.optimizer.zero_grad(set_to_none=True)
        raise NonFiniteError
    state.optimizer.step()
    # Fused optimizers write without counting it, and the fast decoder reads the adapter again when the count has changed.
    torch.autograd.graph.increment_version(list(state.policy.trained().values()))
    return float(loss_and_norm[0])


@torch.no_grad()
def compute_logprobs(
    state: TrainState, experience: Experience, *, values: bool = False, moments: HiddenMoments | None = None
) -> PolicyOutput:
    """Every answer under the active adapter, without gradients: (N, C), in the order of the answers.

    `moments` get the hidden states of this pass, micro-batch by micro-batch.
    """
    order = _order(state, range(len(experience.rollouts)), experience)
    columns = max(len(rollout.tokens) for rollout in experience.rollouts)
    while True:
        logprobs = torch.zeros(len(order), columns, device=state.policy.device)
        all_values = torch.zeros_like(logprobs) if values else None
        if moments is not None:
            moments.clear()
        try:
            for part, batch in _micro_batches(state, order, experience):
                output = state.policy.forward(batch, temperature=state.plan.config.temperature, values=values)
                logprobs[part, : batch.mask.shape[1]] = output.logprobs
                if all_values is not None and output.values is not None:
                    all_values[part, : batch.mask.shape[1]] = output.values
                if moments is not None and output.hidden is not None:
                    moments.add(part, output.hidden)
            break
        except torch.OutOfMemoryError:
            _halve_micro_batches(state)
    if not bool(torch.isfinite(logprobs).all()):
        raise NonFiniteError
    return PolicyOutput(logprobs, None, all_values)


def _order(state: TrainState, rows: Sequence[int], experience: Experience) -> list[int]:
    """Rows of like length side by side, because they are padded; for the fast forward, rows of one prompt, which they share."""

    def key(row: int) -> tuple[Any, ...]:
        rollout = experience.rollouts[row]
        return (
            (len(rollout.prompt), rollout.prompt, row) if state.policy.fast else (len(rollout.prompt) + len(rollout.tokens), row)
        )

    return sorted(rows, key=key)


def _micro_batches(state: TrainState, rows: Sequence[int], experience: Experience) -> Iterator[tuple[list[int], Batch]]:
    for start in range(0, len(rows), state.micro_batch_size):
        part = list(rows[start : start + state.micro_batch_size])
        rollouts = [experience.rollouts[row] for row in part]
        yield part, state.policy.collate(rollouts)


def _halve_micro_batches(state: TrainState) -> None:
    torch.cuda.empty_cache()
    if state.micro_batch_size == 1:
        limit = state.plan.config.memory_gb
        within = "" if limit is None else f" within memory_gb={limit:g}"
        more = "" if limit is None else "Raise memory_gb with --replace, or l"
        raise ResultError(
            f"There is not enough memory for a single answer{within}",
            f"{more or 'L'}ower max_new_tokens, or use load_in_4bit or a smaller model",
        )
    state.micro_batch_size //= 2
    log.warning("Memory ran out: %d answers at once in an update from here on.", state.micro_batch_size)


def try_step(state: TrainState, step: Callable[[], None]) -> None:
    """Do a step; one that is not finite is undone and counted."""
    snapshot = state.snapshot()
    try:
        step()
    except NonFiniteError:
        state.rollback(snapshot)
        count_skipped_step(state)


def count_skipped_step(state: TrainState) -> None:
    """One more step that did not count; the third ends the run."""
    state.saved["skipped_steps"] += 1
    state.log("TRAINING", extra={"skipped_steps": state.saved["skipped_steps"]})
    if state.saved["skipped_steps"] >= MAX_SKIPPED:
        raise ResultError(
            f"{MAX_SKIPPED} steps ended in numbers that are not finite, the last one at step {state.step}",
            "Lower the learning rate or the reward's bounds; the last good checkpoint is kept",
        )


def set_learning_rate(state: TrainState, done: float) -> float:
    """The learning rate after the share `done` of the run: it falls from the first rate to 0 along a line.

    PPO lowers it where updates were too long for its target KL, and the audit where triage looks worse than at the start.
    """
    rate = float(state.learning_rate * (1 - done) * state.saved.get("rate_share", 1.0) * (CAUTIOUS if watched(state) else 1.0))
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    return rate


def shuffled_minibatches(rows: Sequence[int], count: int, name: str) -> list[list[int]]:
    """The rows in an order given by `name`, in `count` pieces of like size; no empty piece."""
    order = random.Random(name).sample(list(rows), len(rows))
    return [piece for n in range(count) if (piece := order[n * len(order) // count : (n + 1) * len(order) // count])]


def log_step(state: TrainState, experience: Experience, *, rate: float, loss: float, **numbers: Any) -> None:
    """Two lines of metrics: the rewards of this step, and how the update went. Some answers for people beside them."""
    summary = experience.summary()
    extra = {**summary, "backend": state.sampler.backend}
    state.log("METRICS", avg_reward=summary["reward"], weights=experience.mean_part_weights(), extra=extra)
    known = {name: round(float(value), 8) for name, value in numbers.items() if value is not None}
    worse = {"watched": names} if (names := watched(state)) else {}
    state.log("TRAINING", epoch=1.0, loss=round(loss, 8), extra={**known, "learning_rate": rate, **worse})
    if stopped := state.saved.get("stopped"):
        state.log("HELD_OUT", extra={"stopped": stopped})
    samples.append_some(state.plan.run.folder, state.step, experience)
    measured = {name: value for name, value in known.items() if name in ("kl", "entropy")}
    state.numbers = {"step": state.step, "reward": summary["reward"] or 0.0, "length": summary["length"], **measured}
