"""Is a model at most `margin` worse than another one on the same cases? One-sided, with a level that holds for few cases, too.

    test = non_inferior(PairedSpread(n=200, mean=-0.01, sd=0.2, rose=3, fell=5, whole=True), margin=0.05)
    test.outcome     # pass: a loss of the margin or more is excluded; fail: worse beyond the margin, clearly; else no evidence

A plain bootstrap or t-interval of differences is too sure of itself where few cases changed: forty cases without any change do
not exclude that one case in twenty got worse. So one imagined case with the largest possible loss is added before the t-test (as
Agresti & Min 2005 add cases to paired proportions). Where every difference is -1, 0 or 1 and there are at most EXACT_CASES, the
p-value is exact: the probability of all outcomes at least as good, at the worst share of improved cases that the data allow
(Berger & Boos 1994). `tests/evaluate/gate/test_noninferiority.py` simulates models at the margin.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from medloop.bootstrap import Numbers, student_tail
from medloop.contracts.evaluation import PairedSpread
from medloop.contracts.gate import GateOutcome

EXACT_CASES = 250
NUISANCES = 24  # shares of improved cases that are tried
NUISANCE_LEVEL = 0.002  # of the interval that they come from; added to the exact p-value
BISECTIONS = 30


@dataclass(frozen=True)
class NonInferiority:
    """Second minus first in the direction that is good; `low` and `high` are one-sided bounds at the level of the test."""

    outcome: GateOutcome
    p: float
    mean: float
    low: float
    high: float
    needed: int | None = None
    """About how many cases would show it, where the evidence is not enough and the mean is within the margin."""


def non_inferior(spread: PairedSpread, *, margin: float, level: float = 0.95) -> NonInferiority:
    """`spread` in the direction that is good (`oriented`)."""
    assert margin > 0 and spread.n > 1, "a margin of 0 cannot be shown, and neither can anything with one case"
    low, error = _bound(spread, level)
    high = -_bound(spread.flipped(), level)[0]
    p = _tail(spread, margin)
    if spread.whole and spread.n <= EXACT_CASES:
        p = exact_p(spread.rose, spread.fell, spread.n, round(margin, 9))
    if p <= 1 - level:
        return NonInferiority("pass", p, spread.mean, low, high)
    if spread.mean < -margin and high < 0:
        return NonInferiority("fail", p, spread.mean, low, high)
    room = spread.mean + margin
    needed = None if room <= 0 else math.ceil((error * _quantile(level, spread.n) / room) ** 2 * spread.n)
    return NonInferiority("not_enough_evidence", p, spread.mean, low, high, None if needed is None else max(needed, spread.n + 1))


def _augmented(spread: PairedSpread) -> tuple[float, float]:
    """Mean and standard error with one more case, which lost everything."""
    n = spread.n + 1
    mean = (spread.n * spread.mean - 1) / n
    squares = (spread.n - 1) * spread.sd**2 + spread.n * spread.mean**2 + 1
    return mean, math.sqrt(max(squares - n * mean**2, 0.0) / (n - 1) / n)


def _bound(spread: PairedSpread, level: float) -> tuple[float, float]:
    mean, error = _augmented(spread)
    return mean - _quantile(level, spread.n) * error, error


def _tail(spread: PairedSpread, margin: float) -> float:
    mean, error = _augmented(spread)
    return 0.5 if error == 0 else student_tail((mean + margin) / error, spread.n)


@lru_cache(maxsize=4096)
def _quantile(level: float, df: int) -> float:
    """Student's t, by bisection of its tail."""
    low, high = 0.0, 100.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, df) > 1 - level else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=4096)
def exact_p(rose: int, fell: int, n: int, margin: float) -> float:
    """The p-value of a loss of `margin` for paired proportions: every (rose, fell) at least as good as the one that was seen."""
    ups, downs = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    inside = ups + downs <= n
    ups, downs = ups[inside], downs[inside]
    as_good = _statistic(ups, downs, n, margin) >= float(_statistic(np.array([rose]), np.array([fell]), n, margin)[0]) - 1e-12
    ups, downs = ups[as_good], downs[as_good]
    log_factorials = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))
    ways = log_factorials[n] - log_factorials[ups] - log_factorials[downs] - log_factorials[n - ups - downs]
    low, high = _share_interval(rose, n, log_factorials)
    highest = (1 - margin) / 2
    shares = np.linspace(min(low, highest), min(high, highest), NUISANCES)
    p = max(float(np.exp(ways + _log_chance(ups, downs, n, share, share + margin)).sum()) for share in shares)
    return min(1.0, p + NUISANCE_LEVEL)


def _statistic(ups: Numbers, downs: Numbers, n: int, margin: float) -> Numbers:
    """The same t as in `_tail`, for every outcome at once."""
    mean = (ups - downs - 1) / (n + 1)
    error = np.sqrt(np.maximum(ups + downs + 1 - (n + 1) * mean**2, 1e-12) / n / (n + 1))
    return np.asarray((mean + margin) / error)


def _log_chance(ups: Numbers, downs: Numbers, n: int, up: float, down: float) -> Numbers:
    same = max(1 - up - down, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [
            np.where(count > 0, count * np.log(share), 0.0)
            for count, share in ((ups, up), (downs, down), (n - ups - downs, same))
        ]
    return np.asarray(terms[0] + terms[1] + terms[2])


def _share_interval(hits: int, n: int, log_factorials: Numbers) -> tuple[float, float]:
    """Clopper & Pearson (1934), by bisection."""
    counts = np.arange(n + 1)
    ways = log_factorials[n] - log_factorials - log_factorials[::-1]

    def at_least(share: float, k: int) -> float:
        chance = np.exp(ways + counts * math.log(share) + (n - counts) * math.log1p(-share))
        return float(chance[k:].sum())

    def solve(k: int, target: float) -> float:
        low, high = 1e-9, 1 - 1e-9
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if at_least(middle, k) < target else (low, middle)
        return (low + high) / 2

    low = 0.0 if hits == 0 else solve(hits, NUISANCE_LEVEL / 2)
    high = 1.0 if hits == n else solve(hits + 1, 1 - NUISANCE_LEVEL / 2)
    return low, high
