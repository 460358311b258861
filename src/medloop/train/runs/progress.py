"""Where a training run is, for whoever watches: a progress bar, or the status of a job. No torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StepReward:
    """The reward of the current step, as far as its answers are scored: mean, mean of each part, and weights."""

    mean: float | None
    parts: Mapping[str, float]
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Progress:
    """The run is at `step` of `steps`, and `done` of `total` of that step's phase is behind it.

    `numbers` are those of the last finished step, by name: loss, learning_rate and tokens_per_second, or reward, kl and length.
    `reward` is that of the current step, once its first answers are scored.
    """

    step: int
    steps: int
    phase: str  # GENERATING, SCORING, METRICS, TRAINING or HELD_OUT
    done: int
    total: int
    finished: int  # steps
    numbers: Mapping[str, float] = field(default_factory=dict)
    reward: StepReward | None = None


OnProgress = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """Nobody watches."""
