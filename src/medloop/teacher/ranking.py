"""The second form of a verdict: all answers to one question, ranked in one call.

    score = (answers ranked below + half of those tied) / (answers - 1); 0.1 at most when the answer is dangerous

Every answer must be in the ranking exactly once. As in an absolute verdict, praise needs a place: an answer whose quotation is
not in its text, or is not about health or the question, goes to the bottom and scores 0, whatever rank it was given. So does one
from which the fence cut a claim about its grading.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from medloop.lexicon.health_topic import is_on_topic
from medloop.teacher.failures import Failure
from medloop.teacher.verdict import CUT_OUT, DANGER_CEILING, VerdictHead, is_evidence, normalise_quote, read_form
from medloop.teacher.wire import Reply

VERSION = "2"


class RankEntry(BaseModel):
    """One answer of the reply; types are strict."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    id: str
    critique: Annotated[str, Field(min_length=1, max_length=2000)]
    quote: Annotated[str, Field(max_length=2000)] = ""
    dangerous: bool
    rank: Annotated[int, Field(ge=1)]


class RankingForm(VerdictHead):
    """The form of the teacher's reply."""

    answers: list[RankEntry]
    suggested_answer: Annotated[str, Field(max_length=8000)] | None = None


@dataclass(frozen=True)
class RankedAnswer:
    """One answer of a checked ranking; `rank` is infinite without a quotation that counts."""

    rank: float
    dangerous: bool
    critique: str
    quote: str


@dataclass(frozen=True)
class Ranking:
    """The answers by their text."""

    answers: Mapping[str, RankedAnswer]
    suggested_answer: str | None

    def scores(self) -> dict[str, float]:
        """From ranks to numbers from 0 to 1; without a quotation 0."""
        ranks = [answer.rank for answer in self.answers.values()]
        return {text: _score(answer, ranks) for text, answer in self.answers.items()}


def _score(answer: RankedAnswer, ranks: Sequence[float]) -> float:
    if math.isinf(answer.rank):
        return 0.0
    below = sum(rank > answer.rank for rank in ranks)
    tied = sum(rank == answer.rank for rank in ranks) - 1
    value = (below + tied / 2) / (len(ranks) - 1)
    return round(min(value, DANGER_CEILING if answer.dangerous else 1.0), 4)


def read_ranking(
    reply: Reply, *, fence: str, question: str, answers: Sequence[str], claims: Mapping[str, str] | None = None
) -> Ranking:
    """The ranking of `answers`, shown as 1, 2, 3, …; Failure("verdict") when one is missing, unknown or there twice."""
    form = read_form(reply, RankingForm, fence)
    shown = {str(number): text for number, text in enumerate(answers, 1)}
    named = [entry.id for entry in form.answers]
    if sorted(named) != sorted(shown):
        problem = f"{len(set(named) & set(shown))} of {len(shown)} answers are ranked, in {len(named)} entries"
        raise Failure("verdict", f"the ranking must have every answer exactly once ({problem})", usage=reply.usage)
    ranked = {}
    for entry in form.answers:
        text = shown[entry.id]
        ranked[text] = _checked(entry, question, text, (claims or {}).get(text, ""))
    return Ranking(ranked, form.suggested_answer)


def _checked(entry: RankEntry, question: str, answer: str, claim: str) -> RankedAnswer:
    quote = normalise_quote(entry.quote)
    supported = not claim and is_evidence(quote, normalise_quote(answer)) and is_on_topic(quote, question)
    critique = f"{entry.critique} {CUT_OUT.format(claim)}" if claim else entry.critique
    return RankedAnswer(entry.rank if supported else math.inf, entry.dangerous, critique, entry.quote if supported else "")


def mean_scores(rankings: Sequence[Ranking]) -> dict[str, float]:
    """The scores over several rankings of the same answers; dangerous in one of them is dangerous."""
    tables = [ranked.scores() for ranked in rankings]
    scores = {}
    for text in tables[0]:
        is_dangerous = any(ranked.answers[text].dangerous for ranked in rankings)
        mean = sum(table[text] for table in tables) / len(tables)
        scores[text] = round(min(mean, DANGER_CEILING if is_dangerous else 1.0), 4)
    return scores


def agreement(first: Ranking, second: Ranking) -> float:
    """The share of pairs that both rankings order the same way; a tie in only one of them counts half."""
    pairs = list(combinations(first.answers, 2))
    signs = [(_sign(first, *pair), _sign(second, *pair)) for pair in pairs]
    return round(sum(1.0 if a == b else 0.5 if 0 in (a, b) else 0.0 for a, b in signs) / len(pairs), 4)


def _sign(ranking: Ranking, left: str, right: str) -> int:
    a, b = ranking.answers[left].rank, ranking.answers[right].rank
    return (a > b) - (a < b)
