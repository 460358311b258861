"""Numbers that decide by themselves how urgent a question is: vital signs, fever by age, blood values, pills taken at once.

    find_numbers("sats 86% on air")      -> (NumberFinding(id="oxygen", level="emergent", start=0, end=8),)

The limits are those of common triage rules (NEWS2, Manchester, paediatric fever guidance), taken on the cautious side: a finding
needs the name of the measure next to the number. They read folded text (`lexicon.scan.fold`), zh and en.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from medloop.lexicon import numbers
from medloop.patterns import lazy_pattern

Level = Literal["emergent", "urgent"]
Judge = Callable[[float, str], Level | None]  # the number and what stands around it

_GAP = r"[^\d.,，。;；\n]{0,14}?"  # between the name of a measure and its number
_NUM = r"(\d{1,4}(?:\.\d{1,2})?)(?![\d岁])"
_DIGIT: Final = lazy_pattern(r"\d")
_CHILD: Final = lazy_pattern(r"baby|infant|newborn|toddler|month[s ]|weeks? old|宝宝|婴|新生儿|个月|月龄|小儿|孩子|小孩")
_WEEKS_UP_TO_12 = r"(?:\d|1[0-2]|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_CHILD_OF = r"(?:baby|infant|newborn|bab[ey] (?:boy|girl)|son|daughter|grandson|granddaughter|little (?:one|boy|girl)|twins?)"
_ZH_CHILD_OF = r"(?:宝宝|婴儿|孩子|小孩|宝贝|娃娃?|儿子|女儿|闺女|孙子|孙女)"
_YOUNG: Final = lazy_pattern(
    rf"newborn|新生儿|[未没刚]满月|\b{_WEEKS_UP_TO_12}[ -]?w(?:ee)?ks?[ -]old|\b\d{{1,2}}[ -]days?[ -]old"
    r"|宝宝(?:才|刚|只有)?\d\d天"
    r"|出生.{0,2}?\d{1,2}天|\d\d天[大的]{0,2}(?:宝宝|婴儿|孩子)"
    # An age that stands beside the child, and no time of the illness: "my son is 8 weeks", "宝宝两个月，39度".
    rf"|\b{_CHILD_OF},?(?: is| was| just turned| turned| aged)?(?: only| just| about| barely| almost| nearly)?"
    rf" (?:{_WEEKS_UP_TO_12} ?w(?:ee)?ks?|(?:1|2|one|two) ?months?)\b"
    r"(?! (?:ago|later|now|post|after|before|past|since|into|of|early|on))"
    rf"|{_ZH_CHILD_OF}(?:现在|今年)?(?:才|刚|只有|刚刚|还?不到|快|大概)?[一二两12]个多?半?月(?:大|零|(?=了?[，,。;； ]|$))"
    r"|(?:(?<!\d)\d|1[0-2]|[一两二三四五六七八九])周(?:大|龄|的?(?:宝宝|婴儿))"
)
_RUNNING: Final = lazy_pattern(r"\brun|exercis|gym|training|workout|treadmill|跑步|运动|锻炼|爬楼")
_UNWELL: Final = lazy_pattern(
    r"headache|vision|blur|chest|breath|confus|numb|weak|dizz|vomit|drows|sleepy|头痛|头疼|头晕|视物|模糊|胸|气|呕|吐|昏|嗜睡|麻|无力"
)
_NO_DEFENCE: Final = lazy_pattern(
    r"chemo|neutropeni|transplant|immunosuppress|no spleen|splenectomy|methotrexate|leuk|化疗|移植|免疫抑制|白血病|脾切除|粒细胞"
)
_PILLS = (
    r"tablets?|pills?|capsules?|tabs?|paracetamol|tylenol|acetaminophen|ibuprofen|advil|aspirin|panadol|sleeping|xanax"
    r"|antidepressants?|amitriptyline|metformin|propranolol"
)
_NOT_PILLS = r"(?! ?(?:mg|mcg|ml|g\b|years?|yrs?|weeks?|days?|minutes?|mins?|hours?|am|pm|%|units?))"
_ZH_MANY = r"\d{2,3}|[二三四五六七八九]?十[几一二三四五六七八九]?|半瓶|一整瓶|一瓶|整瓶"
_AMOUNT_TAKEN: Final = lazy_pattern(
    rf"\b(?:took|taken|swallowed|ate|eaten|downed|ingested|overdos\w*)\b[^.;?!\n]{{0,40}}?\b\d{{2,3}}\b{_NOT_PILLS}"
    rf"[^.;?!\n]{{0,24}}?(?:{_PILLS})"
    rf"|(?:吃|吞|服|喝)(?:下|了|下了|用了)[^。;；\n\d]{{0,10}}?(?:{_ZH_MANY})[多来余]?(?:片|粒|颗|(?<=瓶)(?:药|安眠药|安定|布洛芬|止痛药))"
)


@dataclass(frozen=True, slots=True)
class NumberFinding:
    id: str
    level: Level
    start: int
    end: int


def _oxygen(value: float, around: str) -> Level | None:
    if not 40 <= value <= 100:
        return None
    return "emergent" if value <= 91 else "urgent" if value <= 93 else None


def _celsius(value: float) -> float | None:
    celsius = (value - 32) / 1.8 if 93 <= value <= 110 else value
    return celsius if 30 <= celsius <= 43.5 else None


def _temperature(value: float, around: str) -> Level | None:
    celsius = _celsius(value)
    if celsius is None:
        return None
    if celsius >= 41 or celsius < 34.5 or (celsius >= 38 and (_NO_DEFENCE.search(around) or _is_young_baby(around))):
        return "emergent"
    return "urgent" if celsius >= 40 else None


def _is_young_baby(around: str) -> bool:
    """Younger than three months, by a word or by an age in days, weeks or months."""
    return bool(_YOUNG.search(around)) or any(age.years < 0.25 for age in numbers.find_ages(around))


def _systolic(value: float, around: str) -> Level | None:
    if value <= 30 or value >= 290:
        return None
    if value < 85 or value >= 220 or (value >= 180 and _UNWELL.search(around)):
        return "emergent"
    return "urgent" if value >= 180 or value < 90 else None


def _pulse(value: float, around: str) -> Level | None:
    if not 15 <= value <= 300 or _RUNNING.search(around) or "胎" in around:  # a healthy fetus has 110 to 160
        return None
    fast = 190 if _CHILD.search(around) else 145
    return "emergent" if value >= fast or value < 40 else "urgent" if value >= fast - 20 else None


def _breaths(value: float, around: str) -> Level | None:
    fast = 60 if _CHILD.search(around) else 30
    return "emergent" if fast <= value < 120 or 1 <= value < 8 else None


def _sugar(value: float, around: str) -> Level | None:
    """mmol/L or mg/dL: numbers below 36 are read as mmol/L, and from 20 to 53 both readings are dangerous."""
    if value < 3 or 20 <= value < 54 or 400 < value < 2000:
        return "emergent"
    return "urgent" if value < 3.9 or 16.7 <= value < 20 or 54 <= value < 65 or 300 <= value <= 400 else None


def _below(emergent: float, urgent: float, least: float) -> Judge:
    return lambda value, around: (
        None if value < least else "emergent" if value < emergent else "urgent" if value < urgent else None
    )


def _above(emergent: float, urgent: float, most: float) -> Judge:
    return lambda value, around: (
        None if value > most else "emergent" if value >= emergent else "urgent" if value >= urgent else None
    )


_NOT_A_VALUE = r"(?! ?(?:%|years?|yrs?|months?|weeks?|days?|hours?|hrs?|minutes?|mins?|[天年周日岁次]|小时|个月|分钟))"
_OXYGEN = r"spo2|sp02|o2 ?sats?|\bsats?\b|saturation|oxygen (?:level|sat\w*)|pulse ox\w*|血氧(?:饱和度)?|氧饱和度?"
_FEVER = r"\btemp(?:erature)?\b|\bfever(?:ish)?\b|\bt[ =:]|febrile|thermometer|体温|发烧|发热|高烧|高热|低烧|烧到了?|烧"
_DEGREES = r"°|degrees?|度|℃|(?<=[\d ])c\b|(?<=10\d)f\b|(?<=10\d\.\d)f\b|celsius|fahrenheit|fever\b"
_DEGREES += r"|rectal|axillary|tympanic|armpit|under (?:the|his|her) arm"
_PRESSURE = r"\bbp\b|blood pressure|(?<!高)血压|(?<!血)高压|收缩压"
_PULSE = r"\bhr\b|heart ?rate|\bpulse\b(?! ox)|\bbpm\b|(?<!胎)心率|脉搏|(?<!胎)心跳"
_BREATHS = r"\brr\b|resp(?:iratory)? rate|呼吸频率|呼吸"
_SUGAR = r"blood ?sugars?|\bsugars?\b|glucose|\bbgl?\b|\bbst\b|\bbm\b|\bcbg\b|glucometer|dexcom|libre|血糖"
_MEASURES: Final[tuple[tuple[str, re.Pattern[str], Judge], ...]] = tuple(
    (id, lazy_pattern(pattern), judge)
    for id, pattern, judge in (
        ("oxygen", rf"(?:{_OXYGEN}){_GAP}{_NUM}(?! ?(?:l|litres?|liters?)\b)", _oxygen),
        ("temperature", rf"(?:{_FEVER}){_GAP}{_NUM}{_NOT_A_VALUE}", _temperature),
        ("temperature", rf"(?<![\d.])(3[89](?:\.\d)?|4[0-3](?:\.\d)?|10[0-9](?:\.\d)?) ?(?:{_DEGREES})", _temperature),
        ("blood_pressure", rf"(?:{_PRESSURE})[^\d低舒,，。;；\n]{{0,14}}?(\d{{2,3}})(?![\d岁%])", _systolic),
        ("blood_pressure", r"(?<![\d/])(\d{2,3}) ?/ ?\d{2,3} ?mmhg", _systolic),
        ("pulse", rf"(?:{_PULSE}){_GAP}{_NUM}{_NOT_A_VALUE}", _pulse),
        ("pulse", r"(?<![\d.])(\d{2,3}) ?(?:bpm|beats (?:per|a) min\w*|次/分)", _pulse),
        ("breathing_rate", rf"(?:{_BREATHS})[ :=]{{0,3}}(?:is |of |about |约|达)?(\d{{1,3}})(?![\d.]\d|[岁天年%])", _breaths),
        ("blood_sugar", rf"(?:{_SUGAR}){_GAP}{_NUM}{_NOT_A_VALUE}(?! ?(?:mg\b(?!/)|g\b|grams?))", _sugar),
        ("consciousness", rf"\bgcs\b{_GAP}(\d{{1,2}})", _below(14, 15, 3)),
        ("potassium", r"(?:potassium|\bk\+?|血钾)(?: level)?(?: (?:is|was|of))?[ :=]{0,3}([2-9]\.\d{1,2})", _above(6.5, 6.0, 10)),
        ("haemoglobin", rf"(?:ha?emoglobin|\bhb\b|\bhgb\b){_GAP}(\d{{1,2}}(?:\.\d)?)(?![\d%])", _below(6.5, 8, 2)),
        ("inr", rf"\binr\b{_GAP}(\d{{1,2}}(?:\.\d)?)", _above(8, 5, 30)),
    )
)
# One search instead of thirteen for the many numbers that measure nothing: ages, dates, prices. It may find too much: what stands
# before a name is not looked at, because a search is several times faster where every alternative begins with a character.
_NAMES = (
    rf"{_OXYGEN}|{_FEVER}|{_PRESSURE}|{_PULSE}|{_BREATHS}|{_SUGAR}|mmhg|beats|次/分|gcs|potassium|血钾|moglobin|hb\b|hgb|inr\b"
)
_UNITS = r"°|degree|度|℃|c(?<=[\d ]c)\b|f(?<=\df)\b|celsius|fahrenheit|k(?<!\wk)[+ :=\d]|t(?<!\wt)[ =:]"
_UNITS += r"|rectal|axillary|tympanic|armpit|[res] arm"
_NAMED: Final = lazy_pattern(re.sub(r"\\b(?=[a-z])|\(\?<![^)]*\)|\|\\bt\[ =:\]", "", _NAMES) + "|" + _UNITS)


def find_numbers(folded: str) -> tuple[NumberFinding, ...]:
    """Every number that speaks for urgent or emergency care."""
    if not _DIGIT.search(folded) and "片" not in folded and "药" not in folded:
        return ()
    findings: list[NumberFinding] = []
    read = set()  # places of numbers: a number is read once, whichever way it is named
    for id, pattern, judge in _MEASURES if _NAMED.search(folded) else ():
        for match in pattern.finditer(folded):
            level = judge(float(match[1]), folded[max(0, match.start() - 160) : match.end() + 160])
            if level and match.start(1) not in read:
                read.add(match.start(1))
                findings.append(NumberFinding(id, level, match.start(), match.end()))
    for match in _AMOUNT_TAKEN.finditer(folded):
        findings.append(NumberFinding("overdose", "emergent", match.start(), match.end()))
    return tuple(findings)
