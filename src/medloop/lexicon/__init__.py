"""Medical words, zh and en, that several stages share: red flags, urgent advice, drugs and doses, vulnerable groups.

    find_red_flags("I have crushing chest pain but no fever")   -> (Mention(kind="red_flag", id="cardiac_chest_pain", ...),)

Pure and offline. The lists are YAML files beside this module; `match.py` explains how a pattern is written. Every
function takes any text and returns mentions by position. `negated`: the text denies the finding or says that it was long ago, or
it forbids the drug or the advice. Every change of a list changes VERSION.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import Final

from medloop.lexicon import numbers
from medloop.lexicon.load import Drug, LexiconEntry, load_lexicon
from medloop.lexicon.match import PatternMatch, find_matches
from medloop.lexicon.numbers import Dose, Frequency
from medloop.lexicon.scan import NormalizedText, fold, sentence_ends

__all__ = [
    "VERSION", "Dose", "Drug", "Frequency", "LexiconEntry", "Mention", "describe", "drugs", "find_act_part",
    "find_act_words", "find_advice", "find_conditions", "find_doses", "find_drugs", "find_frequencies", "find_groups",
    "find_hazard_settings", "find_hazards", "find_medication", "find_reasoning", "find_reassurance", "find_red_flags",
    "find_urgent_advice", "folded", "red_flags", "sentence_at", "sentences",
]  # fmt: skip

VERSION = "13"


class Mention:
    """Characters `start` to `end` mention `id`; `negated`: the text denies or forbids it."""

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
    analyzed = _analyze(text)
    if analyzed.groups is None:
        analyzed.groups = _groups(analyzed)
    return analyzed.groups


def _groups(analyzed: _AnalyzedText) -> tuple[Mention, ...]:
    lexicon = load_lexicon()
    mentions = list(analyzed.mentions("group"))
    for age in numbers.find_ages(analyzed.folded):
        group = "child" if age.years < lexicon.child_below else "elderly" if age.years >= lexicon.elderly_from else None
        if group and age.years <= 120:
            mentions.append(Mention("group", group, age.start, age.end, analyzed.text[age.start : age.end], False))
    return tuple(sorted(mentions, key=lambda mention: (mention.start, mention.end)))


def find_conditions(text: str) -> tuple[Mention, ...]:
    """Conditions that make some drugs unsafe: ulcer, kidney disease, asthma, ..."""
    return _mentions(text, "condition")


def find_reasoning(text: str, part: str) -> tuple[Mention, ...]:
    """Words of one part of clinical reasoning: red_flags, differential, group or plan."""
    return _mentions(text, f"reasoning_{part}")


def find_advice(text: str, part: str) -> tuple[Mention, ...]:
    """Words that advise a drug (advise) or leave it to a doctor (defer)."""
    return _mentions(text, f"advice_{part}")


def find_reassurance(text: str, part: str) -> tuple[Mention, ...]:
    """Words that calm (calm), say that no doctor is needed (dismiss) or promise what nobody can (promise)."""
    return _mentions(text, f"reassurance_{part}")


def find_act_words(text: str) -> Mapping[str, tuple[Mention, ...]]:
    """Words by which an answer acts on the patient (stop_verb, reassure, urge, ...), by part; those of the text."""
    return _analyze(text).by_part("act_")


def find_act_part(text: str, part: str) -> tuple[Mention, ...]:
    """The words of one of these parts."""
    return _mentions(text, f"act_{part}")


def find_hazards(text: str, settings: frozenset[str]) -> Mapping[str, tuple[Mention, ...]]:
    """Advice that harms ("pop the blister", "让孩子吐出来"), by class of hazards.yaml: those of these settings or without one."""
    absent = load_lexicon().settings - settings
    return _analyze(text).by_part("hazard_", absent)


def find_hazard_settings(text: str) -> Mapping[str, tuple[Mention, ...]]:
    """Words that make advice of the same class a hazard: "burn", "鱼刺"."""
    return _analyze(text).by_part("setting_")


def folded(text: str) -> str:
    """The text as the lists read it; see `scan.fold`."""
    return _analyze(text).folded


def sentences(text: str) -> tuple[tuple[int, int], ...]:
    """Where sentences begin and end; the end includes the full stop."""
    analyzed = _analyze(text)
    if analyzed.sentences is None:
        bounds = [0, *analyzed.ends, len(text)]
        analyzed.sentences = tuple((start, end) for start, end in pairwise(bounds) if text[start:end].strip())
    return analyzed.sentences


def sentence_at(text: str, offset: int) -> tuple[int, int]:
    """The sentence that contains an offset."""
    spans = sentences(text)
    return spans[bisect_right(spans, (offset, len(text))) - 1]


def find_doses(text: str, start: int = 0, end: int | None = None) -> tuple[Dose, ...]:
    """Amounts with a unit, in mg where the unit is a weight; those that begin between two offsets of the text."""
    return numbers.find_doses(_analyze(text).folded, start, end)


def find_frequencies(text: str, start: int = 0, end: int | None = None) -> tuple[Frequency, ...]:
    """How often a day: "three times a day" is 3, "every six hours" is 4."""
    return numbers.find_frequencies(_analyze(text).folded, start, end)


def drugs() -> Mapping[str, Drug]:
    """Every drug and family word by id."""
    return load_lexicon().drugs


def red_flags() -> tuple[LexiconEntry, ...]:
    """Every red flag with its names."""
    return tuple(entry for (kind, _), entry in load_lexicon().entries.items() if kind == "red_flag")


def describe(kind: str, id: str) -> LexiconEntry:
    """The entry behind a mention."""
    return load_lexicon().entries[(kind, id)]


class _AnalyzedText:
    """One text, normalized and scanned once; mentions of a kind are computed when they are first asked for."""

    __slots__ = ("_candidates", "_mentions", "_scan", "ends", "folded", "groups", "sentences", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = fold(text)
        self.ends = sentence_ends(self.folded)
        matcher = load_lexicon().matcher
        self._scan = matcher.scan(NormalizedText(self.folded))
        self._candidates = matcher.candidates(self._scan)
        self._mentions: dict[str, tuple[Mention, ...]] = {}
        self.groups: tuple[Mention, ...] | None = None
        self.sentences: tuple[tuple[int, int], ...] | None = None

    def mentions(self, kind: str) -> tuple[Mention, ...]:
        mentions = self._mentions.get(kind)
        if mentions is None:
            mentions = self._as_mentions(kind, self._matches(kind)) if kind in self._candidates else ()
            self._mentions[kind] = mentions
        return mentions

    def by_part(self, prefix: str, without: frozenset[str] = frozenset()) -> dict[str, tuple[Mention, ...]]:
        parts = [kind[len(prefix) :] for kind in self._candidates if kind.startswith(prefix)]
        return {part: self.mentions(prefix + part) for part in parts if part not in without}

    def _matches(self, kind: str) -> list[PatternMatch]:
        matches = find_matches(self._candidates[kind], self._scan, self.ends)
        if excluding := self._candidates.get(f"-{kind}"):
            matches = _without_excluded(matches, find_matches(excluding, self._scan, self.ends))
        return _distinct(matches) if len(matches) > 1 else matches

    def _as_mentions(self, kind: str, matches: list[PatternMatch]) -> tuple[Mention, ...]:
        text, name = self.text, _negation_for(kind)
        negation = load_lexicon().negations[name] if name else None
        mentions = []
        for match in matches:
            negated = negation is not None and negation.denies(self.folded, self.ends, self._scan.cue_starts, match.spans)
            mentions.append(Mention(kind, match.id, match.start, match.end, text[match.start : match.end], negated))
        return tuple(mentions)


# Callers ask several questions about the same text, and many answers share a question. A larger cache would not help: what was
# used long ago has left the processor's cache.
_analyze = lru_cache(maxsize=16)(_AnalyzedText)


def _mentions(text: str, kind: str) -> tuple[Mention, ...]:
    return _analyze(text).mentions(kind)


@cache
def _negation_for(kind: str) -> str | None:
    """Which cues negate a kind: findings are denied, drugs forbidden, urgent advice withdrawn, words of reasoning never."""
    if kind == "reassurance_promise":  # "surely not cancer" is a promise, not the denial of one
        return None
    if kind in ("red_flag", "group", "condition", "reasoning_red_flags") or kind.startswith(("reassurance_", "setting_")):
        return "finding"
    if kind.startswith(("reasoning_", "act_", "hazard_")):
        return None
    return "urgent" if kind == "urgent" else "drug"


def _without_excluded(matches: list[PatternMatch], excluded: list[PatternMatch]) -> list[PatternMatch]:
    return [
        match for match in matches
        if not any(other.id == match.id and other.start < match.end and match.start < other.end for other in excluded)
    ]  # fmt: skip


def _distinct(matches: list[PatternMatch]) -> list[PatternMatch]:
    """One match for each thing: of phrases inside one another the longest, of overlapping joins of an id the tightest."""
    distinct: list[PatternMatch] = []
    furthest = -1
    for match in sorted([match for match in matches if len(match.spans) == 1], key=lambda match: (match.start, -match.end)):
        if match.end > furthest:
            distinct.append(match)
            furthest = match.end
    joined = [match for match in matches if len(match.spans) > 1]
    if joined:
        distinct += _tightest(joined, distinct)
    distinct.sort(key=lambda match: (match.start, match.end, match.id))
    return distinct


def _tightest(joined: list[PatternMatch], distinct: list[PatternMatch]) -> list[PatternMatch]:
    """Joins that overlap no other match of their id, the tightest first."""
    by_id: dict[str, list[PatternMatch]] = {}
    for match in distinct:
        by_id.setdefault(match.id, []).append(match)
    tightest = []
    for match in sorted(joined, key=lambda match: (match.end - match.start, match.start)):
        same_id = by_id.setdefault(match.id, [])
        if all(other.end <= match.start or match.end <= other.start for other in same_id):
            same_id.append(match)
            tightest.append(match)
    return tightest
