"""Means with percentile bootstrap intervals (Efron & Tibshirani 1993, chapter 13), reproducible by seed and name."""

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import Interval

LEVEL = 0.95
RESAMPLES = 2000
CHUNK = 4_000_000  # numbers held at once


def interval(values: Sequence[float], *, seed: int, name: str, missing: int = 0, resamples: int = RESAMPLES) -> Interval:
    """The mean of `values` with its interval; without values there is no mean.

    `name` gives each metric its own random stream, so that adding a metric does not change the others.
    """
    if not values:
        return Interval(mean=None, n=0, missing=missing, level=LEVEL)
    data = np.asarray(values, dtype=np.float64)
    means = resampled_means(data, seed=seed, name=name, resamples=resamples)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(mean=float(data.mean()), low=float(low), high=float(high), n=len(data), missing=missing, level=LEVEL)


def resampled_means(data: NDArray[np.float64], *, seed: int, name: str, resamples: int) -> NDArray[np.float64]:
    """(n,) -> (resamples,): means of n draws with replacement."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    means = np.empty(resamples)
    step = max(1, CHUNK // len(data))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        means[start : start + size] = data[rng.integers(0, len(data), (size, len(data)))].mean(axis=1)
    return means
