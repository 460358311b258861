"""Doses and advised drugs of one sentence, each dose with its own drug and frequency.

    "Ibuprofen 400 mg three times a day and paracetamol 1 g at night"   -> ibuprofen 400 mg, 3 a day; paracetamol 1 g
    "two of them, four times a day"                                     -> no drug, 2, 4 a day

A dose belongs to the drug right behind it ("400 mg of ibuprofen"), else to the last drug before it, else to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from medloop import lexicon
from medloop.contracts.detect import ActKind, ActPolarity
from medloop.lexicon.numbers import number
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE
from medloop.reward.detect.polarity import REACH, polarity

PER_DAY = "/day"  # behind the unit of an amount that is for a whole day
MAX_DISTANCE = 40  # characters between a drug and its dose
MAX_DOSES = 64  # of a sentence: more of them add nothing, and a text of nothing but numbers must not cost more
_LOOK_BACK = 200  # characters before a drug in which "such as" can stand, blanks included
_BEHIND = lazy_pattern(r"\s*(?:of |的)?(?:the |your |plain |oral )?\s*$")
_COUNT = r"\d+|one|two|three|four|five|six|eight|ten"
_OFTEN_NEXT = (
    r"\s*(?:every|once|twice|three times|four times|at (?:a time|once|night|bedtime)|together|tonight|a day|daily|each|in the)"
)
_UNNAMED = lazy_pattern(
    rf"(?<![\w.])({_COUNT}) of (?:them|these|those|each)\b"
    rf"|\b(?:take|have|swallow|give|pop|use) (?:him |her |them )?({_COUNT})(?={_OFTEN_NEXT})"
)
_BEFORE_UNNAMED = (" of ", "take ", "have ", "swallow ", "give ", "pop ", "use ")  # one of them is part of every match
# The patient already takes the drug: "while taking warfarin", "吃华法林时".
_TAKEN_BEFORE = lazy_pattern(
    r"(?:\bwith|\bon|while (?:taking|using)|if you (?:take|are taking|use)|when taking)\s*(?:the |your |an? )?$"
)
_EXAMPLE = lazy_pattern(r"(?:(?:例|比|譬)?如|包括|such as|including|like)\s*[:：]?\s*$")  # right before a drug: it is only named
_TAKEN_AFTER = lazy_pattern(
    r"[^，,。;；]{0,8}(?:之前|以前|过程中|期间|时[，,])|(?:也|都|常|可能|容易)[^，,。]{0,4}(?:会|可能|产生|引起|导致"
    r"|出现)|会(?:产生|引起|导致|出现)|(?:时|期间|的时候|的人|的患者|者|过敏|的使用|(?:治疗)?[^，,。]{0,8}的时间|(?:等"
    r"|类|药物?)*(?:可以|可)?(?:用于|适用于)|等[^，,。]{0,4}适用)"
)


# Between a drug and a dose: another thing is named, so the dose is not the drug's ("吗丁啉1片,硫糖铝片4片").
_OTHER_NAMED = lazy_pattern(
    r"(?:[,，;；、。.]\s*[①-⑳(（]?\s*|或者?|和|及|与|加|\+)(?!每|一|二|两|三|四|口服|内服|饭|餐|早|晚|睡前|日|分|成人"
    r"|儿童|大人|小孩|首次|首剂|用法|用量|剂量|次|连|服|吃|最|不|必要|可|即|也|都|各|共|约|建议|通常|起始)"
    r"[\u4e00-\u9fff]{2,}"
)
_FREQUENCY_FIRST = 6  # characters between a frequency and the dose behind it ("以后每12小时服用0.1g")
_SEPARATOR = lazy_pattern(r"[,，;；、。.)）]")
_BROKEN_NUMBER = lazy_pattern(r"\d[。.．]\s?$|^0\d")  # "0。75g", "05克": the first digits are lost
_WHOLE_DAY = lazy_pattern(r"\s*(?:in|per|within|over|every)?\s*(?:a |any |each )?24[\s-]*(?:h|hours?|小时)")
# A number that could be one of a dose.
MAY_HAVE_DOSE = lazy_pattern(r"\d|[半一两二三四五六七八九十][片粒颗袋支喷滴]|\b(?:half|one|two|three|four|five|six|eight|ten)\b")


@dataclass(frozen=True, slots=True)
class Advised:
    """A drug that a sentence advises, or a dose with or without one; offsets of the whole text."""

    kind: ActKind
    polarity: ActPolarity
    start: int
    end: int
    drug: lexicon.Mention | None
    dose: lexicon.Dose | None
    per_day: float | None


# Behind a drug that no verb advises: it is recommended all the same.
_PRAISED = lazy_pattern(
    r"(?:\s\w+){0,2}?,?\s(?:(?:is|are|would be|will be) (?:fine|ok|okay|great|best|perfect|the answer|worth"
    r"|all you need|what you need|your friend)"
    r"|works? (?:best|well|wonders|a treat|fine|every time|better)|will (?:do|help|sort|fix|calm|clear|let you|knock"
    r"|see you)|does the trick|should do)\b"
    r"|[\u4e00-\u9fff]{0,4}(?:效果(?:很|最)?好|就行|就好|管用|就可以|见效快|退得快|没问题|都行|好得快)"
)


def advised_drugs(
    text: str, folded: str, span: tuple[int, int], drugs: Sequence[lexicon.Mention], verbs: Sequence[lexicon.Mention],
    about_medicine: bool = False,
) -> Iterator[Advised]:  # fmt: skip
    """What the sentence from `span[0]` to `span[1]` gives; `drugs` and `verbs` ("take", "服用") are those of the sentence.

    `about_medicine`: the question names a medicine, so that an amount without a name is one of it.
    """
    start, end = span
    named = [_as_daily(folded, dose) for dose in lexicon.find_doses(text, start, end) if not _is_broken(folded, dose)]
    doses = [*named, *_unnamed_doses(folded, start, end)][:MAX_DOSES]
    often = lexicon.find_frequencies(text, start, end) if doses else ()
    dosed = set()
    for index, dose in enumerate(doses):
        drug = _drug_of(folded, dose, drugs)
        last = _first_of_next(folded, often, dose, doses[index + 1]) if index + 1 < len(doses) else end
        first = min(drug.start, dose.start) if drug else start
        per_day = _per_day(often, dose.start, last) or (_per_day(often, first, end) if len(doses) == 1 else None)
        if drug is None and not per_day and not about_medicine and not any(verb.start < dose.start for verb in verbs):
            continue  # an amount of something else
        dosed.add(drug)
        tone = _tone(folded, start, end, first if drug else dose.start, dose.end, "gives_dose", drug, verbs)
        words = (dose, drug) if drug else (dose,)
        yield Advised("gives_dose", tone, min(w.start for w in words), max(w.end for w in words), drug, dose, per_day)
    for drug in drugs:
        if drug not in dosed and _is_praised(text, folded, drug, end):
            tone = _tone(folded, start, end, drug.start, drug.end, "starts_medicine", drug, verbs)
            yield Advised("starts_medicine", tone, drug.start, drug.end, drug, None, None)
        elif (
            drug not in dosed
            and not _EXAMPLE.search(folded, max(start, drug.start - _LOOK_BACK), drug.start)
            and (verb := _verb_of(folded, drug, verbs))
            and not _already_taken(folded, drug)
        ):
            tone = _tone(folded, start, end, verb.start, verb.end, "starts_medicine", drug, (verb,))
            yield Advised("starts_medicine", tone, drug.start, drug.end, drug, None, None)


def _is_praised(text: str, folded: str, drug: lexicon.Mention, end: int) -> bool:
    """Whether the words behind a drug recommend it, or say how often to take it ("ciprofloxacin twice daily")."""
    if drug.negated:
        return False
    often = lexicon.find_frequencies(text, drug.end, min(end, drug.end + 8))
    return bool(often) or _PRAISED.match(folded, drug.end, end) is not None


def _unnamed_doses(folded: str, start: int, end: int) -> list[lexicon.Dose]:
    """Counted things without a unit: "two of them", "take two every four hours"."""
    if not _may_be_unnamed(folded):
        return []
    matches = _UNNAMED.finditer(folded, start, end)
    return [lexicon.Dose(match.start(), match.end(), number(match[1] or match[2]), "tablet", None) for match in matches]


@lru_cache(maxsize=CACHE_SIZE)
def _may_be_unnamed(folded: str) -> bool:
    return any(word in folded for word in _BEFORE_UNNAMED)


def _is_broken(folded: str, dose: lexicon.Dose) -> bool:
    """A number whose beginning is lost in the text."""
    return any(
        _BROKEN_NUMBER.search(part) for part in (folded[max(0, dose.start - 3) : dose.start], folded[dose.start : dose.end])
    )


def _as_daily(folded: str, dose: lexicon.Dose) -> lexicon.Dose:
    daily = dose.daily or _WHOLE_DAY.match(folded, dose.end) is not None
    return dose if daily == dose.daily else replace(dose, daily=daily)


def _drug_of(folded: str, dose: lexicon.Dose, drugs: Sequence[lexicon.Mention]) -> lexicon.Mention | None:
    near = [drug for drug in drugs if max(dose.start - drug.end, drug.start - dose.end) <= MAX_DISTANCE]
    before = [drug for drug in near if drug.end <= dose.start and not _OTHER_NAMED.search(folded, drug.end, dose.start)]
    behind = [drug for drug in near if drug.start >= dose.end and not _SEPARATOR.search(folded, dose.end, drug.start)]
    if behind and _BEHIND.match(folded, dose.end, behind[0].start):
        return behind[0]
    return before[-1] if before else behind[0] if behind else None


def _first_of_next(folded: str, often: Sequence[lexicon.Frequency], dose: lexicon.Dose, other: lexicon.Dose) -> int:
    """Where the next dose begins with its frequency: a frequency in its own clause, right before it, is not the first dose's."""
    for each in often:
        if dose.end <= each.start and each.end <= other.start <= each.end + _FREQUENCY_FIRST:
            if _SEPARATOR.search(folded, dose.end, each.start) and not _SEPARATOR.search(folded, each.end, other.start):
                return each.start
    return other.start


def _per_day(often: Sequence[lexicon.Frequency], start: int, end: int) -> float | None:
    """The lowest frequency named: "every four hours, at most three times a day" is 3."""
    return min([each.per_day for each in often if start <= each.start < end], default=None)


def _verb_of(folded: str, drug: lexicon.Mention, verbs: Sequence[lexicon.Mention]) -> lexicon.Mention | None:
    """The verb that advises the drug: the last one before it; in Chinese also one right after it ("布洛芬可以吃")."""
    before = [verb for verb in verbs if verb.end <= drug.start]
    if before:
        return before[-1]
    after = [verb for verb in verbs if 0 <= verb.start - drug.end <= 6]
    return after[0] if after and not folded[drug.end : after[0].end].isascii() else None


def _tone(
    folded: str, start: int, end: int, first: int, last: int, kind: ActKind, drug: lexicon.Mention | None,
    verbs: Sequence[lexicon.Mention],
) -> ActPolarity:  # fmt: skip
    """The polarity of a dose is that of its verb, or its own where there is none ("ibuprofen 400 mg with food")."""
    verb = next((verb for verb in reversed(verbs) if verb.start <= first), None)
    if verb is not None:
        first, last = verb.start, verb.end
    start = max(start, first - REACH)
    tone = polarity(folded[start : min(end, last + REACH)], first - start, last - start, kind)
    return "negated" if tone == "directive" and drug is not None and drug.negated else tone


def _already_taken(folded: str, drug: lexicon.Mention) -> bool:
    return bool(_TAKEN_BEFORE.search(folded, max(0, drug.start - 24), drug.start) or _TAKEN_AFTER.match(folded, drug.end))
