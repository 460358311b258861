"""What the trust meter counts: hits by judge, quantity and slice, with intervals, and which cases a judge got wrong."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from medloop.bootstrap import share_interval, wilson
from medloop.contracts.evaluation import Interval
from medloop.contracts.validity import UPPER, URGENCY, LabelledCase, Quantity, WrongCase

MOST_WRONG = 20  # cases of one judge and one kind of mistake
FROM_USE = "use/"  # how the ids of cases from use begin (data/feedback/labels.py)


@dataclass
class Tally:
    """Hits of one quantity on one slice."""

    hits: float = 0.0
    n: int = 0
    ties: int = 0
    missing: int = 0

    def interval(self) -> Interval:
        if self.ties:
            low, high = wilson(self.hits, self.n)
            return Interval(mean=self.hits / self.n, low=low, high=high, n=self.n, missing=self.missing)
        return share_interval(int(self.hits), self.n).model_copy(update={"missing": self.missing})


@dataclass
class Counts:
    """All tallies by judge, quantity and slice, and the cases that a judge got wrong."""

    tallies: dict[tuple[str, Quantity, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    wrong: list[WrongCase] = field(default_factory=list)
    negatives: set[str] = field(default_factory=set)  # judges with a case that people labelled as without the fault
    case: LabelledCase | None = None  # which is counted now
    noted: Counter[tuple[str, Quantity]] = field(default_factory=Counter)

    def count(self, judge: str, quantity: Quantity, slices: Iterable[str], hit: float | None) -> None:
        """`hit`: 1, 0, 0.5 for a tie, None for a missing score."""
        for name in slices:
            tally = self.tallies[judge, quantity, name]
            if hit is None:
                tally.missing += 1
                continue
            tally.hits, tally.n, tally.ties = tally.hits + hit, tally.n + 1, tally.ties + (hit == 0.5)
        if hit == (1.0 if quantity in UPPER else 0.0):
            self._note(judge, quantity)

    def _note(self, judge: str, quantity: Quantity) -> None:
        """Which case of a file it was, never its text; nothing of what people did, because it may have to be erased."""
        if self.case is None or self.case.id.startswith(FROM_USE) or quantity == "unknown":
            return
        if judge == URGENCY and (quantity == "precision" or self._is_noted(judge)):
            return  # noted as a false alarm, or as called routine
        self.noted[judge, quantity] += 1
        if self.noted[judge, quantity] <= MOST_WRONG:
            self.wrong.append(WrongCase(judge=judge, case=self.case.id, source=self.case.source or "", mistake=quantity))

    def _is_noted(self, judge: str) -> bool:
        last = self.wrong[-1] if self.wrong else None
        return bool(last and self.case) and (last.judge, last.case) == (judge, self.case.id)  # type: ignore[union-attr]

    def verdict(self, judge: str, slices: Sequence[str], label: bool, seen: bool | None) -> None:
        """A yes or no against a label: it counts for recall if people said yes, for precision if the judge did."""
        if not label:
            self.negatives.add(judge)
        if label:
            self.count(judge, "recall", slices, None if seen is None else float(seen))
        if seen:
            self.count(judge, "precision", slices, float(label))
