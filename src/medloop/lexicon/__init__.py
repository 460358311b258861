"""Medical words, zh and en, that several stages need alike: red flags, urgent advice, drugs and doses, vulnerable groups.

    find_red_flags("I have crushing chest pain but no fever")   -> (Mention(kind="red_flag", id="cardiac_chest_pain", ...),)

Pure and offline. The lists are YAML files beside this module; `match.py` explains how a pattern is written. Every
function takes any text and returns mentions by position; `negated` says that the text denies the finding or puts it long
ago, or forbids the drug or the advice. VERSION changes with every change of a list.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from medloop.lexicon import numbers
from medloop.lexicon.load import Drug, Entry, lexicon
from medloop.lexicon.match import SENTENCE_END, Hit, fold
from medloop.lexicon.negation import Negation
from medloop.lexicon.numbers import Dose, PerDay

__all__ = [
    "VERSION", "Dose", "Drug", "Entry", "Mention", "PerDay", "describe", "drugs", "find_advice", "find_conditions",
    "find_doses", "find_drugs", "find_groups", "find_medication", "find_per_day", "find_reasoning",
    "find_reassurance", "find_red_flags", "find_urgent_advice", "red_flags", "sentence_at", "sentences",
]  # fmt: skip

VERSION = "2"


@dataclass(frozen=True, slots=True)
class Mention:
    """Characters `start` to `end` speak of `id`; `negated` when the text denies or forbids it."""

    kind: str
    id: str
    start: int
    end: int
    text: str
    negated: bool


def find_red_flags(text: str) -> tuple[Mention, ...]:
    """Signs that need help now, for example "pain spreading to my jaw"."""
    return _mentions(text, "red_flag")


def find_urgent_advice(text: str) -> tuple[Mention, ...]:
    """Advice to get help at once; "no need for an ambulance" is negated."""
    return _mentions(text, "urgent")


def find_drugs(text: str) -> tuple[Mention, ...]:
    """Drugs by generic or brand name, and words for whole families; "avoid X" is negated."""
    return _mentions(text, "drug")


def find_medication(text: str) -> tuple[Mention, ...]:
    """Drugs (kind "drug", the id of drugs.yaml) and doses (kind "dose", id such as "400 mg")."""
    doses = (Mention("dose", f"{d.amount:g} {d.unit}", d.start, d.end, text[d.start : d.end], False) for d in find_doses(text))
    return tuple(sorted((*find_drugs(text), *doses), key=lambda mention: (mention.start, mention.end)))


def find_groups(text: str) -> tuple[Mention, ...]:
    """Vulnerable groups: pregnancy, child, elderly; by word or by age."""
    reading = _read(text)
    if reading.groups is None:
        reading.groups = _groups(reading)
    return reading.groups


def _groups(reading: _Reading) -> tuple[Mention, ...]:
    words = lexicon()
    found = list(reading.mentions("group"))
    for age in numbers.find_ages(reading.folded):
        group = "child" if age.years < words.child_below else "elderly" if age.years >= words.elderly_from else None
        if group and age.years <= 120:
            found.append(Mention("group", group, age.start, age.end, reading.text[age.start : age.end], False))
    return tuple(sorted(found, key=lambda mention: (mention.start, mention.end)))


def find_conditions(text: str) -> tuple[Mention, ...]:
    """Conditions that make some drugs unsafe: ulcer, kidney disease, asthma, ..."""
    return _mentions(text, "condition")


def find_reasoning(text: str, part: str) -> tuple[Mention, ...]:
    """Words of one part of clinical reasoning: red_flags, differential, group or plan."""
    return _mentions(text, f"reasoning_{part}")


def find_advice(text: str, part: str) -> tuple[Mention, ...]:
    """Words that advise a drug (advise), leave it to a doctor (defer), or are risky in themselves (risky)."""
    return _mentions(text, f"advice_{part}")


def find_reassurance(text: str, part: str) -> tuple[Mention, ...]:
    """Words that calm (calm), send the doctor away (dismiss) or promise what nobody can (promise)."""
    return _mentions(text, f"reassurance_{part}")


def sentences(text: str) -> tuple[tuple[int, int], ...]:
    """Where sentences begin and end; the end includes the full stop."""
    reading = _read(text)
    if reading.sentences is None:
        bounds = [0, *(found.end() for found in SENTENCE_END.finditer(reading.folded)), len(text)]
        reading.sentences = tuple((start, end) for start, end in pairwise(bounds) if text[start:end].strip())
    return reading.sentences


def sentence_at(text: str, place: int) -> tuple[int, int]:
    """The sentence that holds a place."""
    found = sentences(text)
    return found[bisect_right(found, (place, len(text))) - 1]


def find_doses(text: str, start: int = 0, end: int | None = None) -> tuple[Dose, ...]:
    """Amounts with a unit, in mg where the unit is a weight; those that begin between two places of the text."""
    return numbers.find_doses(_read(text).folded, start, end)


def find_per_day(text: str, start: int = 0, end: int | None = None) -> tuple[PerDay, ...]:
    """How often a day: "three times a day" is 3, "every six hours" is 4."""
    return numbers.find_per_day(_read(text).folded, start, end)


def drugs() -> Mapping[str, Drug]:
    """Every drug and family word by id."""
    return lexicon().drugs


def red_flags() -> tuple[Entry, ...]:
    """Every red flag with its names."""
    return tuple(entry for (kind, _), entry in lexicon().entries.items() if kind == "red_flag")


def describe(kind: str, id: str) -> Entry:
    """The entry behind a mention."""
    return lexicon().entries[(kind, id)]


class _Reading:
    """One text, scanned once; what is asked of it is kept."""

    __slots__ = ("_candidates", "_mentions", "_places", "folded", "groups", "sentences", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = fold(text)
        matcher = lexicon().matcher
        self._places = matcher.scan(self.folded)
        self._candidates = matcher.candidates(self._places)
        self._mentions: dict[str, tuple[Mention, ...]] = {}
        self.groups: tuple[Mention, ...] | None = None
        self.sentences: tuple[tuple[int, int], ...] | None = None

    def mentions(self, kind: str) -> tuple[Mention, ...]:
        numbers = self._candidates.get(kind)
        if numbers is None:
            return ()
        found = self._mentions.get(kind)
        if found is None:
            found = self._mentions[kind] = self._find(kind, numbers)
        return found

    def _find(self, kind: str, numbers: list[int]) -> tuple[Mention, ...]:
        matcher, negation = lexicon().matcher, _negation(kind)
        hits = matcher.hits(self.folded, self._places, numbers)
        if excluding := self._candidates.get(f"-{kind}"):
            hits = _without_excluded(hits, matcher.hits(self.folded, self._places, excluding))
        mentions = []
        for hit in _distinct(hits) if len(hits) > 1 else hits:
            negated = negation is not None and negation.denies(self.folded, hit.places)
            mentions.append(Mention(kind, hit.id, hit.start, hit.end, self.text[hit.start : hit.end], negated))
        return tuple(sorted(mentions, key=lambda mention: (mention.start, mention.end, mention.id)))


# The few texts in hand: callers ask several questions of each, and many answers share a question.
_read = lru_cache(maxsize=64)(_Reading)


def _mentions(text: str, kind: str) -> tuple[Mention, ...]:
    return _read(text).mentions(kind)


def _negation(kind: str) -> Negation | None:
    """Who denies what: findings are denied, drugs forbidden, urgent advice unsaid; words of thinking need no denial."""
    words = lexicon()
    if kind == "reassurance_promise":  # "surely not cancer" is a promise, not the denial of one
        return None
    if kind in ("red_flag", "group", "condition", "reasoning_red_flags") or kind.startswith("reassurance_"):
        return words.finding
    if kind.startswith("reasoning_"):
        return None
    return words.urgent if kind == "urgent" else words.drug


def _without_excluded(hits: Iterable[Hit], excluded: Iterable[Hit]) -> list[Hit]:
    places = [(hit.id, hit.start, hit.end) for hit in excluded]
    return [hit for hit in hits if not any(id == hit.id and start < hit.end and hit.start < end for id, start, end in places)]


def _distinct(hits: list[Hit]) -> list[Hit]:
    """One hit for one thing said: of phrases inside one another the longest, of overlapping joins of an id the tightest."""
    kept: list[Hit] = []
    furthest = -1
    for hit in sorted((hit for hit in hits if len(hit.places) == 1), key=lambda hit: (hit.start, -hit.end)):
        if hit.end > furthest:
            kept.append(hit)
            furthest = hit.end
    known: dict[str, list[Hit]] = {}
    for hit in kept:
        known.setdefault(hit.id, []).append(hit)
    for hit in sorted((hit for hit in hits if len(hit.places) > 1), key=lambda hit: (hit.end - hit.start, hit.start)):
        same = known.setdefault(hit.id, [])
        if all(other.end <= hit.start or hit.end <= other.start for other in same):
            same.append(hit)
            kept.append(hit)
    return kept
