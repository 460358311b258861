"""For whoever looks at a record in quarantine: what the scrubber takes out by itself, and what it doubts, by place and reason.

    for part, found in zip(texts, marks(texts)): ...    # Mark(3, 14, "taken_out", "PHONE"), Mark(20, 26, "doubt", "a word that…")

The scrubber says that it doubts a text, not where. So the place is found by trying: the clause that is doubted by itself, and in
it the fewest words without which it would not be. That is where to look first, not a promise that nothing is anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from medloop.privacy.scrub import Assessment, Found, Scrubber, assess, find

UNSURE = "something the scan is not sure about"
MOST_CLAUSE = 400  # characters; a longer clause is marked whole
MOST_CLAUSES = 12  # of one text that are looked into
_CLAUSE = re.compile(r"[^。！？；!?;\n.,，]+(?:[.,](?=\S)[^。！？；!?;\n.,，]+)*")
_TOKEN = re.compile(
    r"\d(?:[^\w\n]{0,4}\d)+|[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖]{3,}|[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+(?:['’@.\-][^\W_\u3400-\u9fff]+)*"
)
_HANZI = re.compile(r"[\u3400-\u9fff]")
_HIDDEN, _COMMON = "[NAME_9]", "it"
Span = tuple[int, int]


@dataclass(frozen=True)
class Mark:
    """Characters `start` to `end`: taken out as a `why` (PHONE, NAME …), or doubted because of `why`."""

    start: int
    end: int
    what: Literal["taken_out", "doubt"]
    why: str


def marks(texts: Sequence[str]) -> list[list[Mark]]:
    """The marks of each text of one record, in order and without overlap."""
    scrubber = Scrubber()  # one for the record, as when it was held
    return [_marks(text, scrubber.assess(text)) for text in texts]


def _marks(text: str, seen: Assessment) -> list[Mark]:
    taken = [Mark(one.start, one.end, "taken_out", one.kind) for one in (seen.spans if seen.cleaned else _found(text))]
    if not seen.quarantined:
        return taken
    spots = _spots(text)
    if seen.cleaned:
        spots = [spot for spot in spots if not _meet(spot, taken)]
    else:  # it cannot be scrubbed as a whole: what is only half taken out is a doubt
        taken = [one for one in taken if not _meet(one, spots)]
    return sorted([*taken, *spots], key=lambda one: one.start)


def _meet(one: Mark, others: Sequence[Mark]) -> bool:
    return any(one.start < other.end and other.start < one.end for other in others)


def _found(text: str) -> list[Found]:
    try:
        text.encode()
    except UnicodeEncodeError:
        return []
    return find(text)


def _spots(text: str) -> list[Mark]:
    """Where the doubt is: in the clauses that are doubted by themselves, else in those without which the text is not."""
    clauses = [(found.start(), found.end()) for found in _CLAUSE.finditer(text)]
    alone = [(span, seen) for span in clauses if (seen := assess(text[slice(*span)])).quarantined][:MOST_CLAUSES]
    if alone:
        return [mark for span, seen in alone for mark in _inside(text, span, _reason(seen))]
    reason = _reason(assess(text))
    without = [span for span in clauses[:MOST_CLAUSES] if not assess(text[: span[0]] + text[span[1] :]).quarantined]
    return [Mark(*_trimmed(text, span), "doubt", reason) for span in without]


def _reason(seen: Assessment) -> str:
    """The strongest; a text at the very bound is held without one."""
    return seen.reasons[0] if seen.reasons else UNSURE


def _inside(text: str, span: Span, reason: str) -> list[Mark]:
    clause, start = text[slice(*span)], span[0]
    tokens = [(found.start(), found.end()) for found in _TOKEN.finditer(clause)] if len(clause) <= MOST_CLAUSE else []

    def clears(hidden: Sequence[Span]) -> bool:
        return not any(assess(text).quarantined for text in _without(clause, hidden))

    # A Chinese name and the signs beside it that make it one: each alone removes the doubt, and together they are the place.
    single = _joined([token for token in tokens if clears([token])], apart=0)
    found = _best(clause, single) if single else _joined(_fewest(tokens, clears), apart=1)
    if not found:
        return [Mark(*_trimmed(text, span), "doubt", reason)]
    return [Mark(start + a, start + b, "doubt", reason) for a, b in found]


def _best(clause: str, places: Sequence[Span]) -> list[Span]:
    """Those without which least doubt is left; of words the longest, for a name is seldom shorter than what stands beside it."""
    left = {place: sum(assess(text).doubt for text in _without(clause, [place])) for place in places}
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
