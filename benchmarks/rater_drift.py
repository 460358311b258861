"""False alarms and delays of the drift test for raters, by simulation.

    python benchmarks/rater_drift.py --raters 2000

A rater without drift gives stars by a fixed law around the others' mean; one with drift adds a shift after 200 ratings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from medloop.feedback.insight.drift import DriftDetector, H

LAWS = {
    "even": (0.2, 0.2, 0.2, 0.2, 0.2),
    "mild": (0.03, 0.07, 0.15, 0.35, 0.40),
    "two heaps": (0.4, 0.1, 0.0, 0.1, 0.4),
    "nearly always five": (0.01, 0.01, 0.01, 0.02, 0.95),
}


def stars(rng: np.random.Generator, law: tuple[float, ...], shape: tuple[int, int]) -> np.ndarray:
    return rng.choice(np.arange(1, 6), size=shape, p=law)


def first_alarm(row: np.ndarray, h: float) -> int | None:
    watch = DriftDetector(h=h)
    return next((at for at, x in enumerate(row) if watch.add(float(x)) is not None), None)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--raters", type=int, default=1000)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--out", type=Path, help="JSON file for the results")
    given = args.parse_args()
    found = json.dumps(
        {"false_alarms": false_alarms(given.raters, given.seed), "seen": seen(given.raters, given.seed + 1)}, indent=2
    )
    print(found)
    if given.out:
        given.out.write_text(found + "\n", encoding="utf-8")


def false_alarms(raters: int, seed: int) -> dict[str, dict[str, float]]:
    """By law and threshold: the share of raters with a false alarm within 1,000 ratings."""
    found = {}
    for name, law in LAWS.items():
        rows = stars(np.random.default_rng(seed), law, (raters, 1000))
        found[name] = {f"h={h:g}": share(first_alarm(row, h) is not None for row in rows) for h in (8.0, 9.0, 10.0, 12.0)}
    return found


def seen(raters: int, seed: int) -> dict[str, dict[str, float]]:
    """By shift: ratings until it is seen, in the median, and the share seen within 100; the default threshold, law 'mild'."""
    base = stars(np.random.default_rng(seed), LAWS["mild"], (raters, 400)).astype(float)
    found = {}
    for shift in (0.5, 1.0, 1.5, 2.0):
        delays = []
        for row in base:
            moved = row.copy()
            moved[200:] = np.maximum(1, moved[200:] - shift)  # stricter than before
            at = first_alarm(moved, H)
            if at is None or at >= 200:
                delays.append(np.inf if at is None else at - 199)
        found[f"-{shift} stars"] = {"median_ratings": float(np.median(delays)), "within_100": share(at <= 100 for at in delays)}
    return found


def share(hits: Iterable[bool]) -> float:
    return round(float(np.mean(list(hits))), 4)


if __name__ == "__main__":
    main()
