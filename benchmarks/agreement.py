"""Agreement of three annotators on a file of comparisons, as JSON lines with `annotations` (0 tie, 1 first, 2 second).

    python benchmarks/agreement.py annotators.jsonl.gz

Such a file is the test set of PandaLM (Apache-2.0), which is not part of this repository.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np

from medloop.feedback.agreement import alpha_interval, cohen_kappa, counts, fleiss_kappa


def main(path: Path) -> None:
    open_ = gzip.open if path.suffix == ".gz" else open
    with open_(path, "rt", encoding="utf-8") as lines:
        given = [json.loads(line)["annotations"] for line in lines]
    began = time.perf_counter()
    table = counts(given, (0, 1, 2))
    found = alpha_interval(table, "nominal", seed=42)
    print(f"{table.units} pairs, {table.ratings} judgements, {len(table.rows)} patterns")
    print(f"alpha (nominal)  {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]  ({time.perf_counter() - began:.2f} s)")
    print(f"Fleiss' kappa    {fleiss_kappa(table):.3f}")
    decided = [[value for value in unit if value] for unit in given]
    clear = alpha_interval(counts(decided, (1, 2)), "nominal", seed=42)
    print(f"without ties     {clear.mean:.3f} [{clear.low:.3f}, {clear.high:.3f}] over {clear.n} pairs")
    for one, two in combinations(range(len(given[0])), 2):
        seen = np.zeros((3, 3))
        for unit in given:
            seen[unit[one], unit[two]] += 1
        print(f"Cohen's kappa of annotators {one + 1} and {two + 1}: {cohen_kappa(seen):.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
