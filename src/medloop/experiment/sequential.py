"""The tests that may be looked at after every user: an interval for a difference of means, and an e-value for counts of events.

    half_width(n, se, plan)                        # of the confidence sequence, at n users
    ratio_e_value(arms, split, HARM)               # how strongly events speak against equal rates

**Means.** Asymptotic confidence sequence with the Gaussian mixture boundary (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas,
*Time-uniform central limit theory and asymptotic confidence sequences*, Annals of Statistics 2024, arXiv:2103.06476). A boundary
of level a is crossed with probability a by a path that never ends. An experiment ends at its planned number of users, so
`calibrate` finds the level whose crossing *until then* has the wanted probability; past the planned end nothing is read.

**Events.** Every event of a guard (a user's first critical flag, say) fell on the challenger with probability `split` if it makes
no difference. The product of likelihood ratios against that is a nonnegative martingale, its mixture over a few ratios of rates
too, and by Ville's inequality it exceeds 1 / alpha with probability at most alpha, for any number of looks and without any
large-sample argument (Lindon & Malek, *Anytime-valid inference for multinomial count data*, NeurIPS 2022; Ramdas et al.,
*Game-theoretic statistics and safe anytime-valid inference*, Statistical Science 2023).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
HARM = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)  # rates of the challenger over those of the champion that a guard looks for
EITHER_WAY = (1 / 3, 0.5, 2 / 3, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, 3.0)  # of a broken split
FIRST_LOOK = 0.02  # of the planned users; earlier there is no verdict on means
PATHS, STEPS = 20_000, 600  # of the simulated Brownian motions
MARGIN = 0.95  # of the level, for the error of the simulation and of the steps
_SEED = 2103_06476


@dataclass(frozen=True)
class Boundary:
    """A mixture boundary: level, and the number of users at which it is tightest."""

    alpha: float
    tightest_at: float

    def thresholds(self, n: Numbers) -> Numbers:
        """(k,) users -> (k,) the z-value beyond which the interval excludes 0."""
        x = np.asarray(n, dtype=np.float64) / self.tightest_at * _best_ratio(self.alpha)
        return np.asarray(np.sqrt(2 * (x + 1) / x * np.log(np.sqrt(x + 1) / self.alpha)))


@cache
def _best_ratio(alpha: float) -> float:
    """x = n * rho^2 at which the boundary is lowest, for this level."""
    x = np.geomspace(0.05, 60, 4000)
    return float(x[np.argmin((x + 1) / x * np.log(np.sqrt(x + 1) / alpha))])


def half_width(n: int, standard_error: float, boundary: Boundary) -> float:
    return standard_error * float(boundary.thresholds(np.array([float(n)]))[0])


def arm_variance(n: Numbers, total: Numbers, squares: Numbers) -> Numbers:
    """Variance of a metric between 0 and 1, with half an observation at each end, so that few users do not look certain."""
    mean = (total + 0.5) / (n + 1)
    return np.asarray((squares + 0.5) / (n + 1) - mean**2)


@cache
def _paths() -> tuple[Numbers, NDArray[np.float32]]:
    """Times in (0, 1] and Brownian motions at them: (k,), (paths, k)."""
    times = np.geomspace(FIRST_LOOK, 1.0, STEPS)
    steps = np.sqrt(np.diff(times, prepend=0.0))
    moves = np.random.default_rng(_SEED).standard_normal((PATHS, STEPS), dtype=np.float32) * steps
    return times.astype(np.float64), np.asarray(np.cumsum(moves, axis=1) / np.sqrt(times), dtype=np.float32)


@cache
def calibrate(alpha: float) -> float:
    """The level of a boundary that a path without drift crosses, on either side until the planned end, with this probability."""
    times, z = _paths()
    low, high = alpha, 0.9
    extremes = np.abs(z)
    for _ in range(24):
        middle = math.sqrt(low * high)
        crossed = float((extremes > Boundary(middle, 1.0).thresholds(times)).any(axis=1).mean())
        low, high = (low, middle) if crossed > alpha * MARGIN else (middle, high)
    return low


@cache
def inflation(alpha: float, power: float, fixed_alpha: float) -> float:
    """How many times the users of a fixed two-sided test at `fixed_alpha` the sequential test needs for the same power."""
    times, z = _paths()
    normal = NormalDist()
    drift = normal.inv_cdf(1 - fixed_alpha / 2) + normal.inv_cdf(power)
    thresholds = Boundary(calibrate(alpha), 1.0).thresholds(times)
    low, high = 0.5, 8.0
    for _ in range(20):
        middle = (low + high) / 2
        reached = float((z + drift * np.sqrt(middle * times) > thresholds).any(axis=1).mean())
        low, high = (middle, high) if reached < power else (low, middle)
    return high


def fixed_users(*, effect: float, spread: float, split: float, alpha: float, power: float) -> int:
    """Users of both arms together that a two-sided test with a single look needs."""
    normal = NormalDist()
    z = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)
    return math.ceil((z * spread / effect) ** 2 * (1 / split + 1 / (1 - split)))


def ratio_log_e(hits: Numbers, misses: Numbers, split: float, ratios: Sequence[float], tolerated: float = 1.0) -> Numbers:
    """Counts of events on the challenger and on the champion so far -> log e-value, of the same shape."""
    null = _probability(split, tolerated)
    logs = []
    for ratio in ratios:
        other = _probability(split, tolerated * ratio)
        logs.append(hits * math.log(other / null) + misses * math.log((1 - other) / (1 - null)))
    stacked = np.stack(logs)
    top = stacked.max(axis=0)
    return np.asarray(top + np.log(np.exp(stacked - top).mean(axis=0)))


def ratio_e_value(arms: Sequence[bool], split: float, ratios: Sequence[float], tolerated: float = 1.0) -> float:
    """The largest e-value that was reached; 1 without events. It may be compared with 1 / alpha at any time."""
    if not arms:
        return 1.0
    hits = np.cumsum(np.asarray(arms, dtype=np.float64))
    peak = float(ratio_log_e(hits, np.arange(1, len(arms) + 1) - hits, split, ratios, tolerated).max())
    return math.exp(min(max(peak, 0.0), 700.0))


def _probability(split: float, ratio: float) -> float:
    """The share of events that fall on the challenger, if its rate is `ratio` times that of the champion."""
    return split * ratio / (split * ratio + 1 - split)
