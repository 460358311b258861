"""How often the side that raters decide for is the right one: votes counted against votes weighed by skill, by simulation.

    python benchmarks/rater_skill.py --units 2000
    python benchmarks/rater_skill.py --people ../shared/data/rater_en_pandalm_3annotators.jsonl.gz

Each unit is judged by a few raters drawn from a group. `counted` is the majority, `weighed` the greater weight
(feedback/insight/skill.py, which sees the votes and the roles, not the truth), both without the ties; `flipped` is the share of
units that the majority decides wrongly and the weights decide rightly.

With `--people`, the votes are those of three real annotators for each pair (ties left out), and beside them invented names vote
on every pair: against what the three decided, or by tossing a coin. The right side is what the three decided among themselves.
"""

from __future__ import annotations

import argparse
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

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


def with_people(file: Path, invented: int, hostile: bool, seed: int) -> dict[str, object]:
    """Three real annotators, and `invented` names that all vote at once."""
    rng, votes, cast = np.random.default_rng(seed), Votes(), []
    rows = [json.loads(line)["annotations"] for line in gzip.open(file, "rt", encoding="utf-8")]
    for unit, row in enumerate(rows):
        people = {f"a{n}": vote == 2 for n, vote in enumerate(row) if vote}
        if len(people) < 2 or sum(people.values()) * 2 == len(people):
            continue  # the three did not decide
        truth = sum(people.values()) * 2 > len(people)
        said = {**people, **{f"p{n}": not truth if hostile else bool(rng.random() < 0.5) for n in range(invented)}}
        cast.append((truth, said))
        votes.add_unit(
            [
                FeedbackMark("feedback", unit * 20 + n, f"{unit}-{n}", NOON, name, name, thumb="up" if up else "down")
                for n, (name, up) in enumerate(said.items())
            ]
        )
    skills = estimate(votes, {name: A if name[0] == "a" else P for _, said in cast for name in said}, {})
    counted = [(truth, sum(1.0 if up else -1.0 for up in said.values())) for truth, said in cast]
    weighed = [(truth, sum(skills[name].weight * (1 if up else -1) for name, up in said.items())) for truth, said in cast]
    weights = {name: round(skill.weight, 2) for name, skill in sorted(skills.items())}
    return {"pairs": len(cast), "counted": share(counted), "weighed": share(weighed), "weights": weights}


def share(results: list[tuple[bool, float]]) -> float:
    decided = [(balance > 0) == truth for truth, balance in results if abs(balance) > 1e-9]
    return round(sum(decided) / max(1, len(decided)), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--each", type=int, default=5, help="raters of a unit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--people", type=Path, help="JSON Lines (gzip) with `annotations`: 0 tie, 1 or 2 for each annotator")
    parser.add_argument("--out", type=Path, help="write the results as JSON too")
    args = parser.parse_args()
    results: dict[str, object] = {name: simulate(group, args.units, args.each, args.seed) for name, group in GROUPS.items()}
    for invented, hostile in ((0, False), (5, False), (2, True), (5, True), (10, True)) if args.people else ():
        name = f"three people and {invented} invented names {'against them' if hostile else 'who toss coins'}"
        results[name] = with_people(args.people, invented, hostile, args.seed)
    print(json.dumps(results, indent=2))
    if args.out:
        args.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
