"""Medical words, zh and en, that several stages need alike: red flags, urgent advice, drugs and doses, vulnerable groups.

    find_red_flags("I have crushing chest pain but no fever")   -> (Mention(kind="red_flag", id="cardiac_chest_pain", ...),)

Pure and offline. The lists are YAML files beside this module; `match.py` explains how a pattern is written. Every
function takes any text and returns mentions by position; `negated` says that the text denies the finding or puts it long
ago, or forbids the drug or the advice. VERSION changes with every change of a list.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from medloop.lexicon import numbers
from medloop.lexicon.load import Drug, Entry, lexicon
from medloop.lexicon.match import Hit, find_hits
from medloop.lexicon.numbers import Dose, PerDay
from medloop.lexicon.scan import Plain, fold, sentence_ends

__all__ = [
    "VERSION", "Dose", "Drug", "Entry", "Mention", "PerDay", "describe", "drugs", "find_advice", "find_conditions",
    "find_doses", "find_drugs", "find_groups", "find_medication", "find_per_day", "find_reasoning",
    "find_reassurance", "find_red_flags", "find_urgent_advice", "red_flags", "sentence_at", "sentences",
]  # fmt: skip

VERSION = "2"


class Mention:
    """Characters `start` to `end` speak of `id`; `negated` when the text denies or forbids it."""

    __slots__ = ("end", "id", "kind", "negated", "start", "text")

    def __init__(self, kind: str, id: str, start: int, end: int, text: str, negated: bool) -> None:
        self.kind: Final = kind
        self.id: Final = id
        self.start: Final = start
        self.end: Final = end
        self.text: Final = text
        self.negated: Final = negated

    def _values(self) -> tuple[str, str, int, int, str, bool]:
        return self.kind, self.id, self.start, self.end, self.text, self.negated

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mention) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Mention{self._values()!r}"


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
        bounds = [0, *reading.ends, len(text)]
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
    """One text, made ready once; what is asked of it is looked for then, and kept."""

    __slots__ = ("_candidates", "_found", "_mentions", "ends", "folded", "groups", "sentences", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = fold(text)
        self.ends = sentence_ends(self.folded)
        matcher = lexicon().matcher
        self._found = matcher.scan(Plain(self.folded))
        self._candidates = matcher.candidates(self._found.places)
        self._mentions: dict[str, tuple[Mention, ...]] = {}
        self.groups: tuple[Mention, ...] | None = None
        self.sentences: tuple[tuple[int, int], ...] | None = None

    def mentions(self, kind: str) -> tuple[Mention, ...]:
        if kind not in self._candidates:
            return ()
        found = self._mentions.get(kind)
        if found is None:
            found = self._mentions[kind] = self._as_mentions(kind, self._hits(kind))
        return found

    def _hits(self, kind: str) -> list[Hit]:
        places = self._found.places
        hits = find_hits(self._candidates[kind], places, self.ends)
        if excluding := self._candidates.get(f"-{kind}"):
            hits = _without_excluded(hits, find_hits(excluding, places, self.ends))
        return _distinct(hits) if len(hits) > 1 else hits

    def _as_mentions(self, kind: str, hits: list[Hit]) -> tuple[Mention, ...]:
        text, name = self.text, _negation(kind)
        negation = lexicon().negations[name] if name else None
        found = []
        for hit in hits:
            denied = negation is not None and negation.denies(self.folded, self.ends, self._found.cues, hit.places)
            found.append(Mention(kind, hit.id, hit.start, hit.end, text[hit.start : hit.end], denied))
        return tuple(found)


# The few texts in hand: callers ask several questions of each, and many answers share a question. More would not help:
# what is kept long has left the processor's cache.
_read = lru_cache(maxsize=16)(_Reading)


def _mentions(text: str, kind: str) -> tuple[Mention, ...]:
    return _read(text).mentions(kind)


@cache
def _negation(kind: str) -> str | None:
    """Who denies what: findings are denied, drugs forbidden, urgent advice unsaid; words of thinking need no denial."""
    if kind == "reassurance_promise":  # "surely not cancer" is a promise, not the denial of one
        return None
    if kind in ("red_flag", "group", "condition", "reasoning_red_flags") or kind.startswith("reassurance_"):
        return "finding"
    if kind.startswith("reasoning_"):
        return None
    return "urgent" if kind == "urgent" else "drug"


def _without_excluded(hits: list[Hit], excluded: list[Hit]) -> list[Hit]:
    return [
        hit for hit in hits
        if not any(out.id == hit.id and out.start < hit.end and hit.start < out.end for out in excluded)
    ]  # fmt: skip


def _distinct(hits: list[Hit]) -> list[Hit]:
    """One hit for one thing said: of phrases inside one another the longest, of overlapping joins of an id the tightest."""
    kept: list[Hit] = []
    furthest = -1
    for hit in sorted([hit for hit in hits if len(hit.places) == 1], key=lambda hit: (hit.start, -hit.end)):
        if hit.end > furthest:
            kept.append(hit)
            furthest = hit.end
    joined = [hit for hit in hits if len(hit.places) > 1]
    if joined:
        kept += _tightest(joined, kept)
    kept.sort(key=lambda hit: (hit.start, hit.end, hit.id))
    return kept


def _tightest(joined: list[Hit], kept: list[Hit]) -> list[Hit]:
    """Joins that overlap nothing of their id that is kept, the tightest first."""
    known: dict[str, list[Hit]] = {}
    for hit in kept:
        known.setdefault(hit.id, []).append(hit)
    found = []
    for hit in sorted(joined, key=lambda hit: (hit.end - hit.start, hit.start)):
        same = known.setdefault(hit.id, [])
        if all(other.end <= hit.start or hit.end <= other.start for other in same):
            same.append(hit)
            found.append(hit)
    return found
