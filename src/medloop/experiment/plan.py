"""Before the first user: how the level is split, how many users are needed, and how long that takes.

    plan = make_plan(PlanConfig(primary="satisfaction", min_effect=0.05, spread=0.4), name=…, champion=…, challenger=…, by=…)
    plan.fixed_users, plan.planned_users, days(plan, users_per_day=120, enrolled=0.5)

One level covers everything that can end an experiment wrongly: 60 % for the primary metric, 38 % for all guards together (the two
about patients get twice as much as the others), 2 % for the sample-ratio check. The sum is the level of any false verdict.
"""

import math

from pydantic import Field

from medloop.contracts.base import Contract
from medloop.contracts.experiment import DEFAULT_SITE, GUARDS, ExperimentPlan, GuardName, GuardRule, Metric, version_name
from medloop.errors import ConfigError
from medloop.experiment.sequential import calibrate, fixed_users, inflation

PRIMARY_PART, GUARD_PART, RATIO_PART = 0.60, 0.38, 0.02
WEIGHTS: dict[GuardName, float] = {"critical": 2.0, "unsafe": 2.0, "error": 1.0, "slow": 1.0, "dissatisfied": 1.0}
TOLERATED: dict[GuardName, float] = {"error": 1.1, "slow": 1.25, "dissatisfied": 1.25}
MOST_USERS = 10_000_000


class PlanConfig(Contract):
    """What a person decides about an experiment."""

    primary: Metric = "satisfaction"
    min_effect: float = Field(0.05, gt=0, lt=1, description="Smallest improvement of the primary metric that is worth having.")
    spread: float = Field(0.4, gt=0, le=1, description="Standard deviation of the primary metric between users.")
    split: float = Field(0.5, ge=0.01, le=0.99, description="Share of the enrolled users who get the challenger.")
    alpha: float = Field(0.05, gt=0, le=0.2, description="Chance of any false verdict.")
    power: float = Field(0.8, ge=0.5, lt=1, description="Chance to find an improvement of min_effect.")
    guards: tuple[GuardName, ...] = Field(GUARDS, description="Guards that can stop the experiment.")
    slow_ms: int = Field(20_000, ge=1, description="An answer that takes longer is slow, in milliseconds.")
    min_users: int = Field(50, ge=2, description="Users of each arm before the first verdict on the primary metric.")
    window_hours: float = Field(
        24.0, ge=0, le=24 * 90, description="Hours after a user's first value that count; 0: only that one."
    )


def make_plan(
    config: PlanConfig, *, name: str, champion: str, challenger: str, by: str, site: str = DEFAULT_SITE
) -> ExperimentPlan:  # fmt: skip
    """The plan of an experiment, with its number of users."""
    if version_name(champion) == version_name(challenger):
        raise ConfigError("Champion and challenger are the same version", "Name two versions")
    fixed = fixed_users(
        effect=config.min_effect, spread=config.spread, split=config.split, alpha=config.alpha, power=config.power
    )  # fmt: skip
    primary_alpha = config.alpha * PRIMARY_PART
    planned = max(2 * config.min_users, math.ceil(fixed * inflation(primary_alpha, config.power, config.alpha)))
    if planned > MOST_USERS:
        raise ConfigError(
            f"{planned:,} users would be needed", "Ask for a larger effect (--effect), or accept less power (--power)"
        )
    return ExperimentPlan(
        name=name, site=site, champion=champion, challenger=challenger, primary=config.primary, min_effect=config.min_effect,
        spread=config.spread, split=config.split, alpha=config.alpha, primary_alpha=primary_alpha,
        srm_alpha=config.alpha * RATIO_PART, power=config.power, guards=guard_rules(config.guards, config.alpha * GUARD_PART),
        slow_ms=config.slow_ms, min_users=config.min_users, window_hours=config.window_hours, fixed_users=fixed,
        planned_users=planned, boundary_alpha=calibrate(primary_alpha), planned_by=by,
    )  # fmt: skip


def spread_of_rate(base: float, effect: float) -> float:
    """The spread of a yes-or-no metric whose rate is `base`, and `base` + `effect` with the challenger."""
    rates = (base, min(1.0, base + effect))
    return math.sqrt(sum(rate * (1 - rate) for rate in rates) / 2)


def guard_rules(names: tuple[GuardName, ...], alpha: float) -> tuple[GuardRule, ...]:
    """The guards, whose levels add up to `alpha`."""
    total = sum(WEIGHTS[name] for name in names)
    return tuple(
        GuardRule(name=name, alpha=alpha * WEIGHTS[name] / total, tolerated=TOLERATED.get(name, 1.0)) for name in names
    )  # fmt: skip


def days(plan: ExperimentPlan, *, users_per_day: float, enrolled: float, measured: float = 1.0) -> float:
    """Days until the planned end, if so many new users come each day and this share of them gives a value."""
    daily = users_per_day * enrolled * measured
    return math.inf if daily <= 0 else plan.planned_users / daily
