"""Statistics that several stages share: means and shares with 95 % intervals, rank correlation, the tail of Student's t.

Intervals of means are percentile bootstraps (Efron & Tibshirani 1993, chapter 13), reproducible by seed and name.
"""

import math
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import Interval

Numbers = NDArray[np.float64]
LEVEL = 0.95
Z = 1.959963984540054  # of a normal distribution, for LEVEL
RESAMPLES = 2000
CHUNK = 4_000_000  # numbers held at once


def interval(
    values: Sequence[float], *, seed: int, name: str, missing: int = 0, resamples: int = RESAMPLES, level: float = LEVEL
) -> Interval:
    """The mean of `values` with its interval; without values there is no mean.

    `name` gives each metric its own random stream, so that adding a metric does not change the others.
    """
    if not values:
        return Interval(mean=None, n=0, missing=missing, level=level)
    data = np.asarray(values, dtype=np.float64)
    means = resampled_means(data, seed=seed, name=name, resamples=resamples)
    low, high = percentile_interval(means, level)
    return Interval(mean=float(data.mean()), low=low, high=high, n=len(data), missing=missing, level=level)


def percentile_interval(resampled: Numbers, level: float = LEVEL) -> tuple[float, float]:
    """The bounds between which `level` of the resampled values lie."""
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def resampled_means(data: Numbers, *, seed: int, name: str, resamples: int) -> Numbers:
    """(n,) -> (resamples,): means of n draws with replacement."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    means = np.empty(resamples)
    step = max(1, CHUNK // len(data))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        means[start : start + size] = data[rng.integers(0, len(data), (size, len(data)))].mean(axis=1)
    return means


def share_interval(hits: int, n: int) -> Interval:
    """A share with Wilson's interval; it has no mean when n is 0."""
    if n == 0:
        return Interval(n=0, level=LEVEL)
    low, high = wilson(hits, n)
    return Interval(mean=hits / n, low=low, high=high, n=n, level=LEVEL)


def wilson(hits: float, n: int) -> tuple[float, float]:
    """Wilson's interval of a share (1927), which is right near 0 and 1 and for few cases. A tie is half a hit."""
    if n == 0:
        return 0.0, 1.0
    share, scale = hits / n, 1 + Z**2 / n
    centre = (share + Z**2 / (2 * n)) / scale
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n * n)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def spearman(first: Numbers, second: Numbers) -> float | None:
    """Rank correlation; None where one of the two is constant."""
    ranks = [_ranks(first), _ranks(second)]
    if min(column.std() for column in ranks) == 0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Numbers) -> Numbers:
    """Ranks from 0; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - counts + ends - 1) / 2.0)[place]


def student_tail(t: float, df: int) -> float:
    """One-sided tail of Student's t, P(T > t), by Wallace's approximation (1959)."""
    z = (8 * df + 1) / (8 * df + 3) * math.sqrt(df * math.log1p(t * t / df))
    return math.erfc(math.copysign(z, t) / math.sqrt(2)) / 2
