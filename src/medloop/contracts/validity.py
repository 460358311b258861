"""How far a judge can be trusted: what it says against what people say, with intervals."""

from typing import Literal

from pydantic import Field, model_validator

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now
from medloop.contracts.detect import UrgencyLevel
from medloop.contracts.evaluation import Interval

Quantity = Literal["recall", "precision", "agreement"]
TrustVerdict = Literal["trusted", "untrusted", "unmeasured"]


class LabelledCase(Contract):
    """What people say about a question, an answer, or two answers.

    `urgency` labels the question. `faults` names parts of the reward that are penalties: true, if the answer has that fault.
    `chosen` and `rejected` are two answers of which people preferred the first.
    """

    id: Text
    question: Text
    answer: Text | None = None
    urgency: UrgencyLevel | None = None
    faults: dict[str, bool] = Field(default_factory=dict)
    chosen: Text | None = None
    rejected: Text | None = None
    source: Text | None = None
    labelled_by: Text | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "LabelledCase":
        if (self.chosen is None) != (self.rejected is None):
            raise ValueError("a pair needs both 'chosen' and 'rejected'")
        if self.faults and self.answer is None:
            raise ValueError("'faults' label an answer, but there is no 'answer'")
        if self.urgency is None and not self.faults and self.chosen is None:
            raise ValueError("the line has no label: give 'urgency', 'faults', or 'chosen' and 'rejected'")
        return self


class Validity(Contract):
    """One quantity of one judge on one slice of the cases ("all", "language=zh", "stratum=child", "source=clinic")."""

    judge: Text
    quantity: Quantity
    slice: Text
    value: Interval
    ties: int = Field(0, ge=0)


class JudgeTrust(Contract):
    """The verdict on one judge: `untrusted` below a bound, `unmeasured` without enough cases, which does not mean trusted."""

    judge: Text
    version: Text
    verdict: TrustVerdict
    reason: Text


class ValidityCard(Contract):
    """Every judge of one reward against one set of cases. Another version of the reward needs another card."""

    reward_version: Text
    cases: Hash
    n_cases: int = Field(ge=0)
    sources: tuple[str, ...] = ()
    judges: tuple[JudgeTrust, ...]
    measures: tuple[Validity, ...]
    bounds: dict[str, float]
    created: Timestamp = Field(default_factory=utc_now)

    def verdict_on(self, judge: str, version: str) -> JudgeTrust:
        """The verdict on this version of a judge; one that the card does not know is unmeasured."""
        known = next((row for row in self.judges if row.judge == judge), None)
        if known is None or known.version != version:
            reason = "it has never been measured" if known is None else f"only version {known.version} has been measured"
            return JudgeTrust(judge=judge, version=version, verdict="unmeasured", reason=reason)
        return known
