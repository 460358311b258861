"""Agreement of three annotators on a file of comparisons, as JSON lines with `annotations` (0 tie, 1 first, 2 second).

    python benchmarks/agreement.py --data annotators.jsonl.gz --out agreement.json

Such a file is the test set of PandaLM (Apache-2.0), which is not part of this repository. Without one, three made-up annotators
who err one time in five.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from medloop.feedback.insight.agreement import alpha_interval, cohen_kappa, fleiss_kappa, rating_table


def read(path: Path) -> list[list[int]]:
    open_ = gzip.open if path.suffix == ".gz" else open
    with open_(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["annotations"] for line in lines]


def made_up(pairs: int = 1000) -> list[list[int]]:
    rng = random.Random(1)
    truths = [rng.randrange(3) for _ in range(pairs)]
    return [[truth if rng.random() < 0.8 else rng.randrange(3) for _ in range(3)] for truth in truths]


def measure(given: list[list[int]]) -> dict[str, Any]:
    began = time.perf_counter()
    table = rating_table(given, (0, 1, 2))
    found = alpha_interval(table, "nominal", seed=42)
    took = time.perf_counter() - began
    decided = [[value for value in unit if value] for unit in given]
    clear = alpha_interval(rating_table(decided, (1, 2)), "nominal", seed=42)
    return {
        "pairs": table.units,
        "judgements": table.ratings,
        "alpha": {"value": found.mean, "low": found.low, "high": found.high, "seconds": took},
        "fleiss_kappa": fleiss_kappa(table),
        "alpha_without_ties": {"value": clear.mean, "low": clear.low, "high": clear.high, "pairs": clear.n},
        "cohen_kappa": {f"{one + 1} and {two + 1}": between(given, one, two) for one, two in combinations(range(3), 2)},
    }


def between(given: list[list[int]], one: int, two: int) -> float:
    seen = np.zeros((3, 3))
    for unit in given:
        seen[unit[one], unit[two]] += 1
    return cohen_kappa(seen)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--data", type=Path, help="JSON lines with the judgements of three annotators")
    args.add_argument("--out", type=Path, help="JSON file for the results")
    asked = args.parse_args()
    found = json.dumps(measure(read(asked.data) if asked.data else made_up()), indent=2)
    print(found)
    if asked.out:
        asked.out.write_text(found + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
