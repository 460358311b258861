"""Has a rater changed? A self-starting CUSUM over the rater's distance from the others; and other signs of careless rating.

    detector = DriftDetector()
    alarm = detector.add(residual)        # "up" (more lenient than before), "down" (stricter), or None

Each distance is standardised by all the rater's earlier ones, so no baseline has to be chosen (Hawkins 1987): with mean m and
deviation s of the n - 1 before, t = (x - m) / s * sqrt((n - 1) / n) follows Student's law with n - 2 degrees of freedom, and
Wallace's transform (1959) makes it normal. Then the two-sided tabular CUSUM (Page 1954) of u, clipped at 2 because stars have
long tails: S+ = max(0, S+ + u - k), S- likewise; alarm above h, and the rater's new level becomes the baseline. k = 0.5 looks
for shifts of one deviation. h = 9 keeps false alarms below 3 in 100 raters per 1,000 ratings each, for every law of ratings
tried (`benchmarks/rater_drift.py`).
"""

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

K = 0.5  # in deviations; half of the shift to detect
H = 9.0
CLIP = 2.0  # deviations; one unusual rating is not drift
WARM_UP = 12  # ratings before the first check
FEW_RATERS = 15
RECENT, MIN_OTHERS = 400, 20  # ratings by anybody; how many of them must be by others
FAST_S, PAUSE_S = 5.0, 600.0  # nobody reads an answer in five seconds; after ten minutes a new session begins
STEPS = (1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600)  # seconds between two ratings
RUN_P = 1e-3  # a run of the same rating this improbable raises an alert


@dataclass
class DriftDetector:
    """The CUSUM of one rater."""

    h: float = H
    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    up: float = 0.0
    down: float = 0.0

    def add(self, x: float) -> Literal["up", "down"] | None:
        u = self._standardised(x)
        if u is not None:
            self.up = max(0.0, self.up + u - K)
            self.down = max(0.0, self.down - u - K)
        if max(self.up, self.down) > self.h:
            direction: Literal["up", "down"] = "up" if self.up > self.down else "down"
            self.n, self.mean, self.squares, self.up, self.down = 0, 0.0, 0.0, 0.0, 0.0
            return direction
        self.n += 1
        distance = x - self.mean
        self.mean += distance / self.n
        self.squares += distance * (x - self.mean)
        return None

    def _standardised(self, x: float) -> float | None:
        """The new distance as a normal deviate, given the earlier ones."""
        if self.n < WARM_UP:
            return None
        # Ratings are whole stars: without a floor, a different star after ten equal ones would be infinitely far away.
        s = max(math.sqrt(self.squares / (self.n - 1)), 0.3)
        t = (x - self.mean) / s * math.sqrt(self.n / (self.n + 1))
        v = self.n - 1
        u = (8 * v + 1) / (8 * v + 3) * math.sqrt(v * math.log1p(t * t / v))
        return math.copysign(min(u, CLIP), t)


class RecentRatings:
    """The last ratings by anybody, so that each can be compared with what the others gave at that time.

    Among few raters, one who changes would shift the mean and make everybody else look changed; so the median of the raters'
    means counts. Among many it is the plain mean, which is faster.
    """

    def __init__(self) -> None:
        self._last: deque[tuple[str, int]] = deque()
        self._sum: Counter[str] = Counter()
        self._n: Counter[str] = Counter()
        self._total = 0

    def residual(self, rater: str, value: int) -> float | None:
        """The distance from the others, before this rating joins them; None while there are too few others."""
        others = len(self._last) - self._n.get(rater, 0)
        distance = value - self._level(rater, others) if others >= MIN_OTHERS else None
        self._add(rater, value)
        return distance

    def _level(self, rater: str, others: int) -> float:
        if len(self._n) > FEW_RATERS:
            return (self._total - self._sum[rater]) / others
        return median(self._sum[name] / n for name, n in self._n.items() if name != rater)

    def _add(self, rater: str, value: int) -> None:
        self._last.append((rater, value))
        self._sum[rater] += value
        self._n[rater] += 1
        self._total += value
        if len(self._last) > RECENT:
            oldest, old_value = self._last.popleft()
            self._sum[oldest] -= old_value
            self._n[oldest] -= 1
            self._total -= old_value
            if not self._n[oldest]:
                del self._n[oldest], self._sum[oldest]


@dataclass
class RatingHabit:
    """Speed and sameness of one rater's ratings, in the order they were given."""

    last_value: int | None = None
    run: int = 0
    longest: int = 0
    longest_value: int | None = None
    last_time: float | None = None
    gaps: list[int] = field(default_factory=lambda: [0] * (len(STEPS) + 1))
    fast: int = 0

    def add(self, value: int, time: float) -> None:
        self.run = self.run + 1 if value == self.last_value else 1
        self.last_value = value
        if self.run > self.longest:
            self.longest, self.longest_value = self.run, value
        if self.last_time is not None and 0 <= time - self.last_time < PAUSE_S:
            gap = time - self.last_time
            self.gaps[next(index for index, step in enumerate((*STEPS, math.inf)) if gap <= step)] += 1
            self.fast += gap < FAST_S
        self.last_time = time

    @property
    def sittings(self) -> int:
        """Ratings that followed another one in the same session."""
        return sum(self.gaps)

    @property
    def median_gap_s(self) -> int | None:
        """Half of the ratings took at most so long; None without any."""
        counted = 0
        for step, n in zip(STEPS, self.gaps, strict=False):
            counted += n
            if 2 * counted >= self.sittings > 0:
                return step
        return None


def run_probability(length: int, share: float, n: int) -> float:
    """Probability of a run of at least this length somewhere in n ratings, if others give this value so often (union bound)."""
    if length == 0 or n == 0:
        return 1.0
    return min(1.0, (1 + max(0, n - length) * (1 - share)) * share**length)
