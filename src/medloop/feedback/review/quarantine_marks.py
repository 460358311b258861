"""For the reviewer of a record in quarantine: what the scrubber removes by itself, and where it is in doubt and why.

    marks(texts)[0]      # [QuarantineMark(3, 14, "taken_out", "PHONE"), QuarantineMark(20, 26, "doubt", "a word that…")]

The scrubber says that it doubts a text, not where. So the place is searched for: first the clauses that are doubted by
themselves, then the fewest words without which such a clause is not doubted. That is where to look first; there may be more
elsewhere.

Each record has a budget for this search, so that one long record does not keep everybody waiting. What the search does not reach
is marked as a whole.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from medloop.privacy.phi.find import find
from medloop.privacy.phi.scrub import Assessment, Scrubber, assess
from medloop.privacy.phi.spans import PhiSpan

UNSURE = "something the scan is not sure about"
MAX_CLAUSE = 400  # characters; a longer clause is marked whole
MAX_CLAUSES = 12  # of one record that are searched
MAX_TRIES = 300  # for one record
MAX_SECONDS = 1.0
_CLAUSE = re.compile(r"[^。！？；!?;\n.,，]+(?:[.,](?=\S)[^。！？；!?;\n.,，]+)*")
_TOKEN = re.compile(
    r"\d(?:[^\w\n]{0,4}\d)+|[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖]{3,}|[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+(?:['’@.\-][^\W_\u3400-\u9fff]+)*"
)
_HANZI = re.compile(r"[\u3400-\u9fff]")
_HIDDEN, _COMMON = "[NAME_9]", "it"
Span = tuple[int, int]


@dataclass(frozen=True)
class QuarantineMark:
    """Characters `start` to `end`: removed as a `why` (PHONE, NAME …), or doubted because of `why`."""

    start: int
    end: int
    what: Literal["taken_out", "doubt"]
    why: str


class _BudgetSpentError(Exception):
    """The budget of the record is used up."""


@dataclass
class _Budget:
    """How much may be tried for one record. Scanning clause by clause is limited by time alone: it grows with the text."""

    tries: int = MAX_TRIES
    clauses: int = MAX_CLAUSES
    until: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)

    def scan(self, text: str) -> Assessment:
        if time.monotonic() > self.until:
            raise _BudgetSpentError
        return assess(text)

    def try_text(self, text: str) -> Assessment:
        if self.tries <= 0:
            raise _BudgetSpentError
        self.tries -= 1
        return self.scan(text)


def marks(texts: Sequence[str]) -> list[list[QuarantineMark]]:
    """The marks of each text of one record, in order and without overlap."""
    scrubber = Scrubber()  # one for the record, as when it was held
    results = [scrubber.assess(text) for text in texts]
    budget = _Budget()
    return [_marks(text, result, budget) for text, result in zip(texts, results, strict=True)]


def _marks(text: str, result: Assessment, budget: _Budget) -> list[QuarantineMark]:
    spans = result.spans if result.cleaned else _find_spans(text)
    removed = [QuarantineMark(span.start, span.end, "taken_out", span.kind) for span in spans]
    if not result.quarantined:
        return removed
    doubts = _doubts(text, _reason(result), budget)
    if result.cleaned:
        doubts = [mark for mark in doubts if not _overlaps(mark, removed)]
    else:  # it cannot be scrubbed as a whole: what is only partly removed is a doubt
        removed = [mark for mark in removed if not _overlaps(mark, doubts)]
    return sorted([*removed, *doubts], key=lambda mark: mark.start)


def _overlaps(mark: QuarantineMark, others: Sequence[QuarantineMark]) -> bool:
    return any(mark.start < other.end and other.start < mark.end for other in others)


def _find_spans(text: str) -> list[PhiSpan]:
    try:
        text.encode()
    except UnicodeEncodeError:
        return []
    return find(text)


def _doubts(text: str, reason: str, budget: _Budget) -> list[QuarantineMark]:
    """In the clauses that are doubted by themselves, else the clauses without which the text is not doubted."""
    clauses = [(match.start(), match.end()) for match in _CLAUSE.finditer(text)]
    doubts: list[QuarantineMark] = []
    for clause in clauses:
        try:
            result = budget.scan(text[slice(*clause)])
        except _BudgetSpentError:
            return [*doubts, QuarantineMark(*_trimmed(text, (clause[0], clauses[-1][1])), "doubt", reason)]
        doubts += _doubts_in_clause(text, clause, _reason(result), budget) if result.quarantined else []
    if doubts:
        return doubts
    try:
        decisive = [
            clause for clause in clauses[:MAX_CLAUSES]
            if not budget.try_text(text[: clause[0]] + text[clause[1] :]).quarantined
        ]  # fmt: skip
    except _BudgetSpentError:
        decisive = [(clauses[0][0], clauses[-1][1])]
    return [QuarantineMark(*_trimmed(text, clause), "doubt", reason) for clause in decisive]


def _reason(result: Assessment) -> str:
    """The strongest; a text exactly at the threshold is held without a reason."""
    return result.reasons[0] if result.reasons else UNSURE


def _doubts_in_clause(text: str, clause: Span, reason: str, budget: _Budget) -> list[QuarantineMark]:
    words, start = text[slice(*clause)], clause[0]
    places: list[Span] = []
    if len(words) <= MAX_CLAUSE and budget.clauses > 0:
        budget.clauses -= 1
        with suppress(_BudgetSpentError):
            places = _places(words, budget)
    if not places:
        return [QuarantineMark(*_trimmed(text, clause), "doubt", reason)]
    return [QuarantineMark(start + first, start + last, "doubt", reason) for first, last in places]


def _places(clause: str, budget: _Budget) -> list[Span]:
    tokens = [(match.start(), match.end()) for match in _TOKEN.finditer(clause)]

    def clears(hidden: Sequence[Span]) -> bool:
        return not any(budget.try_text(text).quarantined for text in _with_hidden(clause, hidden))

    # A Chinese name and the characters beside it that make it one: each alone removes the doubt, and together they are the place.
    single = _joined([token for token in tokens if clears([token])], gap=0)
    return _best_places(clause, single, budget) if single else _joined(_fewest_tokens(tokens, clears), gap=1)


def _best_places(clause: str, places: Sequence[Span], budget: _Budget) -> list[Span]:
    """Those without which least doubt is left; of words the longest, because a name is seldom shorter than its neighbours."""
    left = {place: sum(budget.try_text(text).doubt for text in _with_hidden(clause, [place])) for place in places}
    best = [place for place in places if left[place] == min(left.values())]
    words = [place for place in best if not _HANZI.match(clause, place[0])]
    return [max(words, key=lambda place: place[1] - place[0])] if words else best


def _joined(tokens: Sequence[Span], gap: int) -> list[Span]:
    """Neighbours in one piece, at most `gap` characters apart."""
    joined: list[Span] = []
    for start, end in tokens:
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _fewest_tokens(tokens: Sequence[Span], clears: Callable[[Sequence[Span]], bool]) -> list[Span]:
    """Tokens of which none can be left out: hidden from the left until the doubt is gone, then shown again one by one."""
    hidden: list[Span] = []
    for token in tokens:
        hidden.append(token)
        if clears(hidden):
            break
    else:
        return []
    for token in tuple(hidden):
        rest = [other for other in hidden if other != token]
        if rest and clears(rest):
            hidden = rest
    return hidden


def _with_hidden(clause: str, hidden: Sequence[Span]) -> list[str]:
    """The clause with these removed, and with a common word instead: beside a placeholder, words look different."""
    texts = []
    for replacement in (_HIDDEN, _COMMON):
        text = clause
        for start, end in reversed(hidden):
            text = text[:start] + (_HIDDEN if _HANZI.match(clause, start) else replacement) + text[end:]
        texts.append(text)
    return list(dict.fromkeys(texts))


def _trimmed(text: str, span: Span) -> Span:
    start, end = span
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
