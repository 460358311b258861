"""Do raters agree more than by chance? Krippendorff's alpha, Cohen's and Fleiss' kappa; with numpy alone.

    table = rating_table([[1, 1], [2, 3, 2], [5]], values=(1, 2, 3, 4, 5))    # one row per unit, one column per value
    alpha(table, "ordinal")                                               # 1 is perfect, 0 is chance, below 0 is worse
    alpha_interval(table, "ordinal", seed=42)                             # bootstrap over units

Alpha takes any number of raters and any gaps: a unit enters with the ratings it has, and one rating alone says nothing about
agreement. All that alpha needs of a unit is how often each value was given, so units with the same counts are one row with a
multiplicity: a million units of five stars are some hundred rows, and the bootstrap draws from those.
Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011); Cohen 1960, 1968; Fleiss 1971.

Where all ratings are the same, agreement is not defined: the value is None, not 1.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from medloop.bootstrap import LEVEL, RESAMPLES, percentile_interval
from medloop.contracts import Interval

Floats = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]
Weighting = Literal["none", "linear", "quadratic"]


@dataclass(frozen=True)
class RatingTable:
    """(rows, values): how often each value was given in a unit; `multiplicity` is how many units have these counts."""

    values: Floats
    rows: Floats
    multiplicity: Floats

    @property
    def units(self) -> int:
        return int(self.multiplicity.sum())

    @property
    def ratings(self) -> int:
        return int((self.rows.sum(axis=1) * self.multiplicity).sum())


def rating_table(units: Iterable[Iterable[float]], values: Sequence[float]) -> RatingTable:
    """The table of units, each given as its ratings; units with fewer than two ratings are left out. `values` ascend."""
    column = {value: index for index, value in enumerate(values)}
    patterns: Counter[tuple[int, ...]] = Counter()
    for unit in units:
        row = [0] * len(values)
        for rating in unit:
            row[column[rating]] += 1
        if sum(row) > 1:
            patterns[tuple(row)] += 1
    return table_from_patterns(patterns, values)


def table_from_patterns(patterns: Counter[tuple[int, ...]], values: Sequence[float]) -> RatingTable:
    """The same from counts of equal units."""
    rows = np.array(list(patterns), dtype=np.float64).reshape(-1, len(values))
    return RatingTable(np.asarray(values, dtype=np.float64), rows, np.array(list(patterns.values()), dtype=np.float64))


def alpha(table: RatingTable, level: Level) -> float | None:
    """alpha = 1 - observed disagreement / disagreement expected by chance."""
    if not len(table.rows):
        return None
    value = _alphas(table, level, table.multiplicity[np.newaxis, :])[0]
    return float(value) if np.isfinite(value) else None


def alpha_interval(table: RatingTable, level: Level, *, seed: int, name: str = "alpha", resamples: int = RESAMPLES) -> Interval:
    """Alpha with the percentile interval of a bootstrap over units; `n` counts units with two ratings or more."""
    value = alpha(table, level)
    if value is None:
        return Interval(n=table.units, level=LEVEL)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    # Drawing units with replacement is drawing how often each pattern comes up.
    drawn = rng.multinomial(table.units, table.multiplicity / table.units, size=resamples).astype(np.float64)
    resampled = _alphas(table, level, drawn)
    low, high = percentile_interval(resampled[np.isfinite(resampled)])
    return Interval(mean=value, low=low, high=high, n=table.units, level=LEVEL)


def _alphas(table: RatingTable, level: Level, multiplicity: Floats) -> Floats:
    """(draws, rows) of multiplicities -> (draws,). NaN where only one value occurs.

    Coincidences of a unit with m ratings: n_c (n_k - [c = k]) / (m - 1), so each rating enters once.
    """
    rows = table.rows
    within = rows[:, :, None] * rows[:, None, :] - rows[:, :, None] * np.eye(rows.shape[1])
    within /= (rows.sum(axis=1) - 1)[:, None, None]
    coincidences = np.tensordot(multiplicity, within, axes=1)  # (draws, values, values)
    totals = coincidences.sum(axis=2)
    distance = _distances(table.values, totals, level)
    n = totals.sum(axis=1)
    observed = (coincidences * distance).sum(axis=(1, 2))
    by_chance = totals[:, :, None] * totals[:, None, :] - totals[:, :, None] * np.eye(rows.shape[1])
    expected = (by_chance * distance).sum(axis=(1, 2)) / (n - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(expected > 0, 1 - observed / expected, np.nan))


def _distances(values: Floats, totals: Floats, level: Level) -> Floats:
    """Squared distance of two values, (draws or 1, values, values); ordinal ones depend on how often the ranks occur."""
    if level == "nominal":
        return np.asarray(1 - np.eye(len(values)))[None]
    if level == "interval":
        return np.asarray((values[:, None] - values[None, :]) ** 2)[None]
    # Ratings from c to k, the two ends counted half: n_c/2 + n_c+1 + ... + n_k/2.
    middle = np.cumsum(totals, axis=1) - totals / 2
    return np.asarray((middle[:, :, None] - middle[:, None, :]) ** 2)


def cohen_kappa(table: Floats, weighting: Weighting = "none") -> float | None:
    """Kappa of two raters from their table (values of the first, of the second); weights penalise distance in ranks.

    1 - sum(w * observed) / sum(w * expected): w is 0 on the diagonal, 1 (none), the distance (linear) or its square off it.
    """
    observed = np.asarray(table, dtype=np.float64)
    n = observed.sum()
    if n == 0:
        return None
    ranks = np.arange(len(observed))
    distance = np.abs(ranks[:, None] - ranks[None, :]).astype(np.float64)
    weights = {"none": (distance > 0).astype(np.float64), "linear": distance, "quadratic": distance**2}[weighting]
    expected = (weights * np.outer(observed.sum(axis=1), observed.sum(axis=0))).sum() / n
    return None if expected == 0 else float(1 - (weights * observed).sum() / expected)


def fleiss_kappa(table: RatingTable) -> float | None:
    """Fleiss' kappa; None unless every unit has the same number of ratings."""
    sizes = table.rows.sum(axis=1)
    if not len(sizes) or (sizes != sizes[0]).any():
        return None
    m = sizes[0]
    agreed = ((table.rows**2).sum(axis=1) - m) / (m * (m - 1))
    observed = float((agreed * table.multiplicity).sum() / table.units)
    shares = (table.rows * table.multiplicity[:, None]).sum(axis=0) / table.ratings
    by_chance = float((shares**2).sum())
    return None if by_chance == 1 else (observed - by_chance) / (1 - by_chance)
