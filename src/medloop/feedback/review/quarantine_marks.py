"""For whoever looks at a record in quarantine: what the scrubber takes out by itself, and what it doubts, by place and reason.

    for part, found in zip(texts, marks(texts)): ...    # Mark(3, 14, "taken_out", "PHONE"), Mark(20, 26, "doubt", "a word that…")

The scrubber says that it doubts a text, not where. So the place is found by trying: the clause that is doubted by itself, and in
it the fewest words without which it would not be. That is where to look first, not a promise that nothing is anywhere else.

Trying has a budget for each record, or one long record would keep everybody waiting. What it does not reach is marked whole.
"""

from __future__ import annotations

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
MOST_CLAUSE = 400  # characters; a longer clause is marked whole
MOST_CLAUSES = 12  # of one record that are looked into
MOST_TRIES = 300  # for one record
MOST_SECONDS = 1.0
_CLAUSE = re.compile(r"[^。！？；!?;\n.,，]+(?:[.,](?=\S)[^。！？；!?;\n.,，]+)*")
_TOKEN = re.compile(
    r"\d(?:[^\w\n]{0,4}\d)+|[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖]{3,}|[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+(?:['’@.\-][^\W_\u3400-\u9fff]+)*"
)
_HANZI = re.compile(r"[\u3400-\u9fff]")
_HIDDEN, _COMMON = "[NAME_9]", "it"
Span = tuple[int, int]


@dataclass(frozen=True)
class QuarantineMark:
    """Characters `start` to `end`: taken out as a `why` (PHONE, NAME …), or doubted because of `why`."""

    start: int
    end: int
    what: Literal["taken_out", "doubt"]
    why: str


class _SpentError(Exception):
    """The budget of the record is used up."""


@dataclass
class _Budget:
    """What may be tried for one record; only looking clause by clause is counted by time alone, for it grows with the text."""

    tries: int = MOST_TRIES
    clauses: int = MOST_CLAUSES
    until: float = field(default_factory=lambda: time.monotonic() + MOST_SECONDS)

    def look(self, text: str) -> Assessment:
        if time.monotonic() > self.until:
            raise _SpentError
        return assess(text)

    def tried(self, text: str) -> Assessment:
        if self.tries <= 0:
            raise _SpentError
        self.tries -= 1
        return self.look(text)


def marks(texts: Sequence[str]) -> list[list[QuarantineMark]]:
    """The marks of each text of one record, in order and without overlap."""
    scrubber = Scrubber()  # one for the record, as when it was held
    seen = [scrubber.assess(text) for text in texts]
    budget = _Budget()
    return [_marks(text, one, budget) for text, one in zip(texts, seen, strict=True)]


def _marks(text: str, seen: Assessment, budget: _Budget) -> list[QuarantineMark]:
    taken = [QuarantineMark(one.start, one.end, "taken_out", one.kind) for one in (seen.spans if seen.cleaned else _found(text))]
    if not seen.quarantined:
        return taken
    spots = _spots(text, _reason(seen), budget)
    if seen.cleaned:
        spots = [spot for spot in spots if not _meet(spot, taken)]
    else:  # it cannot be scrubbed as a whole: what is only half taken out is a doubt
        taken = [one for one in taken if not _meet(one, spots)]
    return sorted([*taken, *spots], key=lambda one: one.start)


def _meet(one: QuarantineMark, others: Sequence[QuarantineMark]) -> bool:
    return any(one.start < other.end and other.start < one.end for other in others)


def _found(text: str) -> list[PhiSpan]:
    try:
        text.encode()
    except UnicodeEncodeError:
        return []
    return find(text)


def _spots(text: str, reason: str, budget: _Budget) -> list[QuarantineMark]:
    """Where the doubt is: in the clauses that are doubted by themselves, else in those without which the text is not."""
    clauses = [(found.start(), found.end()) for found in _CLAUSE.finditer(text)]
    found: list[QuarantineMark] = []
    for span in clauses:
        try:
            seen = budget.look(text[slice(*span)])
        except _SpentError:
            return [*found, QuarantineMark(*_trimmed(text, (span[0], clauses[-1][1])), "doubt", reason)]
        found += _inside(text, span, _reason(seen), budget) if seen.quarantined else []
    if found:
        return found
    try:
        without = [span for span in clauses[:MOST_CLAUSES] if not budget.tried(text[: span[0]] + text[span[1] :]).quarantined]
    except _SpentError:
        without = [(clauses[0][0], clauses[-1][1])]
    return [QuarantineMark(*_trimmed(text, span), "doubt", reason) for span in without]


def _reason(seen: Assessment) -> str:
    """The strongest; a text at the very bound is held without one."""
    return seen.reasons[0] if seen.reasons else UNSURE


def _inside(text: str, span: Span, reason: str, budget: _Budget) -> list[QuarantineMark]:
    clause, start = text[slice(*span)], span[0]
    found: list[Span] = []
    if len(clause) <= MOST_CLAUSE and budget.clauses > 0:
        budget.clauses -= 1
        with suppress(_SpentError):
            found = _places(clause, budget)
    if not found:
        return [QuarantineMark(*_trimmed(text, span), "doubt", reason)]
    return [QuarantineMark(start + a, start + b, "doubt", reason) for a, b in found]


def _places(clause: str, budget: _Budget) -> list[Span]:
    tokens = [(found.start(), found.end()) for found in _TOKEN.finditer(clause)]

    def clears(hidden: Sequence[Span]) -> bool:
        return not any(budget.tried(text).quarantined for text in _without(clause, hidden))

    # A Chinese name and the signs beside it that make it one: each alone removes the doubt, and together they are the place.
    single = _joined([token for token in tokens if clears([token])], apart=0)
    return _best(clause, single, budget) if single else _joined(_fewest(tokens, clears), apart=1)


def _best(clause: str, places: Sequence[Span], budget: _Budget) -> list[Span]:
    """Those without which least doubt is left; of words the longest, for a name is seldom shorter than what stands beside it."""
    left = {place: sum(budget.tried(text).doubt for text in _without(clause, [place])) for place in places}
    best = [place for place in places if left[place] == min(left.values())]
    words = [place for place in best if not _HANZI.match(clause, place[0])]
    return [max(words, key=lambda place: place[1] - place[0])] if words else best


def _joined(tokens: Sequence[Span], apart: int) -> list[Span]:
    """Neighbours in one piece, at most so many signs apart."""
    out: list[Span] = []
    for start, end in tokens:
        if out and start - out[-1][1] <= apart:
            out[-1] = (out[-1][0], end)
        else:
            out.append((start, end))
    return out


def _fewest(tokens: Sequence[Span], clears: Callable[[Sequence[Span]], bool]) -> list[Span]:
    """Tokens of which none can be left out: hidden from the left until the doubt is gone, then given back one by one."""
    hidden: list[Span] = []
    for token in tokens:
        hidden.append(token)
        if clears(hidden):
            break
    else:
        return []
    for token in tuple(hidden):
        rest = [one for one in hidden if one != token]
        if rest and clears(rest):
            hidden = rest
    return hidden


def _without(clause: str, hidden: Sequence[Span]) -> list[str]:
    """The clause as if these had been taken out, and with a common word instead: beside a placeholder, words look different."""
    made = []
    for instead in (_HIDDEN, _COMMON):
        text = clause
        for start, end in reversed(hidden):
            text = text[:start] + (_HIDDEN if _HANZI.match(clause, start) else instead) + text[end:]
        made.append(text)
    return list(dict.fromkeys(made))


def _trimmed(text: str, span: Span) -> Span:
    start, end = span
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
