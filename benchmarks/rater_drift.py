"""False alarms and delays of the drift test for raters, by simulation.

    python benchmarks/rater_drift.py --raters 2000

A rater without drift gives stars by a fixed law around the others' mean; one with drift adds a shift after 200 ratings.
"""

from __future__ import annotations

import argparse

import numpy as np

from medloop.feedback.drift import Drift, H

LAWS = {
    "even": (0.2, 0.2, 0.2, 0.2, 0.2),
    "mild": (0.03, 0.07, 0.15, 0.35, 0.40),
    "two heaps": (0.4, 0.1, 0.0, 0.1, 0.4),
    "nearly always five": (0.01, 0.01, 0.01, 0.02, 0.95),
}


def stars(rng: np.random.Generator, law: tuple[float, ...], shape: tuple[int, int]) -> np.ndarray:
    return rng.choice(np.arange(1, 6), size=shape, p=law)


def first_alarm(row: np.ndarray, h: float) -> int | None:
    watch = Drift(h=h)
    return next((at for at, x in enumerate(row) if watch.add(float(x)) is not None), None)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--raters", type=int, default=1000)
    args.add_argument("--seed", type=int, default=1)
    given = args.parse_args()
    print("share of raters with a false alarm within 1,000 ratings")
    print(f"{'law':20} " + " ".join(f"h={h:<6}" for h in (8, 9, 10, 12)))
    for name, law in LAWS.items():
        rng = np.random.default_rng(given.seed)
        rows = stars(rng, law, (given.raters, 1000))
        shares = [np.mean([first_alarm(row, h) is not None for row in rows]) for h in (8.0, 9.0, 10.0, 12.0)]
        print(f"{name:20} " + " ".join(f"{share:7.1%} " for share in shares))
    print(f"\nratings until a shift is seen, median (share seen within 100), h={H:g}, law 'mild'")
    rng = np.random.default_rng(given.seed + 1)
    base = stars(rng, LAWS["mild"], (given.raters, 400)).astype(float)
    for shift in (0.5, 1.0, 1.5, 2.0):
        delays = []
        for row in base:
            moved = row.copy()
            moved[200:] = np.maximum(1, moved[200:] - shift)  # stricter than before
            at = first_alarm(moved, H)
            if at is None or at >= 200:
                delays.append(np.inf if at is None else at - 199)
        print(f"  -{shift} stars: {np.median(delays):.0f} ({np.mean(np.array(delays) <= 100):.0%})")


if __name__ == "__main__":
    main()
