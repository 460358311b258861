"""Dynamic weights (DW-GRPO): a reward that stagnates gets more weight, one that rises gets less.

    slope_k = np.polyfit(x, history_k[-window:], 1)[0]           slope of each reward's mean per round
    new_k   = K · exp(-slope_k / T) / Σ exp(-slope / T)          K is the number of rewards
    w_k     = 0.8 · w_k + 0.2 · new_k                            momentum

With `normalize_slopes: false` that is all. Rewards between 0 and 1 have slopes of a few hundredths, so at T = 2 those weights
hardly move. With `normalize_slopes` (the default) a slope is divided by the reward's own spread over the window, new weights
keep the sum of the initial ones (and so the scale of the reward), and no weight falls below its floor.

A round without a value for a reward is left out of its history, never counted as 0; with fewer than two values its weight stays.

The safety rules are part of the reward too. Their weights are fixed: a rule that is always obeyed has no slope, and must not lose
its weight for that.

    scorer = DynamicScorer(DwConfig(), load_relevance(RelevanceConfig(), settings))       # a Scorer: score(samples) -> rewards
    scorer.end_round(rewards)                                                             # its weights for the next round
    save_state(path, scorer.state()); scorer.restore(load_state(path))                    # continues exactly
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from pydantic import Field, ValidationError, model_validator

from medloop.contracts import Component, Contract, Reward, Sample, Score
from medloop.contracts.base import Unit
from medloop.contracts.score import Objective
from medloop.errors import ConfigError, InputError, explain_os_errors
from medloop.reward.mix import MixConfig, MixPart, RewardMix, build_mix, default_parts
from medloop.reward.relevance import RelevanceConfig, load_relevance
from medloop.settings import Settings
from medloop.store.files.atomic import atomic_write

Weights = dict[str, float]
History = Sequence[Mapping[str, float]]  # one mapping per round; a reward without a value in a round is not in it
# Rules beside the rewards.
SAFETY = (
    "emergency", "risk", "undertriage", "overtriage", "safety_net", "off_topic", "false_reassurance", "length", "repetition",
)  # fmt: skip
HISTORY = "weights.json"  # of a run, as `save_state` writes it
FLOOR = 0.1  # floor of a weight as a share of its initial value, where no floors are set


class DwConfig(Contract):
    """How weights follow the rewards; the first three fields are the `dw_config` of the training API."""

    history_window: int = Field(5, ge=2)
    """Rounds over which a slope is computed."""
    temperature: float = Field(2.0, ge=0.01)
    """A higher temperature keeps the weights closer together."""
    initial_weights: dict[str, float] = Field(default_factory=lambda: {"rel": 1.0, "faith": 1.0, "conc": 0.5}, min_length=1)
    momentum: Unit = 0.8
    """Share of the old weight that is kept each round."""
    normalize_slopes: bool = True
    """Divide each slope by its reward's own spread over the window; false uses raw slopes."""
    least_spread: float = Field(0.02, gt=0)
    """Lower bound of the spread: a reward that moves less is stagnant, however straight its line."""
    floors: dict[str, float] | None = None
    """Lowest weight of each reward; null: a tenth of its initial weight with normalize_slopes, none without."""

    @model_validator(mode="after")
    def _fits_together(self) -> DwConfig:
        problems = [f"the weight of {name} is below 0" for name, weight in self.initial_weights.items() if weight < 0]
        if not 0 < sum(self.initial_weights.values()) <= 10:
            problems.append("the initial weights must sum to more than 0 and at most 10")
        for name, floor in (self.floors or {}).items():
            if name not in self.initial_weights:
                problems.append(f"the floor '{name}' has no weight")
            elif not 0 <= floor <= self.initial_weights[name]:
                problems.append(f"the floor of {name} is not between 0 and its initial weight")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def lowest(self) -> Weights:
        """The floor of every reward."""
        if self.floors is None:
            return {name: FLOOR * weight * self.normalize_slopes for name, weight in self.initial_weights.items()}
        return {name: self.floors.get(name, 0.0) for name in self.initial_weights}


class DwRound(Contract):
    """One round: the mean of each reward that had a value, and the new weights."""

    means: dict[str, float]
    weights: dict[str, float]


class DwState(Contract):
    """Everything needed to continue, and the whole history for the plot."""

    config: DwConfig
    weights: dict[str, float]
    rounds: tuple[DwRound, ...] = ()

    @model_validator(mode="after")
    def _check_rewards(self) -> DwState:
        names = set(self.config.initial_weights)
        every = (self.weights, *(round_.weights for round_ in self.rounds))
        if any(set(weights) != names or min(weights.values()) < 0 for weights in every):
            raise ValueError("the weights do not match the rewards in its configuration")
        if any(not set(round_.means) <= names for round_ in self.rounds):
            raise ValueError("a mean belongs to a reward without a weight")
        return self


def safety_weights() -> Weights:
    """The weights of the safety rules in the default mix."""
    return {name: default_parts()[name].weight for name in SAFETY}


class DynamicConfig(Contract):
    """The settings of the DW-GRPO scorer (`configs/dw.yaml`): what is measured, how the weights move, and the safety rules."""

    relevance: RelevanceConfig = RelevanceConfig()
    weights: DwConfig = DwConfig()
    safety: dict[str, float] = Field(default_factory=safety_weights)
    """Rules with a fixed weight, as a share of the sum of the initial weights; the default is their weight in the default mix."""


def slope(values: Sequence[float | None], least_spread: float | None) -> float | None:
    """Least-squares slope per round over the known values; with `least_spread`, in units of their own spread."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    raw = float(np.polyfit([index for index, _ in known], [value for _, value in known], 1)[0])
    return raw if least_spread is None else raw / max(least_spread, float(np.std([value for _, value in known])))


def update(weights: Mapping[str, float], history: History, config: DwConfig) -> Weights:
    """The weights after the last round of `history`; pure."""
    recent = history[-config.history_window :]
    spread = config.least_spread if config.normalize_slopes else None
    slopes = {name: value for name in weights if (value := slope([row.get(name) for row in recent], spread)) is not None}
    if not slopes:
        return dict(weights)
    exps = {name: np.exp(-value / config.temperature) for name, value in slopes.items()}
    total = sum(exps.values())
    share = sum(weights[name] for name in slopes) if config.normalize_slopes else float(len(slopes))
    new = {name: share * (value / total) for name, value in exps.items()}
    momentum, step = config.momentum, round(1 - config.momentum, 12)  # 1 - 0.8 is not exactly 0.2 in floating point
    moved = {name: float(momentum * old + step * new[name]) if name in new else old for name, old in weights.items()}
    return _apply_floors(moved, config.lowest)


def _apply_floors(weights: Weights, floors: Mapping[str, float]) -> Weights:
    """Raise weights to their floors; the others give in proportion to their distance from theirs, so that the sum stays."""
    deficit = sum(max(0.0, floors[name] - weight) for name, weight in weights.items())
    if not deficit:
        return weights
    excess = {name: max(0.0, weight - floors[name]) for name, weight in weights.items()}
    share = deficit / sum(excess.values()) if any(excess.values()) else 0.0
    return {name: floors[name] + excess[name] * max(0.0, 1 - share) for name in weights}


class DynamicScorer:
    """A Scorer whose weights change between rounds, beside safety rules whose weights do not. A penalty has a negative weight.

    `safety` has the weights of rules by name, as a share of the sum of the initial weights.
    """

    def __init__(self, config: DwConfig, components: Mapping[str, Component], safety: Mapping[str, float] | None = None) -> None:
        if set(components) != set(config.initial_weights):
            expected, given = (", ".join(sorted(names)) for names in (config.initial_weights, components))
            raise ConfigError(
                f"The weights are for {expected}, but the rewards are {given}", "Name the same rewards in initial_weights"
            )
        if not any(weight and not components[name].penalty for name, weight in config.initial_weights.items()):
            raise ConfigError("All rewards with a weight are penalties", "Add a reward that is not a penalty")
        self.config = config
        self._components = dict(components)
        scale = sum(config.initial_weights.values())
        gates = {name for name, part in default_parts().items() if part.gate}
        self._safety = {
            name: MixPart(weight=round(share * scale, 6), gate=name in gates) for name, share in (safety or {}).items()
        }
        self._weights: Weights = dict(config.initial_weights)
        self._rounds: tuple[DwRound, ...] = ()

    @property
    def weights(self) -> Weights:
        """The current weights."""
        return dict(self._weights)

    @property
    def version(self) -> str:
        """The current weights and a hash that covers the versions of the parts too."""
        return self._mix.version

    @property
    def objective(self) -> Objective:
        objective = self._mix.objective
        parts = {name: part.model_copy(update={"dynamic": name in self._weights}) for name, part in objective.parts.items()}
        return objective.model_copy(update={"parts": parts})

    def score(self, samples: Sequence[Sample]) -> list[Reward]:
        """Weighted sums; a part that is missing or does not apply is left out and the other weights grow to the same sum."""
        return self._mix.score(samples)

    @property
    def _mix(self) -> RewardMix:
        signs = {name: -1 if part.penalty else 1 for name, part in self._components.items()}
        weights = ",".join(f"{name}={weight:.6g}" for name, weight in self._weights.items())
        bound = 1 + sum(self._weights.values()) + sum(abs(part.weight) for part in self._safety.values())
        parts = {name: MixPart(weight=signs[name] * weight, given=True) for name, weight in self._weights.items()}
        config = MixConfig(version=f"dw({weights})", bounds=(-bound, bound), parts=parts | self._safety)
        return build_mix(config, self._components)

    def end_round(self, rewards: Sequence[Reward]) -> DwRound:
        """Add the mean of each reward to the history and update the weights."""
        columns: dict[str, list[float]] = {}
        for part in (part for reward in rewards for part in reward.parts if isinstance(part, Score) and part.applies):
            if part.name not in self._components:
                continue  # a safety rule
            value = 1 - part.value if self._components[part.name].penalty else part.value
            columns.setdefault(part.name, []).append(value)
        means = {name: fmean(column) for name, column in columns.items()}
        history = [*(round_.means for round_ in self._rounds), means]
        self._weights = update(self._weights, history, self.config)
        self._rounds = (*self._rounds, DwRound(means=means, weights=self._weights))
        return self._rounds[-1]

    def state(self) -> DwState:
        return DwState(config=self.config, weights=self._weights, rounds=self._rounds)

    def restore(self, state: DwState) -> None:
        """Continue from the state of another scorer with the same configuration."""
        if state.config != self.config:
            ours, theirs = self.config.model_dump(), state.config.model_dump()
            different = ", ".join(name for name in ours if ours[name] != theirs[name])
            raise ConfigError(f"The saved weights have another {different}", "Use the same settings, or start from the beginning")
        # In the order of our configuration: sums of floats depend on it.
        self._weights, self._rounds = {name: state.weights[name] for name in self.config.initial_weights}, state.rounds


def load_dynamic(config: DynamicConfig, settings: Settings) -> DynamicScorer:
    """The DW-GRPO scorer; models are loaded when it first scores."""
    return DynamicScorer(config.weights, load_relevance(config.relevance, settings), config.safety)


def save_state(path: Path, state: DwState) -> None:
    """Written atomically; rewards keep their order, as in the table and the plot."""
    atomic_write(path, state.model_dump_json(indent=1) + "\n")


def load_state(path: Path) -> DwState:
    with explain_os_errors(path):
        raw = path.read_bytes()
    try:
        return DwState.model_validate_json(raw)
    except ValidationError as error:
        raise InputError(
            f"{path} is not a history of weights ({error.error_count()} problems)", "Name a file that a run saved"
        ) from None
