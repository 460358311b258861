"""Agreement of three annotators on a file of comparisons, as JSON lines with `annotations` (0 tie, 1 first, 2 second).

    python benchmarks/agreement.py --data annotators.jsonl.gz --out agreement.json

Such a file is the test set of PandaLM (Apache-2.0), which is not part of this repository. Without one, three simulated annotators
who err one time in five are used.
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


def simulated(pairs: int = 1000) -> list[list[int]]:
    rng = random.Random(1)
    truths = [rng.randrange(3) for _ in range(pairs)]
    return [[truth if rng.random() < 0.8 else rng.randrange(3) for _ in range(3)] for truth in truths]


def measure(units: list[list[int]]) -> dict[str, Any]:
    start = time.perf_counter()
    table = rating_table(units, (0, 1, 2))
    alpha = alpha_interval(table, "nominal", seed=42)
    seconds = time.perf_counter() - start
    without_ties = [[value for value in unit if value] for unit in units]
    clear_alpha = alpha_interval(rating_table(without_ties, (1, 2)), "nominal", seed=42)
    return {
        "pairs": table.units,
        "judgements": table.ratings,
        "alpha": {"value": alpha.mean, "low": alpha.low, "high": alpha.high, "seconds": seconds},
        "fleiss_kappa": fleiss_kappa(table),
        "alpha_without_ties": {
            "value": clear_alpha.mean,
            "low": clear_alpha.low,
            "high": clear_alpha.high,
            "pairs": clear_alpha.n,
        },
        "cohen_kappa": {
            f"{first + 1} and {second + 1}": between(units, first, second) for first, second in combinations(range(3), 2)
        },
    }


def between(units: list[list[int]], first: int, second: int) -> float:
    table = np.zeros((3, 3))
    for unit in units:
        table[unit[first], unit[second]] += 1
    return cohen_kappa(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="JSON lines with the judgements of three annotators")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    text = json.dumps(measure(read(args.data) if args.data else simulated()), indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
