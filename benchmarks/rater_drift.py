"""False alarms and delays of the drift test for raters, by simulation.

    python benchmarks/rater_drift.py --raters 2000

A rater without drift draws stars from a fixed distribution around the others' mean; one with drift adds a shift after 200
ratings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from medloop.feedback.insight.drift import DriftDetector, H

DISTRIBUTIONS = {
    "even": (0.2, 0.2, 0.2, 0.2, 0.2),
    "lenient": (0.03, 0.07, 0.15, 0.35, 0.40),
    "two heaps": (0.4, 0.1, 0.0, 0.1, 0.4),
    "nearly always five": (0.01, 0.01, 0.01, 0.02, 0.95),
}


def stars(rng: np.random.Generator, distribution: tuple[float, ...], shape: tuple[int, int]) -> np.ndarray:
    return rng.choice(np.arange(1, 6), size=shape, p=distribution)


def first_alarm(row: np.ndarray, h: float) -> int | None:
    detector = DriftDetector(h=h)
    return next((index for index, x in enumerate(row) if detector.add(float(x)) is not None), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raters", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    args = parser.parse_args()
    text = json.dumps(
        {"false_alarms": false_alarms(args.raters, args.seed), "seen": detection(args.raters, args.seed + 1)}, indent=2
    )
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


def false_alarms(raters: int, seed: int) -> dict[str, dict[str, float]]:
    """By distribution and threshold: the share of raters with a false alarm within 1,000 ratings."""
    rates = {}
    for name, distribution in DISTRIBUTIONS.items():
        rows = stars(np.random.default_rng(seed), distribution, (raters, 1000))
        rates[name] = {f"h={h:g}": share(first_alarm(row, h) is not None for row in rows) for h in (8.0, 9.0, 10.0, 12.0)}
    return rates


def detection(raters: int, seed: int) -> dict[str, dict[str, float]]:
    """By shift: median ratings until it is detected, and the share detected within 100; default threshold, lenient raters."""
    base = stars(np.random.default_rng(seed), DISTRIBUTIONS["lenient"], (raters, 400)).astype(float)
    results = {}
    for shift in (0.5, 1.0, 1.5, 2.0):
        delays = []
        for row in base:
            shifted = row.copy()
            shifted[200:] = np.maximum(1, shifted[200:] - shift)  # stricter than before
            alarm = first_alarm(shifted, H)
            if alarm is None or alarm >= 200:
                delays.append(np.inf if alarm is None else alarm - 199)
        results[f"-{shift} stars"] = {
            "median_ratings": float(np.median(delays)),
            "within_100": share(delay <= 100 for delay in delays),
        }
    return results


def share(hits: Iterable[bool]) -> float:
    return round(float(np.mean(list(hits))), 4)


if __name__ == "__main__":
    main()
