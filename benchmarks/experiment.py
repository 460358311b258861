"""Does the sequential test hold its level when somebody looks after every observation, and what does that cost?

    python benchmarks/experiment.py [--seeds 1 2 3] [--experiments 1000] [--json FILE]

1. Null experiments: both arms alike, with the five guards and the sample-ratio check running beside the primary metric, looked at
   after every user whose value is complete. A false verdict is any of: better, worse, stopped by a guard, invalid split.
   The bound is 5 % for all of them together.
2. Power: the true effect is the planned one. Users at which 80 % of the experiments have found it, over the users of a fixed test
   with one look; and the mean. The bound is 1.6.
3. Harm: the challenger does what one guard watches for five times as often; how many users until the stop.

The numbers come from the functions of the product (`experiment/sequential.py`, `experiment/analyse.py`), on whole arrays.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medloop.contracts.experiment import GUARDS, ExperimentPlan
from medloop.experiment.analyse import arm_sums, first_look
from medloop.experiment.plan import GUARD_PART, PlanConfig, guard_rules, make_plan
from medloop.experiment.sequential import EITHER_WAY, HARM, Boundary, ratio_log_e

Numbers = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Numbers]
GUARD_RATES = (0.01, 0.02, 0.05, 0.10, 0.20)  # share of users who meet the event of each guard, in the null experiments
CHUNK = 250  # experiments at once
GUARD_RULES = guard_rules(GUARDS, PlanConfig().alpha * GUARD_PART)


def share(rate: float) -> Draw:
    return lambda rng, size: (rng.random(size) < rate).astype(np.float64)


def skewed(rng: np.random.Generator, size: tuple[int, ...]) -> Numbers:
    """Most users near 0, a few near 1."""
    return rng.beta(0.3, 2.7, size)


def stars(rng: np.random.Generator, size: tuple[int, ...]) -> Numbers:
    return rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], p=[0.1, 0.05, 0.1, 0.25, 0.5], size=size)


def clustered(rng: np.random.Generator, size: tuple[int, ...]) -> Numbers:
    """Users with a taste of their own who rate one to many times: their value is the mean of their window."""
    taste, times = rng.beta(0.8, 0.8, size), 1 + rng.poisson(4, size)
    return rng.binomial(times, taste) / times


# Name: how a user's value is drawn, the planned effect, the share of the challenger.
SCENARIOS: dict[str, tuple[Draw, float, float]] = {
    "rate 2 %": (share(0.02), 0.03, 0.5),
    "rate 10 %": (share(0.10), 0.06, 0.5),
    "rate 50 %": (share(0.50), 0.10, 0.5),
    "rate 90 %": (share(0.90), 0.05, 0.5),
    "rate 50 %, challenger 20 %": (share(0.50), 0.10, 0.2),
    "stars": (stars, 0.06, 0.5),
    "skewed": (skewed, 0.05, 0.5),
    "clustered": (clustered, 0.08, 0.5),
}


def lifted(values: Numbers, effect: float, rng: np.random.Generator) -> Numbers:
    """Some values become 1, so that the mean is higher by the effect and everything stays in [0, 1]."""
    return np.where(rng.random(values.shape) < effect / (1 - values.mean()), 1.0, values)


@cache
def plan_of(name: str) -> ExperimentPlan:
    """Planned by somebody who knows the spread of both arms: what is measured is the cost of looking, not of a wrong guess."""
    draw, effect, split = SCENARIOS[name]
    rng = np.random.default_rng(0)
    values = draw(rng, (1_000_000,))
    variances = values.var(), lifted(values, effect, rng).var()
    spread = math.sqrt((variances[1] / split + variances[0] / (1 - split)) / (1 / split + 1 / (1 - split)))
    config = PlanConfig(spread=spread, min_effect=effect, split=split)
    return make_plan(config, name=name, champion="a", challenger="b", by="benchmark")


def crossings(plan: ExperimentPlan, arms: Numbers, values: Numbers) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(experiments, users): whether the interval lies above 0, and below, after each user."""
    difference, half = arm_sums(arms, values).intervals(Boundary(plan.boundary_alpha, plan.planned_users))
    counts = np.cumsum(arms, axis=-1)
    n = np.arange(1, arms.shape[-1] + 1)
    ready = (np.minimum(counts, n - counts) >= plan.min_users) & (n >= first_look(plan))
    return (difference - half > 0) & ready, (difference + half < 0) & ready


def guard_stops(plan: ExperimentPlan, arms: Numbers, rng: np.random.Generator, rates: dict[str, tuple[float, float]]) -> Numbers:
    """(guards, experiments): the user at which each guard stops, infinite if it never does."""
    stops = []
    for rule in plan.guards:
        champion, challenger = rates[rule.name]
        events = rng.random(arms.shape) < np.where(arms > 0, challenger, champion)
        hits, misses = np.cumsum(events * arms, axis=-1), np.cumsum(events * (1 - arms), axis=-1)
        stopped = ratio_log_e(hits, misses, plan.split, HARM, rule.tolerated) >= math.log(1 / rule.alpha)
        stops.append(np.where(stopped.any(axis=-1), stopped.argmax(axis=-1) + 1.0, np.inf))
    return np.array(stops)


def null_experiments(name: str, experiments: int, seed: int) -> dict[str, float]:
    """Shares of the experiments with each kind of false verdict."""
    plan, draw = plan_of(name), SCENARIOS[name][0]
    rng = np.random.default_rng([seed, len(name), sum(map(ord, name))])
    counts = dict.fromkeys(("better", "worse", "guards", "split", "any"), 0)
    for start in range(0, experiments, CHUNK):
        size = (min(CHUNK, experiments - start), plan.planned_users)
        arms = (rng.random(size) < plan.split).astype(np.float64)
        above, below = crossings(plan, arms, draw(rng, size))
        rates = {rule.name: (rate, rate) for rule, rate in zip(plan.guards, GUARD_RATES, strict=True)}
        stopped = np.isfinite(guard_stops(plan, arms, rng, rates)).any(axis=0)
        hits = np.cumsum(arms, axis=-1)
        log_e = ratio_log_e(hits, np.arange(1, size[1] + 1) - hits, plan.split, EITHER_WAY)
        split = (log_e >= math.log(1 / plan.srm_alpha)).any(axis=-1)
        kinds = {"better": above.any(axis=-1), "worse": below.any(axis=-1), "guards": stopped, "split": split}
        for kind, hit in kinds.items():
            counts[kind] += int(hit.sum())
        counts["any"] += int(np.logical_or.reduce(list(kinds.values())).sum())
    return {kind: count / experiments for kind, count in counts.items()}


def guards_alone(experiments: int, seed: int, users: int = 20_000, at_once: int = 40) -> float:
    """Share of long null experiments that any of the five guards stops, at rates where all of them see many events."""
    plan = plan_of("rate 10 %").model_copy(update={"guards": tuple(r.model_copy(update={"tolerated": 1.0}) for r in GUARD_RULES)})
    rng = np.random.default_rng([seed, 44])
    stopped = 0
    for _ in range(experiments // at_once):
        arms = (rng.random((at_once, users)) < plan.split).astype(np.float64)
        rates = {rule.name: (0.05, 0.05) for rule in plan.guards}
        stopped += int(np.isfinite(guard_stops(plan, arms, rng, rates)).any(axis=0).sum())
    return stopped / (experiments // at_once * at_once)


def counted_as_independent(experiments: int, seed: int) -> float:
    """What the product does not do: the ratings of `clustered` users, each as if it came from another user."""
    plan = plan_of("clustered")
    rng = np.random.default_rng([seed, 77])
    users, times = plan.planned_users // 5, 5
    size = (experiments, users)
    arms = np.repeat(rng.random(size) < plan.split, times, axis=1)
    taste = np.repeat(rng.beta(0.8, 0.8, size), times, axis=1)
    above, below = crossings(plan, arms.astype(np.float64), (rng.random(taste.shape) < taste).astype(np.float64))
    return float((above | below).any(axis=-1).mean())


def power(name: str, experiments: int, seed: int) -> dict[str, float]:
    """Users for 80 % power and on average, over those of a fixed test; the share that was found by the planned end."""
    plan, (draw, effect, _) = plan_of(name), SCENARIOS[name]
    rng = np.random.default_rng([seed, 99, sum(map(ord, name))])
    found: list[Numbers] = []
    for start in range(0, experiments, CHUNK):
        size = (min(CHUNK, experiments - start), 2 * plan.planned_users)
        arms = (rng.random(size) < plan.split).astype(np.float64)
        values = draw(rng, size)
        above, _ = crossings(plan, arms, np.where(arms > 0, lifted(values, effect, rng), values))
        found.append(np.where(above.any(axis=-1), above.argmax(axis=-1) + 1.0, np.inf))
    first = np.concatenate(found)
    ended = np.minimum(first, plan.planned_users)
    return {
        "fixed": plan.fixed_users, "planned": plan.planned_users, "found": float((first <= plan.planned_users).mean()),
        "ratio_80": float(np.quantile(first, 0.8, method="higher")) / plan.fixed_users,
        "ratio_mean": float(ended.mean()) / plan.fixed_users,
    }  # fmt: skip


def harm(experiments: int, seed: int) -> dict[str, dict[str, float]]:
    """For each guard: the share of experiments that it stops when its event is five times as frequent, and the median user."""
    plan = plan_of("rate 10 %")
    rng = np.random.default_rng([seed, 55])
    out = {}
    for index, rule in enumerate(plan.guards):
        rates = {other.name: (0.02, 0.10 if other is rule else 0.02) for other in plan.guards}
        arms = (rng.random((experiments, 2000)) < plan.split).astype(np.float64)
        stop = guard_stops(plan, arms, rng, rates)[index]
        out[rule.name] = {"stopped": float(np.isfinite(stop).mean()), "median_user": float(np.median(stop))}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--experiments", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    started, result = time.perf_counter(), {}
    levels = plan_of("stars")
    print(
        f"level {levels.alpha:g} = primary {levels.primary_alpha:g} + guards {sum(rule.alpha for rule in levels.guards):g}"
        f" + split {levels.srm_alpha:g}; {args.experiments} experiments each, a look after every observation"
    )
    for seed in args.seeds:
        print(f"\nseed {seed}\n{'null experiments':<28}{'better':>8}{'worse':>8}{'guards':>8}{'split':>8}{'any':>8}")
        rows = {name: null_experiments(name, args.experiments, seed) for name in SCENARIOS}
        for name, row in rows.items():
            cells = "".join(
                f"{row[kind]:>8.1%}" if kind in row else f"{'':>8}" for kind in ("better", "worse", "guards", "split", "any")
            )
            print(f"{name:<28}{cells}")
        naive = counted_as_independent(args.experiments, seed)
        print(f"(clustered ratings counted as if independent, which is not done: {naive:.1%})")
        alone = guards_alone(args.experiments, seed)
        bound = sum(rule.alpha for rule in GUARD_RULES)
        print(f"five guards together, 20,000 users each, nothing tolerated: {alone:.1%} (at most {bound:.1%})")
        print(f"{'planned effect':<28}{'fixed':>8}{'planned':>8}{'found':>8}{'80 %':>8}{'mean':>8}")
        powers = {name: power(name, args.experiments, seed) for name in SCENARIOS}
        for name, row in powers.items():
            print(
                f"{name:<28}{row['fixed']:>8.0f}{row['planned']:>8.0f}{row['found']:>8.1%}{row['ratio_80']:>7.2f}x"
                f"{row['ratio_mean']:>7.2f}x"
            )
        harms = harm(args.experiments, seed)
        print(
            "harm 5x (2 % to 10 %): " + ", ".join(f"{k} {v['stopped']:.0%} at {v['median_user']:.0f}" for k, v in harms.items())
        )
        result[seed] = {"guards_alone": alone, "null": rows, "power": powers, "harm": harms}
    nulls = [row["any"] for part in result.values() for row in part["null"].values()]
    ratios = [row["ratio_80"] for part in result.values() for row in part["power"].values()]
    print(f"\nfalse verdicts: {min(nulls):.1%} to {max(nulls):.1%} (at most 5 %)")
    print(f"users for 80 % power over a fixed test: {min(ratios):.2f}x to {max(ratios):.2f}x (at most 1.6x)")
    print(f"{time.perf_counter() - started:.0f} s")
    if args.json:
        args.json.write_text(json.dumps(result, indent=2, default=float))


if __name__ == "__main__":
    main()
