"""Numbers in medical text: doses ("400 mg", "每次0.5克"), frequencies ("twice a day") and ages ("3-year-old", "两岁半")."""

import re
from dataclasses import dataclass

from medloop.patterns import lazy_pattern

_WORDS = {"half": 0.5, "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
          "eight": 8, "nine": 9, "ten": 10, "twelve": 12}  # fmt: skip
_WORDS |= {"半": 0.5, "一": 1, "两": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9, "十": 10}
_SPELT = r"(?:half|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve)(?=\s)"
_SPELT_YEARS = r"(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve)(?=[\s-])"
_NUMBER = rf"(?:\d+(?:,\d{{3}})*(?:\.\d+)?|{_SPELT}|[半一两二三四五六七八九十]+)"
_MG = {"mg": 1.0, "milligram": 1.0, "milligrams": 1.0, "毫克": 1.0, "g": 1000.0, "gram": 1000.0, "grams": 1000.0, "克": 1000.0,
       "mcg": 0.001, "ug": 0.001, "μg": 0.001, "µg": 0.001, "microgram": 0.001, "micrograms": 0.001, "微克": 0.001}  # fmt: skip
_COUNTED = ("tablets", "tablet", "pills", "pill", "capsules", "capsule", "puffs", "puff", "drops", "sachets", "sachet",
            "ml", "millilitres", "milliliters", "毫升", "片", "粒", "颗", "袋", "支", "units", "iu", "单位", "喷")  # fmt: skip
_UNIT = "|".join(sorted((*_MG, *_COUNTED), key=len, reverse=True))
_DOSE = lazy_pattern(rf"(?<![a-z0-9.])({_NUMBER})(?:\s*(?:-|~|to|至|到)\s*({_NUMBER}))?\s*-?({_UNIT})(?![a-z])")
_MEASURE = lazy_pattern(rf"[\d\s半一两二三四五六七八九十-](?:{_UNIT})(?![a-z])")  # part of every dose, and fast to search
_PER_WEIGHT = lazy_pattern(r"\s*(?:/|per\s|每)\s*(?:kg|kilo|公斤|千克)")  # after a dose
_BEFORE_WEIGHT = lazy_pattern(r"每(?:公斤|千克)(?:体重)?$")
_DAILY_AFTER = lazy_pattern(r"\s*(?:/\s*(?:d\b|day|日|天)|(?:a|per|each|every)\s+day|daily|in 24 hours|每[天日](?!.{0,3}次))")
_DAILY_BEFORE = lazy_pattern(r"(?:每天|每日|一天|一日|24小时|daily (?:maximum|limit|dose) (?:is|of))[^次\d,。.]{0,12}$")
_FREQUENCY = lazy_pattern(
    rf"(once|twice|({_NUMBER})\s*(?:times|doses|x))\s*(?:a|per|each|every)?\s*(?:day|daily)"
    rf"|every\s+({_NUMBER})(?:\s*(?:-|to)\s*{_NUMBER})?\s*hours?|(every hour|hourly)"
    rf"|(?:每[天日]|[一1][天日]|日)\D{{0,5}}?({_NUMBER})\s*次"
    rf"|每隔?({_NUMBER})(?:\s*[-~至到]\s*{_NUMBER})?\s*个?小时"
)
_YEARS = lazy_pattern(
    rf"(?<![0-9.])(\d{{1,3}}|[一两二三四五六七八九十]{{1,3}}|\b{_SPELT_YEARS})\s*(?:周?岁|(?:years?|yrs?)[ -]old"
    rf"|[- ]year[- ]old|yo\b|y/o)"
)
_AGED = lazy_pattern(r"\b(?:aged?|age of|turned)\s+(\d{1,3})\b(?!\s*(?:months?|weeks?|days?))")
_MONTHS = lazy_pattern(
    r"(\d{1,2}|[一两二三四五六七八九十]{1,3})\s*(?:个半?月(?:大|(?:的|了)?(?:宝宝|婴儿|孩子|小孩|宝贝))|[- ]months?[- ]old)"
)
_FREQUENCY_WORDS = ("day", "daily", "hour", "次", "小时")  # one of them is part of every frequency
_WEEKS = lazy_pattern(r"(\d{1,2})[- ]weeks?[- ]old")
# Patterns of ages, how many units make a year, and words of which one is part of every match: most texts name no age, and the
# patterns are slow.
_AGES = (
    (_YEARS, 1, ("岁", "old", "yo", "y/o")),
    (_AGED, 1, ("age", "turned")),
    (_MONTHS, 12, ("月", "month")),
    (_WEEKS, 52, ("week",)),
)

_OFTEN = {"once": 1, "twice": 2}
LONGEST = 40  # characters of a dose or a frequency


@dataclass(frozen=True, slots=True)
class Dose:
    """Of a range the larger end. `mg` is None for counted units such as tablets; `daily`: this is the amount of a whole day."""

    start: int
    end: int
    amount: float
    unit: str
    mg: float | None
    daily: bool = False


@dataclass(frozen=True, slots=True)
class Frequency:
    start: int
    end: int
    per_day: float


@dataclass(frozen=True, slots=True)
class Age:
    start: int
    end: int
    years: float


def find_doses(folded: str, start: int = 0, end: int | None = None) -> tuple[Dose, ...]:
    """Doses that begin between two offsets, without amounts per kilogram: those mean nothing without a weight."""
    if not _MEASURE.search(folded, start, len(folded) if end is None else end + LONGEST):
        return ()
    doses = []
    for match in _within(_DOSE, folded, start, end):
        before = folded[max(0, match.start() - 20) : match.start()]
        if _PER_WEIGHT.match(folded, match.end()) or _BEFORE_WEIGHT.search(before):
            continue
        amount, unit = number(match[2] or match[1]), match[3]
        daily = bool(_DAILY_AFTER.match(folded, match.end()) or _DAILY_BEFORE.search(before))
        doses.append(Dose(match.start(), match.end(), amount, unit, milligrams(amount, unit), daily))
    return tuple(doses)


def milligrams(amount: float, unit: str) -> float | None:
    """An amount in mg; None for counted units such as tablets."""
    return amount * _MG[unit] if unit in _MG else None


def find_frequencies(folded: str, start: int = 0, end: int | None = None) -> tuple[Frequency, ...]:
    stop = len(folded) if end is None else end + LONGEST
    for word in _FREQUENCY_WORDS:
        if folded.find(word, start, stop) >= 0:
            break
    else:
        return ()
    frequencies = []
    for match in _within(_FREQUENCY, folded, start, end):
        groups: tuple[str | None, ...] = match.groups()
        often, times, hours, hourly, zh_times, zh_hours = groups
        gap = hours or zh_hours or (hourly and "1")
        per_day = 24 / max(number(gap), 1) if gap else _OFTEN.get(often or "") or number(times or zh_times or "")
        frequencies.append(Frequency(match.start(), match.end(), per_day))
    return tuple(frequencies)


def _within(pattern: re.Pattern[str], folded: str, start: int, end: int | None) -> list[re.Match[str]]:
    """Matches that begin between two offsets; they may end a little later."""
    stop = len(folded) if end is None else end
    return [match for match in pattern.finditer(folded, start, stop + LONGEST) if match.start() < stop]


def _contains_any(folded: str, words: tuple[str, ...]) -> bool:
    for word in words:
        if word in folded:
            return True
    return False


def find_ages(folded: str) -> tuple[Age, ...]:
    ages = [
        Age(match.start(), match.end(), number(match[1]) / units_per_year)
        for pattern, units_per_year, words in _AGES
        if _contains_any(folded, words)
        for match in pattern.finditer(folded)
    ]
    return tuple(sorted(ages, key=lambda age: age.start))


def number(text: str) -> float:
    """A written number: digits, an English word, or Chinese numerals below one hundred."""
    if text[0].isdigit():
        return float(text.replace(",", ""))
    if text in _WORDS:
        return _WORDS[text]
    tens, ten, ones = text.partition("十")
    return (_WORDS.get(tens, 1) * 10 if ten else _WORDS.get(tens, 0)) + _WORDS.get(ones, 0)
