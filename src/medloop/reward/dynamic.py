"""Dynamic weights (DW-GRPO, document 003): a reward that stagnates gets more weight, one that rises gets less.

    slope_k = np.polyfit(x, history_k[-window:], 1)[0]           of each reward's mean per round
    new_k   = K · exp(-slope_k / T) / Σ exp(-slope / T)          K is the number of rewards; the document writes 3.0 for its three
    w_k     = 0.8 · w_k + 0.2 · new_k                            momentum

With `normalize_slopes: false` that is all. Rewards between 0 and 1 have slopes of a few hundredths, so at T = 2 those weights
hardly move. With `normalize_slopes` (the default) a slope is divided by the reward's own spread over the window, new weights
share the sum that the initial ones had (the scale of the reward stays), and no weight falls below its floor.

A round without a value for a reward is left out of its line, never taken as 0; with fewer than two values its weight stays.

    scorer = DynamicScorer(DwConfig(), load_relevance(RelevanceConfig(), settings))       # a Scorer: score(samples) -> rewards
    scorer.end_round(rewards)                                                             # its weights for the next round
    save_state(path, scorer.state()); scorer.restore(load_state(path))                    # goes on to the bit
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from pydantic import Field, ValidationError, model_validator

from medloop.contracts import Component, Contract, Reward, Sample, Score, Scorer
from medloop.contracts.base import Unit
from medloop.errors import ConfigError, InputError, explain_os_errors
from medloop.reward.mix import MixConfig, Part, build_mix
from medloop.reward.relevance import RelevanceConfig, load_relevance
from medloop.settings import Settings
from medloop.store.files.atomic import atomic_write

Weights = dict[str, float]
History = Sequence[Mapping[str, float]]  # one mapping per round; a reward without a value in a round is not in it
FLOOR = 0.1  # share of its initial weight that a reward keeps when no floors are named


class DwConfig(Contract):
    """How weights follow the rewards; the first three fields are the `dw_config` of document 003."""

    history_window: int = Field(5, ge=2)
    """Rounds that a slope is taken over."""
    temperature: float = Field(2.0, ge=0.01)
    """Higher: weights stay closer to one another."""
    initial_weights: dict[str, float] = Field(default_factory=lambda: {"rel": 1.0, "faith": 1.0, "conc": 0.5}, min_length=1)
    momentum: Unit = 0.8
    """Share of the old weight that a round keeps."""
    normalize_slopes: bool = True
    """Divide each slope by its reward's own spread over the window; false is the document's arithmetic."""
    least_spread: float = Field(0.02, gt=0)
    """Spreads below this count as this: a reward that moves less is stagnant, however straight its line."""
    floors: dict[str, float] | None = None
    """Least weight of a reward; null: a tenth of its initial weight with normalize_slopes, none without."""

    @model_validator(mode="after")
    def _fits_together(self) -> DwConfig:
        problems = [f"the weight of {name} is below 0" for name, weight in self.initial_weights.items() if weight < 0]
        if not 0 < sum(self.initial_weights.values()) <= 10:
            problems.append("the initial weights must sum to more than 0 and at most 10")
        for name, floor in (self.floors or {}).items():
            if name not in self.initial_weights:
                problems.append(f"there is a floor for '{name}', which has no weight")
            elif not 0 <= floor <= self.initial_weights[name]:
                problems.append(f"the floor of {name} is not between 0 and its initial weight")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def least(self) -> Weights:
        """The floor of every reward."""
        if self.floors is None:
            return {name: FLOOR * weight * self.normalize_slopes for name, weight in self.initial_weights.items()}
        return {name: self.floors.get(name, 0.0) for name in self.initial_weights}


class DwRound(Contract):
    """One round: each reward's mean (of those that had one) and the weights that came of it."""

    means: dict[str, float]
    weights: dict[str, float]


class DwState(Contract):
    """All that is needed to go on, and the whole history for the plot."""

    config: DwConfig
    weights: dict[str, float]
    rounds: tuple[DwRound, ...] = ()

    @model_validator(mode="after")
    def _speaks_of_the_same_rewards(self) -> DwState:
        wanted = set(self.config.initial_weights)
        if any(
            set(weights) != wanted or min(weights.values()) < 0 for weights in (self.weights, *(r.weights for r in self.rounds))
        ):
            raise ValueError("weights are not those of the rewards in its configuration")
        if any(not set(done.means) <= wanted for done in self.rounds):
            raise ValueError("a mean is of a reward that has no weight")
        return self


class DynamicConfig(Contract):
    """The DW-GRPO scorer as a file (`configs/dw.yaml`): what is measured, and how the weights move."""

    relevance: RelevanceConfig = RelevanceConfig()
    weights: DwConfig = DwConfig()


def slope(values: Sequence[float | None], least_spread: float | None) -> float | None:
    """Least-squares slope per round over the values there are; with `least_spread` in units of their own spread."""
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    found = float(np.polyfit([at for at, _ in known], [value for _, value in known], 1)[0])
    return found if least_spread is None else found / max(least_spread, float(np.std([value for _, value in known])))


def update(weights: Mapping[str, float], history: History, config: DwConfig) -> Weights:
    """The weights after the last round of `history`; pure."""
    recent = history[-config.history_window :]
    spread = config.least_spread if config.normalize_slopes else None
    slopes = {name: found for name in weights if (found := slope([row.get(name) for row in recent], spread)) is not None}
    if not slopes:
        return dict(weights)
    exps = {name: np.exp(-value / config.temperature) for name, value in slopes.items()}
    total = sum(exps.values())
    share = sum(weights[name] for name in slopes) if config.normalize_slopes else float(len(slopes))
    new = {name: share * (value / total) for name, value in exps.items()}
    keep, take = config.momentum, round(1 - config.momentum, 12)  # 1 - 0.8 is not 0.2 to a computer
    moved = {name: float(keep * old + take * new[name]) if name in new else old for name, old in weights.items()}
    return _hold(moved, config.least)


def _hold(weights: Weights, least: Mapping[str, float]) -> Weights:
    """Lift what is below its floor; the others pay in proportion to their room, so that the sum stays."""
    lacking = sum(max(0.0, least[name] - weight) for name, weight in weights.items())
    if not lacking:
        return weights
    room = {name: max(0.0, weight - least[name]) for name, weight in weights.items()}
    paid = lacking / sum(room.values()) if any(room.values()) else 0.0
    return {name: least[name] + room[name] * max(0.0, 1 - paid) for name in weights}


class DynamicScorer:
    """A Scorer whose weights move between rounds. A part that is a penalty counts against the reward with its weight."""

    def __init__(self, config: DwConfig, components: Mapping[str, Component]) -> None:
        if set(components) != set(config.initial_weights):
            wanted, got = (", ".join(sorted(names)) for names in (config.initial_weights, components))
            raise ConfigError(f"Weights are for {wanted}, but {got} was handed in", "Name the same rewards in initial_weights")
        if not any(weight and not components[name].penalty for name, weight in config.initial_weights.items()):
            raise ConfigError("All rewards with a weight are penalties", "Name one that can be earned")
        self.config = config
        self._components = dict(components)
        self._weights: Weights = dict(config.initial_weights)
        self._rounds: tuple[DwRound, ...] = ()

    @property
    def weights(self) -> Weights:
        """Those in force."""
        return dict(self._weights)

    @property
    def version(self) -> str:
        """Names the weights in force; the hash behind them covers the parts' versions too."""
        return self._mix.version

    def score(self, samples: Sequence[Sample]) -> list[Reward]:
        """Weighted sums; what is missing or does not apply is left out and the other weights grow to the same sum."""
        return self._mix.score(samples)

    @property
    def _mix(self) -> Scorer:
        signs = {name: -1 if part.penalty else 1 for name, part in self._components.items()}
        named = ",".join(f"{name}={weight:.6g}" for name, weight in self._weights.items())
        reach = 1 + sum(self._weights.values())
        parts = {name: Part(weight=signs[name] * weight, given=True) for name, weight in self._weights.items()}
        return build_mix(MixConfig(version=f"dw({named})", bounds=(-reach, reach), parts=parts), self._components)

    def end_round(self, rewards: Sequence[Reward]) -> DwRound:
        """Take the mean of each reward into the history and move the weights."""
        columns: dict[str, list[float]] = {}
        for part in (part for reward in rewards for part in reward.parts if isinstance(part, Score) and part.applies):
            good = 1 - part.value if self._components[part.name].penalty else part.value
            columns.setdefault(part.name, []).append(good)
        means = {name: fmean(column) for name, column in columns.items()}
        history = [*(done.means for done in self._rounds), means]
        self._weights = update(self._weights, history, self.config)
        self._rounds = (*self._rounds, DwRound(means=means, weights=self._weights))
        return self._rounds[-1]

    def state(self) -> DwState:
        return DwState(config=self.config, weights=self._weights, rounds=self._rounds)

    def restore(self, state: DwState) -> None:
        """Go on where another scorer of the same configuration stood."""
        if state.config != self.config:
            ours, theirs = self.config.model_dump(), state.config.model_dump()
            other = ", ".join(name for name in ours if ours[name] != theirs[name])
            raise ConfigError(f"The saved weights were made with another {other}", "Use the same settings, or start anew")
        # In our order, whatever the file's: sums of floats depend on it.
        self._weights, self._rounds = {name: state.weights[name] for name in self.config.initial_weights}, state.rounds


def load_dynamic(config: DynamicConfig, settings: Settings) -> DynamicScorer:
    """The DW-GRPO scorer of document 003; models are loaded when it first scores."""
    return DynamicScorer(config.weights, load_relevance(config.relevance, settings))


def save_state(path: Path, state: DwState) -> None:
    """Whole or not at all; rewards keep their order, so that the table and the plot do."""
    atomic_write(path, state.model_dump_json(indent=1) + "\n")


def load_state(path: Path) -> DwState:
    with explain_os_errors(path):
        raw = path.read_bytes()
    try:
        return DwState.model_validate_json(raw)
    except ValidationError as error:
        raise InputError(
            f"{path} is no history of weights ({error.error_count()} problems)", "Name a file that a run saved"
        ) from None
