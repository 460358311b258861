"""What people said about answers, joined to an evaluation by content: the same question and the same answer, whoever gave it.

verdicts = {verdict_key(question, answer): PeopleVerdict(...)}        # from the store, by loop/people.py
scored = with_people(scored, verdicts)                                # a score `people` where somebody judged the answer
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from medloop.contracts import CriticalFailure, Score, canonical_json, sha256_id
from medloop.evaluate.run import EvalScores

PEOPLE = "people"  # the metric
VERSION = "1"


@dataclass(frozen=True)
class PeopleVerdict:
    """All that people said about one answer: how many liked it, did not, or corrected it; `critical`: it could harm a patient."""

    liked: int = 0
    disliked: int = 0
    corrected: int = 0
    critical: bool = False

    @property
    def value(self) -> float:
        """The share of people who liked it as it is; 0 for an answer that somebody calls dangerous."""
        judged = self.liked + self.disliked + self.corrected
        return 0.0 if self.critical or not judged else self.liked / judged

    @property
    def reason(self) -> str:
        counts = {"liked it": self.liked, "did not like it": self.disliked, "corrected it": self.corrected}
        words = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"{words}{'; ' if words else ''}somebody calls it dangerous" if self.critical else words


Verdicts = Mapping[str, PeopleVerdict]  # by verdict_key


def verdict_key(question: str, answer: str) -> str:
    """White space and case of the question make no other question; white space makes no other answer."""
    return sha256_id(canonical_json([" ".join(question.casefold().split()), " ".join(answer.split())]))


def with_people(scored: Sequence[EvalScores], verdicts: Verdicts) -> tuple[EvalScores, ...]:
    return tuple(
        replace(row, scores=(*row.scores, _score(verdict))) if (verdict := _of(row, verdicts)) else row for row in scored
    )


def _of(row: EvalScores, verdicts: Verdicts) -> PeopleVerdict | None:
    sample = row.answer.sample
    return None if sample.answer is None else verdicts.get(verdict_key(sample.question, sample.answer))


def _score(verdict: PeopleVerdict) -> Score:
    return Score(name=PEOPLE, value=verdict.value, reason=verdict.reason, author=PEOPLE, version=VERSION)


def called_dangerous(scored: Mapping[str, Sequence[EvalScores]], verdicts: Verdicts) -> tuple[CriticalFailure, ...]:
    """Answers that somebody calls dangerous, as critical failures; new where the first model's answer was not called so."""
    first = next(iter(scored), None)
    known = {row.answer.key for row in scored.get(first or "", ()) if (v := _of(row, verdicts)) and v.critical}
    return tuple(
        CriticalFailure(
            label=label, suite=row.answer.split, metric=PEOPLE, case=row.answer.sample.id, language=row.answer.language,
            strata=row.answer.strata, new=row.answer.key not in known,
        )
        for label, rows in scored.items()
        for row in rows
        if (verdict := _of(row, verdicts)) and verdict.critical
    )  # fmt: skip
