"""Has a judge drifted? Its newest card against the one before, and what it says about fresh traffic against what it said then.

    card_shifts(newest, before, DriftConfig())             # recall, precision or agreement that fell
    traffic_shifts(card.traffic, fresh, DriftConfig())     # other shares of firing or missing, another mean

A shift counts when it is large (a bound) and when chance alone would hardly bring it (`Z` standard errors). Only the same
version of a judge is compared on traffic. Cards are compared by the judge's name: a new version that agrees less is worth an
alert, too, but nothing has drifted there, so such a shift is marked (`changed`) and the alert says so.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from medloop.contracts import Contract
from medloop.contracts.base import Unit
from medloop.contracts.validity import ALL, UPPER, JudgeProfile, Quantity, ValidityCard

Z = 3.0  # standard errors: many judges are looked at, again and again
Shifted = Quantity | Literal["firing", "mean", "missing"]


class DriftConfig(Contract):
    """When a shift raises an alert."""

    fall: Unit = 0.1
    """Fall of recall, precision or agreement, or rise of misses, false alarms or unknowns, between two cards."""
    shift: Unit = 0.15
    """Change of the share a judge fires on, of its mean, or of the share without a score."""
    min_cases: int = Field(50, ge=2)
    """With fewer cases or exchanges on either side nothing is compared."""
    traces: int = Field(500, ge=0, le=100_000)
    """Newest exchanges that are read; 0 compares only cards."""


@dataclass(frozen=True)
class JudgeShift:
    """One judge that says something else than before; `n` texts were looked at now. `changed`: by another version of it."""

    judge: str
    quantity: Shifted
    before: float
    after: float
    n: int
    changed: bool = False


def card_shifts(newest: ValidityCard, before: ValidityCard, config: DriftConfig) -> Iterator[JudgeShift]:
    """What agrees less with people than on the card before."""
    old = {(row.judge, row.quantity): row.value for row in before.measures if row.slice == ALL}
    versions = {row.judge: row.version for row in before.judges}
    changed = {row.judge for row in newest.judges if versions.get(row.judge, row.version) != row.version}
    for row in (row for row in newest.measures if row.slice == ALL):
        value, earlier = row.value, old.get((row.judge, row.quantity))
        if earlier is None or value.mean is None or earlier.mean is None or min(value.n, earlier.n) < config.min_cases:
            continue
        worse_by = (value.mean - earlier.mean) if row.quantity in UPPER else (earlier.mean - value.mean)
        if worse_by >= config.fall and _is_clear(earlier.mean, earlier.n, value.mean, value.n):
            yield JudgeShift(row.judge, row.quantity, earlier.mean, value.mean, value.n, row.judge in changed)


def traffic_shifts(baseline: Sequence[JudgeProfile], fresh: Sequence[JudgeProfile], config: DriftConfig) -> Iterator[JudgeShift]:
    """What a judge says about fresh traffic otherwise than about the texts of its card."""
    then = {(row.judge, row.version): row for row in baseline}
    for now in fresh:
        row = then.get((now.judge, now.version))
        if row is None or min(row.n, now.n) < config.min_cases:
            continue
        for quantity, first, second in (("firing", row.firing, now.firing), ("missing", row.missing, now.missing)):
            if abs(second - first) >= config.shift and _is_clear(first, row.n, second, now.n):
                yield JudgeShift(now.judge, quantity, first, second, now.n)  # type: ignore[arg-type]
        if row.mean is not None and now.mean is not None and abs(now.mean - row.mean) >= config.shift:
            yield JudgeShift(now.judge, "mean", row.mean, now.mean, now.n)


def _is_clear(first: float, n_first: int, second: float, n_second: int) -> bool:
    """Whether two shares differ by more than `Z` standard errors of their difference, were there none."""
    pooled = (first * n_first + second * n_second) / (n_first + n_second)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n_first + 1 / n_second))
    return abs(second - first) > Z * error
