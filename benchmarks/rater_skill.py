"""How often the side that raters decide for is the right one: votes counted against votes weighed by skill, by simulation.

    python benchmarks/rater_skill.py --units 2000

Each unit is judged by a few raters drawn from a group. `counted` is the majority, `weighed` the greater weight
(feedback/insight/skill.py, which sees the votes and the roles, not the truth), both without the ties; `flipped` is the share of
units that the majority decides wrongly and the weights decide rightly.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime

import numpy as np

from medloop.feedback.insight.skill import PRIORS, UNKNOWN, Votes, estimate
from medloop.store.records.marks import FeedbackMark

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
C, A, P = PRIORS["clinician"], PRIORS["annotator"], UNKNOWN
# name -> (prior, accuracy): accuracy 0 always says the opposite of the truth, 0.5 tosses a coin
GROUPS = {
    "clinicians and annotators": {"c1": (C, 0.9), "c2": (C, 0.88), "a1": (A, 0.8), "a2": (A, 0.72), "a3": (A, 0.65)},
    "with two who toss coins": {"c1": (C, 0.9), "c2": (C, 0.88), "a1": (A, 0.8), "s1": (A, 0.5), "s2": (A, 0.5)},
    "two clinicians against three hostile annotators": {"c1": (C, 0.9), "c2": (C, 0.9), **{f"h{n}": (A, 0.1) for n in range(3)}},
    "two clinicians against three hostile programs": {"c1": (C, 0.9), "c2": (C, 0.9), **{f"p{n}": (P, 0.1) for n in range(3)}},
}


def simulate(group: dict[str, tuple[tuple[float, float], float]], units: int, each: int, seed: int) -> dict[str, float]:
    rng, votes, cast = np.random.default_rng(seed), Votes(), []
    for unit in range(units):
        truth, names = bool(rng.random() < 0.6), rng.permutation(list(group))[:each]
        said = {str(name): truth == (rng.random() < group[str(name)][1]) for name in names}
        cast.append((truth, said))
        row = unit * len(group)
        votes.add_unit(
            [
                FeedbackMark("feedback", row + n, f"{row}{n}", NOON, name, name, thumb="up" if up else "down")
                for n, (name, up) in enumerate(said.items())
            ]
        )
    skills = estimate(votes, {name: prior for name, (prior, _) in group.items()}, {})
    counted = [(truth, sum(1 if up else -1 for up in said.values())) for truth, said in cast]
    weighed = [(truth, sum(skills[name].weight * (1 if up else -1) for name, up in said.items())) for truth, said in cast]
    flipped = sum((a > 0) != t and (b > 0) == t for (t, a), (_, b) in zip(counted, weighed, strict=True) if a and b)
    return {"counted": share(counted), "weighed": share(weighed), "flipped": round(flipped / units, 3)}


def share(results: list[tuple[bool, float]]) -> float:
    decided = [(balance > 0) == truth for truth, balance in results if abs(balance) > 1e-9]
    return round(sum(decided) / max(1, len(decided)), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--each", type=int, default=5, help="raters of a unit")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    results = {name: simulate(group, args.units, args.each, args.seed) for name, group in GROUPS.items()}
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
