"""Terms that are never replaced: words of medicine (ours), and those a workspace adds.

A span that the tagger, the network or a position gives is dropped when it is nothing but such terms. What a check digit, a form or a
title gives is replaced all the same: "Dr. Baker" is a person, "Baker cyst" is not.
"""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import re
from collections.abc import Iterable
from typing import NamedTuple

from medloop.privacy.phi import lists
from medloop.privacy.phi.lists import ChineseTerms
from medloop.privacy.phi.normalize import fold
from medloop.privacy.phi.spans import Span

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_HAN = re.compile(r"[\u3400-\u9fff]")
_LOOSE = frozenset(("NAME", "PLACE", "ORG"))
_JOINTS = frozenset(("and", "or", "prn", "s"))
_EPONYM_BEHIND = re.compile(
    r"(?:['’]s)?(?:[ -][A-Z][a-z]+)?(?:,? (?:and|or) [A-Z][a-z]+)?[ -](?:signs?|tests?|scores?|scale|grade|class|stage|index|criteria|maneuvers?|manoeuvres?|points?|cyst|fracture|syndrome"
    r"|disease|procedure|operation|contractions?|reflex|catheter|positive|negative|normal|absent|present|lateraliz|consistent|tests?|position|tube|repair|palsy|purpura|ulcer|nodes?|lesions?|respirations?|\d)",
    re.I,
)
_EPONYM_BEFORE = re.compile(
    r"(?:positive|negative|pos|neg|signs?|tests?|scores?|scale|grade|criteria|performed|per|modified)[:,]? (?:[A-Z][a-z]+,? (?:and )?)?$",
    re.I,
)
_LONGEST = 12  # characters of a Chinese term


class Terms(NamedTuple):
    """What a workspace adds: English words and phrases in lower case, and Chinese terms."""

    english: frozenset[str]
    chinese: ChineseTerms

    @classmethod
    def of(cls, terms: Iterable[str]) -> "Terms":
        plain = [fold(term).strip().lower() for term in terms]
        return cls(
            frozenset(term for term in plain if not _HAN.search(term)),
            lists.chinese_terms(term for term in plain if _HAN.search(term)),
        )


NOTHING = Terms.of(())


def is_term(text: str, span: Span, added: Terms = NOTHING) -> bool:
    """Whether the span of a folded text is nothing but allowed terms; `added` are the workspace's."""
    start, end, kind = span
    if kind not in _LOOSE:
        return False
    if _HAN.search(text, start, end):
        return any(_is_within(text, start, end, terms) for terms in (lists.medical_terms_zh(), added.chinese))
    phrase = text[start:end].lower()
    words = _WORD.findall(phrase)
    if not words or phrase in added.english:
        return bool(words)
    medical = lists.medical_words()
    unknown = [word for word in words if word not in medical and word not in added.english and word not in _JOINTS]
    eponyms = lists.eponyms()
    return not unknown or (all(word in eponyms for word in unknown) and _beside_eponym(text, start, end))


def _beside_eponym(text: str, start: int, end: int) -> bool:
    """Whether a word of examination stands beside: "Ortolani and Barlow negative", "positive Hawkins"."""
    return bool(_EPONYM_BEHIND.match(text, end) or _EPONYM_BEFORE.search(text, max(0, start - 24), start))


def _is_within(text: str, start: int, end: int, terms: ChineseTerms) -> bool:
    """Whether the span lies within a term: 罗培南 in 美罗培南."""
    if end - start > 1 and text[start : start + 2] not in terms.pairs:
        return False
    for first in range(max(0, end - _LONGEST), start + 1):
        for term in terms.by_first_two.get(text[first : first + 2], ()):
            if first + len(term) >= end and text.startswith(term, first):
                return True
    return False
