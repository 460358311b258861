"""Topics in everyday words, for triggers: `≈stroke` is in "舌头捋不直，筷子突然拿不住", whatever the lexicon knows of it.

    lay_topics("我爸嘴歪了，右手没劲")             # LayTopics(said={"stroke"}, excluded=set())
    lay_topic("≈stroke").shown                      # what the approver reads: examples of the words that it reaches

The reflector adds such an alternative to the triggers that it proposes; a person sees what it also reaches and may take it out.
The lexicon stays as it is: its red flags decide what an emergency is, these words only which questions a rule is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

from medloop import lexicon
from medloop.contracts.rule import LAY_MARK
from medloop.lexicon.load import LAY_WORDS, read_list
from medloop.lexicon.match import Matcher, Pattern, PatternMatch, parse_pattern
from medloop.lexicon.negation import Negation, compile_negation
from medloop.lexicon.scan import NormalizedText, sentence_ends

MARK = LAY_MARK
_SUDDEN, _EXCLUDED, _PLAIN, _PRESENT, _MILD, _OTHER = "sudden", "exclude", "plain", "present", "mild", "other"
_NO_SIGNS = frozenset((_SUDDEN, _EXCLUDED, _PLAIN, _PRESENT, _MILD, _OTHER))


class LayTopics(NamedTuple):
    """Topics that a text speaks of, and those that it only asks about, denies or tells of long ago."""

    said: frozenset[str]
    excluded: frozenset[str]


@dataclass(frozen=True)
class LayTopic:
    id: str
    zh_name: str
    en_name: str
    shown: tuple[str, ...]
    left_out: tuple[str, ...]
    named: tuple[str, ...]
    needs_medicine: bool
    has_signs: bool


@dataclass(frozen=True)
class _LayWords:
    topics: dict[str, LayTopic]
    matcher: Matcher
    denial: Negation


@cache
def _lay_words() -> _LayWords:
    raw: Any = read_list(LAY_WORDS)
    words, patterns, topics = raw["words"], list[Pattern](), {}
    for entry in raw["topics"]:
        topics[entry["id"]] = LayTopic(
            entry["id"], entry["zh_name"], entry["en_name"], tuple(entry["shown"]), tuple(entry.get("left_out", ())),
            tuple(entry.get("named", ())), entry.get("medicine", False), "signs" in entry,
        )  # fmt: skip
        parts = {**entry.get("signs", {}), _PLAIN: [*entry.get("zh", ()), *entry.get("en", ())],
                 **{name: entry.get(name, ()) for name in (_SUDDEN, _EXCLUDED, _PRESENT, _MILD, _OTHER)}}  # fmt: skip
        patterns += [parse_pattern(part, entry["id"], source, words) for part, sources in parts.items() for source in sources]
    patterns += [parse_pattern("medicine", "", f"({words[name]})", words) for name in ("medicine", "zmedicine")]
    cue_sets: list[frozenset[str]] = []
    denial = compile_negation(read_list("negation.yaml")["finding"], cue_sets)
    return _LayWords(topics, Matcher(patterns, cue_sets), denial)


@lru_cache(maxsize=64)
def lay_topics(text: str) -> LayTopics:
    """The topics of a question in everyday words."""
    lists, folded = _lay_words(), lexicon.folded(text)
    scan, ends = lists.matcher.scan(NormalizedText(folded)), sentence_ends(folded)
    found: dict[tuple[str, str], list[PatternMatch]] = {}
    for kind, patterns in lists.matcher.candidates(scan).items():
        for pattern in patterns:
            pattern.add_matches(found.setdefault((pattern.id, kind), []), scan, ends)
    parts: dict[str, set[str]] = {}
    for (name, kind), matches in found.items():
        if name and lists.topics[name].has_signs:
            kept = [match for match in matches if not lists.denial.denies(folded, ends, scan.cue_starts, match.spans)]
        elif kind == _PLAIN:
            others = found.get((name, _OTHER), [])
            kept = [match for match in matches if not any(_is_of(match, other) for other in others)]
        else:
            kept = matches
        if kept:
            parts.setdefault(name, set()).add(kind)
    medicine = "medicine" in parts.pop("", set()) or bool(lexicon.find_drugs(text))
    excluded = frozenset(name for name, kinds in parts.items() if _is_excluded(kinds))
    said = {name for name, kinds in parts.items() if name not in excluded and _is_said(lists.topics[name], kinds, medicine)}
    return LayTopics(frozenset(said), excluded)


def _is_of(match: PatternMatch, other: PatternMatch) -> bool:
    """Whether a match is a part of what means something else; one that says more than it ("son is 18 kg") is not."""
    says_more = match.start <= other.start and match.end > other.end
    return not says_more and match.start < other.end and other.start < match.end


def _is_excluded(kinds: set[str]) -> bool:
    if _MILD in kinds and not (_SUDDEN in kinds and len(kinds - _NO_SIGNS) > 1):
        return True
    return _EXCLUDED in kinds and not kinds & {_SUDDEN, _PRESENT}


def _is_said(topic: LayTopic, kinds: set[str], medicine: bool) -> bool:
    if topic.needs_medicine and not medicine:
        return False
    if not topic.has_signs:
        return _PLAIN in kinds
    signs = kinds - _NO_SIGNS
    return len(signs) > 1 or (bool(signs) and _SUDDEN in kinds)


def lay_topic(word: str) -> LayTopic | None:
    """The topic that an alternative of a trigger names; None where it names none."""
    return _lay_words().topics.get(word.strip().removeprefix(MARK)) if word.strip().startswith(MARK) else None


def topics_of(triggers: tuple[str, ...]) -> list[LayTopic]:
    """What the triggers of a rule also reach, for its approver."""
    return [topic for trigger in triggers for word in trigger.split("|") if (topic := lay_topic(word)) is not None]
