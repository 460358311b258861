"""What a judge says about texts, whatever people say about them: how often it fires, its mean, how often it has no score."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from medloop.contracts import Missing, Reward
from medloop.contracts.detect import Urgency
from medloop.contracts.validity import MIX, URGENCY, JudgeProfile


@dataclass
class _Sums:
    n: int = 0
    firing: int = 0
    missing: int = 0
    scored: int = 0
    total: float = 0.0

    def add(self, value: float | None, *, fires: bool, missing: bool) -> None:
        self.n, self.firing, self.missing = self.n + 1, self.firing + fires, self.missing + missing
        if value is not None:
            self.scored, self.total = self.scored + 1, self.total + value


@dataclass
class Profiler:
    """Counts what each judge says, text by text."""

    sums: dict[str, _Sums] = field(default_factory=dict)

    def add(self, reward: Reward, faults: Mapping[str, bool | None]) -> None:
        """One answer; `faults` says which parts see a fault in it."""
        self._of(MIX).add(reward.value, fires=False, missing=reward.value is None)
        for part in reward.parts:
            if part.name in faults:
                value = None if isinstance(part, Missing) or not part.applies else part.value
                self._of(part.name).add(value, fires=bool(faults[part.name]), missing=isinstance(part, Missing))

    def add_urgency(self, finding: Urgency) -> None:
        """One question: the detector fires on emergencies; unknown is missing."""
        self._of(URGENCY).add(None, fires=finding.level == "emergent", missing=finding.level == "unknown")

    def _of(self, judge: str) -> _Sums:
        return self.sums.setdefault(judge, _Sums())

    def profiles(self, versions: Mapping[str, str]) -> tuple[JudgeProfile, ...]:
        return tuple(
            JudgeProfile(
                judge=judge, version=versions.get(judge) or "unknown", n=row.n, firing=row.firing / row.n,
                missing=row.missing / row.n, mean=row.total / row.scored if row.scored else None,
            )
            for judge, row in sorted(self.sums.items())
        )  # fmt: skip
