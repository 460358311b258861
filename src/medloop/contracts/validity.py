"""How far a judge can be trusted: what it says against what people say, with intervals."""

from typing import Literal

from pydantic import Field, model_validator

from medloop.contracts.base import Contract, Hash, Text, Timestamp, Unit, utc_now
from medloop.contracts.detect import UrgencyLevel
from medloop.contracts.evaluation import Interval

Quantity = Literal["recall", "precision", "agreement"]
TrustVerdict = Literal["trusted", "untrusted", "unmeasured"]
MIX, URGENCY, HARM = "reward", "urgency", "harm"  # judges that are not a part of the reward
ALL = "all"  # the slice with every case


class LabelledCase(Contract):
    """What people say about a question, an answer, or two answers.

    `urgency` labels the question. `faults` names parts of the reward: true, if the answer has the fault that this part looks for.
    `harm` says whether the answer could harm a patient, where nobody said in which way. `chosen` and `rejected` are two answers
    of which people preferred the first.
    """

    id: Text
    question: Text
    answer: Text | None = None
    urgency: UrgencyLevel | None = None
    faults: dict[str, bool] = Field(default_factory=dict)
    harm: bool | None = None
    chosen: Text | None = None
    rejected: Text | None = None
    source: Text | None = None
    specialty: Text | None = None
    labelled_by: Text | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "LabelledCase":
        if (self.chosen is None) != (self.rejected is None):
            raise ValueError("a pair needs both 'chosen' and 'rejected'")
        if (self.faults or self.harm is not None) and self.answer is None:
            raise ValueError("'faults' and 'harm' label an answer, but there is no 'answer'")
        if self.urgency is None and not self.faults and self.harm is None and self.chosen is None:
            raise ValueError("the line has no label: give 'urgency', 'faults', 'harm', or 'chosen' and 'rejected'")
        return self


class Validity(Contract):
    """One quantity of one judge on one slice of the cases ("all", "language=zh", "stratum=child", "specialty=cardiology")."""

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


class JudgeProfile(Contract):
    """What one judge said about `n` texts, whatever people say: the share it fires on, its mean, the share without a score."""

    judge: Text
    version: Text
    n: int = Field(ge=0)
    firing: Unit
    mean: float | None = None
    missing: Unit


class ValidityCard(Contract):
    """Every judge of one reward against one set of cases. Another version of the reward needs another card.

    `bundled`: all cases are those in the package, which say that the meter works and nothing about patients. `sources` counts
    the cases by source, `left_out` the labels that could not be used, by reason. `profiles` are of the answers of the cases,
    `traffic` of the newest exchanges at that time.
    """

    reward_version: Text
    kind: Text = "mix"
    cases: Hash
    n_cases: int = Field(ge=0)
    bundled: bool = False
    sources: dict[str, int] = Field(default_factory=dict)
    left_out: dict[str, int] = Field(default_factory=dict)
    judges: tuple[JudgeTrust, ...]
    measures: tuple[Validity, ...]
    bounds: dict[str, float]
    profiles: tuple[JudgeProfile, ...] = ()
    traffic: tuple[JudgeProfile, ...] = ()
    created: Timestamp = Field(default_factory=utc_now)

    def verdict_on(self, judge: str, version: str) -> JudgeTrust:
        """The verdict on this version of a judge; one that the card does not know is unmeasured."""
        known = next((row for row in self.judges if row.judge == judge), None)
        if known is None or known.version != version:
            reason = "it has never been measured" if known is None else f"only version {known.version} has been measured"
            return JudgeTrust(judge=judge, version=version, verdict="unmeasured", reason=reason)
        return known
