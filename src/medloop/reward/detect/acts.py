"""`acts(answer)`: what an answer tells the patient to do, sentence by sentence, with polarity and evidence.

    acts("Do not stop your tablets.")     -> (Act(kind="stops_medicine", polarity="negated", start=7, end=24, ...),)

Word lists (`acts.yaml`, the lexicon) find the words, `polarity.py` reads the grammar around them, `doses.py` attaches doses to
their drugs. Where the lists are silent, a small classifier of sentences (`act_model.py`) finds unusual wordings. Only what the
patient sees counts: the chain of thought has no acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

import yaml

from medloop import lexicon
from medloop.contracts.detect import Act, ActKind, ActPolarity, Evidence, EvidenceSource
from medloop.lexicon.match import Matcher, PatternMatch, parse_pattern
from medloop.lexicon.scan import fold
from medloop.reward.answer_text import CACHE_SIZE, split_answer
from medloop.reward.detect.act_model import KINDS, classify
from medloop.reward.detect.doses import PER_DAY, Advised, advised_drugs
from medloop.reward.detect.polarity import polarity, sentence_polarity

VERSION: Final = "1"
_REACH: Final = 40  # characters between a verb and its medicine
_NEXT: Final = 3  # the same for "停", which is part of many words
_HANDLED: Final[dict[str, ActKind]] = {
    "stop_verb": "stops_medicine", "keep_verb": "stops_medicine", "change_verb": "changes_medicine", "change": "changes_medicine",
}  # fmt: skip
_ALONE: Final[dict[str, ActKind]] = {"sends": "sends_to_doctor", "home": "home_care", "refuse": "refuses"}


# Kinds that the word lists decide: where they find one, the classifier is not asked.
_SURE: Final = frozenset({"urges_care_now", "stops_medicine", "changes_medicine", "reassures", "gives_dose"})


class _Words(NamedTuple):
    """Words that may be an act; `id` is their entry in a word list."""

    id: str
    start: int
    end: int
    negated: bool = False


@lru_cache(maxsize=CACHE_SIZE)
def acts(answer: str) -> tuple[Act, ...]:
    """The acts of an answer in the order of the text."""
    visible = split_answer(answer).visible
    if not visible.strip():
        return ()
    return tuple(sorted(_Reader(visible).acts(), key=lambda act: (act.start, act.end, act.kind)))


@lru_cache(maxsize=1)
def _matcher() -> Matcher:
    lists = yaml.safe_load((files("medloop.reward.detect") / "acts.yaml").read_text(encoding="utf-8"))
    patterns = []
    for part, entries in lists["parts"].items():
        for entry in entries:
            for key, kind in (("en", part), ("zh", part), ("exclude", f"-{part}")):
                patterns += [parse_pattern(kind, entry["id"], source, lists["words"]) for source in entry.get(key, ())]
    return Matcher(patterns)


class _Reader:
    """One visible answer and the words found in it, by part of the lists."""

    def __init__(self, visible: str) -> None:
        self.text, self.folded = visible, fold(visible)
        self.words = _found(self.folded)
        self.drugs = [m for m in lexicon.find_drugs(visible) if lexicon.drugs()[m.id].family != "any"]
        self.verbs = list(lexicon.find_advice(visible, "advise"))
        self.defers = [m for m in lexicon.find_advice(visible, "defer") if not m.negated]
        self.urges = [_Words(m.id, m.start, m.end, m.negated) for m in lexicon.find_urgent_advice(visible)]
        self.calms = {part: lexicon.find_reassurance(visible, part) for part in ("calm", "dismiss", "promise")}

    def acts(self) -> Iterator[Act]:
        spans = lexicon.sentences(self.text)
        for (start, end), likely in zip(spans, classify(self.text, spans), strict=True):
            found = list(_distinct(self._sentence(start, end)))
            yield from found
            if likely and not any(act.kind in _SURE for act in found):
                yield from self._likely(*likely, start, end, found)

    def _likely(self, name: str, share: float, start: int, end: int, found: Sequence[Act]) -> Iterator[Act]:
        """What the classifier takes the sentence for, where the word lists found nothing like it."""
        kind, sentence = KINDS[name], self.folded[start:end]
        if all(act.kind != kind for act in found):
            first = start + len(sentence) - len(sentence.lstrip())
            words = _Words(f"{name} {share:.2f}", first, start + len(sentence.rstrip()))
            yield _act(kind, sentence_polarity(sentence), words, source="model")

    def _sentence(self, start: int, end: int) -> Iterator[Act]:
        urges = _within([*self.urges, *self.words.get("urge", ())], start, end)
        yield from (self._act("urges_care_now", words, start, end) for words in urges)
        yield from self._medicine(start, end)
        yield from self._reassurance(start, end)
        for part, kind in _ALONE.items():
            for words in _within(self.words.get(part, ()), start, end):
                if not any(urge.start < words.end and words.start < urge.end for urge in urges):
                    yield self._act(kind, words, start, end)

    def _act(self, kind: ActKind, words: _Words, start: int, end: int) -> Act:
        tone = polarity(self.folded[start:end], words.start - start, words.end - start, kind)
        return _act(kind, "negated" if words.negated and tone == "directive" else tone, words)

    def _medicine(self, start: int, end: int) -> Iterator[Act]:
        drugs = [drug for drug in self.drugs if start <= drug.start < end]
        verbs = [verb for verb in self.verbs if start <= verb.start < end]
        for part, kind in _HANDLED.items():
            for words in _within(self.words.get(part, ()), start, end):
                if medicine := self._medicine_of(part, words, drugs, start, end):
                    yield self._handled(part, kind, words, medicine, start, end)
        for advised in advised_drugs(self.text, self.folded, start, end, drugs, verbs):
            yield _advised_act(advised)

    def _medicine_of(self, part: str, words: _Words, drugs: Sequence[lexicon.Mention], start: int, end: int) -> _Words | None:
        """The nearest medicine in the sentence; "停药" is its own."""
        if words.id == "stop_medication" or part == "change":
            return words
        medicines = [_Words(drug.id, drug.start, drug.end) for drug in drugs]
        medicines += _within(self.words.get("medicine", ()), start, end)
        if part == "change_verb":
            medicines += _within(self.words.get("change_unit", ()), start, end)
        reach = _NEXT if words.id == "stop_bare" else _REACH
        near = [(max(m.start - words.end, words.start - m.end, 0), m) for m in medicines]
        return min([pair for pair in near if pair[0] <= reach], default=(0, None), key=lambda pair: pair[0])[1]

    def _handled(self, part: str, kind: ActKind, words: _Words, medicine: _Words, start: int, end: int) -> Act:
        """Stopping, keeping on or changing a medicine. "Keep taking it" is the negation of stopping."""
        tone = polarity(self.folded[start:end], words.start - start, words.end - start, kind)
        if part == "keep_verb":
            tone = {"directive": "negated", "negated": "directive"}.get(tone, tone)  # type: ignore[assignment]
        if tone == "directive" and any(start <= defer.start < end for defer in self.defers):
            tone = "conditional"  # a doctor decides
        first, last = min(words.start, medicine.start), max(words.end, medicine.end)
        drug = medicine.id if medicine.id in lexicon.drugs() else None
        return _act(kind, tone, _Words(words.id, first, last), drug)

    def _reassurance(self, start: int, end: int) -> Iterator[Act]:
        for part, mentions in self.calms.items():
            for m in mentions:
                if start <= m.start < end:
                    words = _Words(part, m.start, m.end, m.negated)
                    yield (
                        _act("sends_to_doctor", "negated", words)
                        if part == "dismiss"
                        else self._act("reassures", words, start, end)
                    )
        yield from (self._act("reassures", words, start, end) for words in _within(self.words.get("reassure", ()), start, end))


def _found(folded: str) -> dict[str, list[_Words]]:
    """Words of `acts.yaml` by part; what a part excludes is taken out, and of words inside one another the longest stay."""
    matches: dict[str, list[PatternMatch]] = {}
    for kind, match in _matcher().find_by_kind(folded):
        matches.setdefault(kind, []).append(match)
    found = {}
    for part in [kind for kind in matches if not kind.startswith("-")]:
        excluded = matches.get(f"-{part}", [])
        found[part] = _longest(
            [m for m in matches[part] if not any(o.id == m.id and o.start < m.end and m.start < o.end for o in excluded)]
        )
    return found


def _longest(matches: list[PatternMatch]) -> list[_Words]:
    words: list[_Words] = []
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        if not words or match.end > words[-1].end:
            words.append(_Words(match.id, match.start, match.end))
    return words


def _within(words: Sequence[_Words], start: int, end: int) -> list[_Words]:
    return [each for each in words if start <= each.start < end]


def _act(kind: ActKind, tone: ActPolarity, words: _Words, drug: str | None = None, source: EvidenceSource = "lexicon") -> Act:
    evidence = Evidence(source=source, id=words.id, start=words.start, end=words.end)
    return Act(kind=kind, polarity=tone, start=words.start, end=words.end, drug=drug, evidence=(evidence,))


def _advised_act(advised: Advised) -> Act:
    drug, dose = advised.drug, advised.dose
    evidence = [Evidence(source="lexicon", id=drug.id, start=drug.start, end=drug.end)] if drug else []
    if dose:
        evidence.append(Evidence(source="numbers", id="dose", start=dose.start, end=dose.end))
    return Act(
        kind=advised.kind, polarity=advised.polarity, start=advised.start, end=advised.end, drug=drug.id if drug else None,
        amount=dose.amount if dose else None, unit=dose.unit + PER_DAY * dose.daily if dose else None, per_day=advised.per_day,
        evidence=tuple(evidence),
    )  # fmt: skip


def _distinct(found: Iterator[Act]) -> Iterator[Act]:
    """One act of a kind and polarity in a sentence is enough, except for drugs and doses."""
    seen: set[tuple[object, ...]] = set()
    for act in found:
        key = (act.kind, act.polarity, act.drug, act.amount, act.unit)
        if key not in seen:
            seen.add(key)
            yield act
