"""Whether words in a sentence are a directive to this patient, or conditional, negated, reported or a question.

    polarity("do not stop your tablets.", 7, 11, "stops_medicine")      -> "negated"

English needs the verb's form: an imperative or a modal ("stop", "you can stop") directs, a gerund or a third person ("people who
stop", "stopping it") reports. Chinese verbs have no forms, so a directive is what no cue makes something else. The cues are data
(polarity.yaml); all text is folded.
"""

from __future__ import annotations

import re
from typing import Final

from medloop.contracts.detect import ActKind, ActPolarity
from medloop.lexicon.load import read_list
from medloop.patterns import lazy_pattern

_HELP = ("urges_care_now", "sends_to_doctor")
_MEDICINE = ("stops_medicine", "changes_medicine")  # a doctor's decision, unless the answer takes it
_ANY_MEDICINE = (*_MEDICINE, "starts_medicine")

_TO_DIRECTS = frozenset(
    """need needs have has ought want advise urge recommend tell ask sure remember is you safest best better wise right important
    crucial essential vital time going him her them safe fine ok okay free sensible advisable recommended advised hesitate afraid
    imperative necessary option able good thing idea please want""".split()
)
_REACH_ZH = 18  # characters between a negation and what it negates
REACH: Final = 3000  # characters on either side of the words that are read: a text without full stops must not cost more


def _compile(cue: dict[str, list[str]]) -> re.Pattern[str]:
    """`words` are alternatives between the edges of a word, `patterns` stand as they are."""
    if "words" in cue:
        return lazy_pattern(rf"\b(?:{'|'.join(cue['words'])})\b")
    return lazy_pattern("|".join(cue["patterns"]))


_CUES: Final = {
    name: _compile(cue) for name, cue in read_list("polarity.yaml", "medloop.reward.detect").items() if name != "version"
}
_WITH_DOCTOR_EN = _CUES["with_doctor_en"]
_WITH_DOCTOR_ZH = _CUES["with_doctor_zh"]
_NOUN_ZH = _CUES["noun_zh"]
_NEEDED_EN = _CUES["needed_en"]
_REFUSED_ZH = _CUES["refused_zh"]
_LICENSED_EN = _CUES["licensed_en"]
_FAR_NEGATION_ZH = _CUES["far_negation_zh"]
_NO_NEED = {"en": _CUES["no_need_en"], "zh": _CUES["no_need_zh"]}
_INFORMS = {"en": _CUES["informs_en"], "zh": _CUES["informs_zh"]}
_CLAUSE_EN = _CUES["clause_en"]
_CLAUSE_ZH = _CUES["clause_zh"]
_QUESTION_EN = _CUES["question_en"]
_QUESTION_ZH = _CUES["question_zh"]
_ASKED_ZH = _CUES["asked_zh"]
_NEGATION_EN = _CUES["negation_en"]
_NO_NEGATION_EN = _CUES["no_negation_en"]
_NEGATED_AFTER_EN = _CUES["negated_after_en"]
_POSITIVE_AFTER_EN = _CUES["positive_after_en"]
_REPORTED_EN = _CUES["reported_en"]
_COST_EN = _CUES["cost_en"]
_THIRD_EN = _CUES["third_en"]
_DIRECTED_EN = _CUES["directed_en"]
_YOU_EN = _CUES["you_en"]
_THAT_YOU_EN = _CUES["that_you_en"]
_TO_EN = _CUES["to_en"]
_GERUND_DIRECTS = _CUES["gerund_directs"]
_PASSIVE_DIRECTS = _CUES["passive_directs"]
_WELL_EN = _CUES["well_en"]
_CONDITION_EN = _CUES["condition_en"]
_DECIDES_EN = _CUES["decides_en"]
_DECIDES_ZH = _CUES["decides_zh"]
_HEDGE_EN = _CUES["hedge_en"]
_NEGATION_ZH = _CUES["negation_zh"]
_NEGATED_AFTER_ZH = _CUES["negated_after_zh"]
_REPORTED_ZH = _CUES["reported_zh"]
_COST_ZH = _CUES["cost_zh"]
_CONDITION_ZH = _CUES["condition_zh"]
_WELL_ZH = _CUES["well_zh"]
_HEDGE_ZH = _CUES["hedge_zh"]
_SAID_ZH = _CUES["said_zh"]
_CALM_IF_ZH = _CUES["calm_if_zh"]
_PAST_ZH = _CUES["past_zh"]
_MAY_WARN = {"en": lazy_pattern("not |n't|never|avoid|refrain|away|clear"), "zh": lazy_pattern("[不避切禁严别勿忌]")}
_WITHOUT_EN = _CUES["without_en"]
_OTHERS = {"en": _CUES["others_en"], "zh": _CUES["others_zh"]}
_CHOICE_ZH = ("或", "或者", "或是")
_MAYBE = {"en": _CUES["maybe_en"], "zh": _CUES["maybe_zh"]}


def polarity(sentence: str, start: int, end: int, kind: ActKind) -> ActPolarity:
    """What the sentence makes of the words from `start` to `end`, which are an act of this kind."""
    if start > REACH or len(sentence) > end + REACH:
        first = max(0, start - REACH)
        sentence, start, end = sentence[first : end + REACH], start - first, end - first
    if sentence.isascii() or not any("\u4e00" <= char <= "\u9fff" for char in sentence):
        return _english(sentence, start, end, kind)
    return _chinese(sentence, start, end, kind)


def sentence_polarity(sentence: str) -> ActPolarity:
    """The polarity of a sentence whose words are in no list: what condition, report or question makes of all of it."""
    chinese = not sentence.isascii() and any("\u4e00" <= char <= "\u9fff" for char in sentence)
    question, condition, reported, hedge = (
        (_QUESTION_ZH, _CONDITION_ZH, _REPORTED_ZH, _HEDGE_ZH)
        if chinese
        else (_QUESTION_EN, _CONDITION_EN, _REPORTED_EN, _HEDGE_EN)
    )
    if question.search(sentence):
        return "question"
    if reported.search(sentence):
        return "reported"
    return "negated" if hedge.search(sentence) else "conditional" if condition.search(sentence) else "directive"


def find_warning(sentence: str) -> tuple[int, int] | None:
    """Where a sentence tells the patient not to do something."""
    english = sentence.isascii()
    if _MAY_WARN["en" if english else "zh"].search(sentence) is None:  # nearly always, and quick
        return None
    match = _CUES["warning_en" if english else "warning_zh"].search(sentence)
    return match.span() if match else None


def _english(sentence: str, start: int, end: int, kind: ActKind) -> ActPolarity:
    before, after = sentence[:start], sentence[end:]
    clause = _last_clause(_CLAUSE_EN, before)
    if _QUESTION_EN.search(sentence):
        return "question"
    if kind == "reassures":
        return _calms_english(before, clause, after)
    if kind in _HELP:
        if without := _WITHOUT_EN.search(clause):
            return "directive" if _NEGATION_EN.search(before[: len(before) - len(clause) + without.start()]) else "reported"
        if _NO_NEED["en"].search(clause) and _denied_english(clause):
            return "negated"
    elif _denied_english(clause) or (kind != "home_care" and _condemned_english(sentence[start:end], clause, after)):
        return "negated"
    if _REPORTED_EN.search(before) or (kind == "urges_care_now" and _COST_EN.search(sentence)):
        return "reported"
    if _is_conditional_english(
        before, "" if kind in _MEDICINE and _CUES["sometimes_en"].search(sentence[start:end]) else after, kind
    ):
        return "conditional"
    if kind == "urges_care_now" and ("whether" in clause or after.startswith((" condition", " medicine", " physician"))):
        return "reported"
    if kind == "starts_medicine" and _INFORMS["en"].search(clause):
        return "reported"
    if kind in _MEDICINE and not (_LICENSED_EN.search(clause) or _DIRECTED_EN.search(clause) or _GERUND_DIRECTS.search(clause)):
        passive = _PASSIVE_DIRECTS.search(clause) or sentence[start:end].endswith(" go")
        return "directive" if passive else "reported"
    return "directive" if _directs_english(sentence[start:end], clause) else "reported"


def _calms_english(before: str, clause: str, after: str) -> ActPolarity:
    if _HEDGE_EN.search(before) or _denied_english(clause):
        return "negated"
    if _REPORTED_EN.search(before):
        return "reported"
    hedged = _CONDITION_EN.search(before) or _CONDITION_EN.search(after) or _MAYBE["en"].search(clause)
    return "conditional" if hedged else "directive"


def _last_clause(boundary: re.Pattern[str], before: str) -> str:
    last = 0
    for match in boundary.finditer(before):
        last = match.end()
    return before[last:].strip()


def _denied_english(clause: str) -> bool:
    if clause.endswith(" and"):  # "do not panic and call": the next verb is a new instruction
        return False
    cues = list(_NEGATION_EN.finditer(clause))
    return bool(cues) and not any(apparent.end() > cues[-1].start() for apparent in _NO_NEGATION_EN.finditer(clause))


def _condemned_english(words: str, clause: str, after: str) -> bool:
    """Said to be wrong afterwards: "stopping it can be dangerous". An imperative is not: "stop it, it can cause bleeding"."""
    if _POSITIVE_AFTER_EN.search(after[:60]):
        return False
    return bool((words.split(" ")[0].endswith("ing") or clause) and _NEGATED_AFTER_EN.search(after))


def _is_conditional_english(before: str, after: str, kind: ActKind) -> bool:
    if kind in _MEDICINE and _WITH_DOCTOR_EN.search(after):
        return True
    if kind == "urges_care_now" and (_CUES["signs_en"].match(after) or _OTHERS["en"].search(before)):
        return True
    condition = _CONDITION_EN.search(before) or _CONDITION_EN.search(after)
    if condition is None:
        return kind in _ANY_MEDICINE and bool(_DECIDES_EN.search(before))
    text = condition.string[condition.start() :]
    return not (kind in _MEDICINE and _WELL_EN.search(text[:60]))


def _directs_english(words: str, clause: str) -> bool:
    verb = words.split(" ")[0]
    if verb.endswith("ing") and verb not in ("ring", "bring"):
        return bool(_GERUND_DIRECTS.search(clause))
    if (verb.endswith("ed") and verb != "need") or verb in ("came", "taken", "driven"):
        return bool(_PASSIVE_DIRECTS.search(clause))
    if verb in ("need", "needs", "require", "requires"):
        return bool(_NEEDED_EN.search(clause))
    if _YOU_EN.search(clause):
        return bool(_THAT_YOU_EN.search(clause))
    if to := _TO_EN.search(clause):
        return to[1].strip("'\"") in _TO_DIRECTS
    return not _THIRD_EN.search(clause) or bool(_DIRECTED_EN.search(clause))


def _chinese(sentence: str, start: int, end: int, kind: ActKind) -> ActPolarity:
    before, after = sentence[:start], sentence[end:]
    clause = _last_clause(_CLAUSE_ZH, before)
    if _QUESTION_ZH.search(sentence) or _ASKED_ZH.search(clause):
        return "question"
    if kind == "reassures" and (_HEDGE_ZH.search(before) or clause.endswith(("不", "没", "并非", "不是", "没有"))):
        return "negated"
    if kind == "reassures" and _MAYBE["zh"].search(clause):
        return "conditional"
    if kind == "urges_care_now" and sentence.startswith("是一种", start):
        return "reported"
    if kind == "urges_care_now" and _is_choice_chinese(sentence[start:end], before, after):
        return "conditional"
    if kind in _MEDICINE and _FAR_NEGATION_ZH.search(before):
        return "negated"
    if kind == "starts_medicine" and _INFORMS["zh"].search(clause):
        return "reported"
    if kind != "reassures" and _denied_chinese(clause, after, kind):
        return "negated"
    if kind == "reassures" and (_SAID_ZH.search(before) or _CALM_IF_ZH.search(before)):
        return "reported" if _SAID_ZH.search(before) else "conditional"
    if _REPORTED_ZH.search(before) or (kind == "urges_care_now" and _COST_ZH.search(sentence)):
        return "reported"
    if kind in _MEDICINE and (_PAST_ZH.search(after) or _NOUN_ZH.search(clause)):
        return "reported"
    if kind == "reassures" and after.startswith(("时", "者", "的话", "的患者", "的时候", "的情况下")):
        return "conditional"
    if kind in _MEDICINE and _CUES["only_then_zh"].search(before):
        return "conditional"
    if kind in _MEDICINE and (_DECIDES_ZH.search(before) or _WITH_DOCTOR_ZH.search(after)):
        return "conditional"
    if condition := _CONDITION_ZH.search(before) or re.search("如果|要是|除非|的话", after):
        if kind not in _MEDICINE or not _WELL_ZH.search(condition.string[: condition.end() + 8]):
            return "conditional"
    return "directive"


def _is_choice_chinese(words: str, before: str, after: str) -> bool:
    """One department among others, what happens there, or what others should do who have the signs just named."""
    if "或" in words or before.endswith(_CHOICE_ZH) or _CUES["at_place_zh"].match(after):
        return True
    return bool(_OTHERS["zh"].search(before))


def _denied_chinese(clause: str, after: str, kind: ActKind) -> bool:
    if kind in _HELP:
        return bool(_NO_NEED["zh"].search(clause))
    for cue in _NEGATION_ZH.finditer(clause):
        if len(clause) - cue.end() <= _REACH_ZH:
            return True
    if kind == "changes_medicine" and _REFUSED_ZH.search(after):
        return True
    return bool(_NEGATED_AFTER_ZH.search(after))
