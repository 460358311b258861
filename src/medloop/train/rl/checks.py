"""The answers of a held-out check, and who audits them. No torch: loop/audit.py has the audit of the commands."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from medloop.contracts import Reward, Sample


class CheckedAnswer(NamedTuple):
    """`likelihood` is the mean log-probability per token under the frozen reference, `kl` the distance from it in nats."""

    sample: Sample
    reward: Reward
    truncated: bool | None = None
    likelihood: float | None = None
    kl: float | None = None


Answers = Sequence[CheckedAnswer]


@dataclass(frozen=True)
class AuditResult:
    """`alarms` came with training; `standing` were there before it. Means of this check are `measures`, of the first `before`."""

    alarms: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    measures: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)


class Audit(Protocol):
    """Who looks at the answers: of held-out checks against the first one, and of training batches."""

    @property
    def note(self) -> str | None: ...  # what it cannot see
    def check(self, before: Answers, now: Answers, *, looks: int) -> AuditResult: ...
    def screen(self, answers: Answers) -> dict[str, tuple[float, float]]: ...  # means and their standard errors
    def bounds(self) -> dict[str, float]: ...


class NoAudit:
    """Nobody looks."""

    @property
    def note(self) -> str | None:
        return None

    def check(self, before: Answers, now: Answers, *, looks: int) -> AuditResult:
        return AuditResult()

    def screen(self, answers: Answers) -> dict[str, tuple[float, float]]:
        return {}

    def bounds(self) -> dict[str, float]:
        return {}
