"""Dates that are more exact than a year, in Chinese and English notations."""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import re

from medloop.privacy.phi.patterns.pattern import by_first_letter, pattern

_MONTH_NAME = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_LONG_MONTH = "(?:January|February|April|June|July|August|September|October|November|December)"
_YEAR, _MONTH, _DAY = r"(?:19|20)\d{2}", r"(?:1[0-2]|0?[1-9])", r"(?:3[01]|[12]\d|0?[1-9])"
_ORDINAL, _CLOCK = r"(?:st|nd|rd|th)?", r"(?:[T ]\d{1,2}:\d{2}(?::\d{2})?)?"
_ZH_MONTH = "(?:十[一二]?|[一二三四五六七八九])月"
_ZH_DAY = "(?:三十一?|[一二]?十[一二三四五六七八九]?|廿[一二三四五六七八九]?|[一二三四五六七八九])[日号]"
_BEFORE_DATE = by_first_letter(
    "on|since|until|till|by|from|dated?|of|seen|admitted|discharged|visit(?:ed)?|scheduled|called|died|through|to|before|after|and|for|around|next|last|this|appointment|due|began|started"
)
# "pain increasing to 10/10" and "pain of 8/10" are scores; "pain since 3/10" and "follow up on 3/10" are dates.
_SCORED_TO = "increasing increased decreasing decreased worsening improved reduced up down pain score scored rated severity level headache".split()
_SCORED_OF = ("pain", "pain level", "pain score", "score", "severity")
_NO_SCORE = (
    rf"(?:(?<=follow up )|(?<=followed up )|{''.join(f'(?<!{word} )' for word in _SCORED_TO)}|(?!to \d{{1,2}}/10(?!\d)))"
    rf"(?:{''.join(f'(?<!{words} )' for words in _SCORED_OF)}|(?!of \d{{1,2}}/10(?!\d)))"
)
_NO_AMOUNT = r"(?![\d.]| ?(?:mg|patients|cases|%|of ))"

# fmt: off
DATES = (
    pattern("year, month and day", "DATE", "于{2017-01-20}入院",
            rf"(?<!\d){_YEAR} ?(?:[-/.]|年) ?{_MONTH} ?(?:[-/.]|月) ?{_DAY}(?!\d)(?: ?(?:日|号))?{_CLOCK}", digits=6),
    pattern("Chinese month and day", "DATE", "{24年3月5日}复诊",
            rf"(?<!\d)(?:\d{{2}} ?年 ?)?{_MONTH} ?月 ?{_DAY} ?(?:日|号)", digits=2, hints=("月",)),
    pattern("eight digits", "DATE", "{20240305}入院",
            rf"(?<![\dA-Za-z\-]){_YEAR}(?:1[0-2]|0[1-9])(?:3[01]|[12]\d|0[1-9])(?![\dA-Za-z\-])", digits=8),
    pattern("short year first", "DATE", "{24/3/5}复诊",
            rf"(?<![\d/.\-])[0-3]\d([/\-]){_MONTH}\1{_DAY}(?![\d/.\-])", digits=4),
    pattern("short year first with points", "DATE", "{24.3.5}入院",
            rf"(?<![\d/.\-A-Za-z])[0-3]\d\.{_MONTH}\.{_DAY}(?=[\u4e00-\u9fff，。；、])(?![项条例])", digits=4, hints=(".",)),
    pattern("month and day of a stay", "DATE", "于{3.15}入院",
            rf"(?<![\d/.])(?P<phi>{_MONTH}[./]{_DAY})(?=日|号?[日晚早上下]?[午]?(?:入院|出院|住院|手术|复查|复诊|就诊|来院|转入|转出|门诊|查房))", digits=2, hints=(".", "/")),
    pattern("lunar calendar", "DATE", "{腊月二十三}开始咳嗽",
            r"(?:[一二]?[〇零○一二三四五六七八九]{2}年)?(?:正|腊|冬|闰?(?:十[一二]?|[一二三四五六七八九]))月(?:初[一二三四五六七八九十]|三十|[一二]?十[一二三四五六七八九]?|廿[一二三四五六七八九]?)(?!个|天|余|多|[几年例一二三四五六七八九十]|分|次)(?:日|号)?", hints=("月",)),
    pattern("month and day behind a preposition", "DATE", "admitted {March 14}",
            rf"\b(?:{_BEFORE_DATE}) (?:the )?(?P<phi>{_MONTH_NAME} {_DAY}{_ORDINAL}){_NO_AMOUNT}", digits=1, flags=re.I, month=True),
    pattern("whole month name and day", "DATE", "Visit: {April 2nd}",
            rf"\b{_LONG_MONTH} {_DAY}{_ORDINAL}{_NO_AMOUNT}", digits=1, month=True),
    pattern("month name and ordinal", "DATE", "again {Jan 4th}",
            rf"\b{_MONTH_NAME} {_DAY}(?:st|nd|rd|th)\b", digits=1, month=True),
    pattern("day before the month name", "DATE", "the {14th of March}",
            rf"(?<![\d.]){_DAY}{_ORDINAL}(?: of)? {_MONTH_NAME}(?:,? {_YEAR})?(?![A-Za-z\d])", digits=1, month=True),
    pattern("day, month name and year in one piece", "DATE", "seen {14-Mar-2023}",
            rf"(?<![\d.\-]){_DAY}([ \-/.]?){_MONTH_NAME}\1(?:19|20)?\d{{2}}(?!\d)", digits=3, flags=re.I, month=True),
    pattern("day, month and year with points", "DATE", "复诊{14.03.2023}",
            rf"(?<![\d.]){_DAY}\.{_MONTH}\.{_YEAR}(?![\d]|\.\d)", digits=6),
    pattern("month/day behind a preposition", "DATE", "seen on {3/14}",
            rf"\b{_NO_SCORE}(?:{_BEFORE_DATE}) (?P<phi>{_MONTH}/{_DAY})(?![\d/]|\.\d| ?(?:mg|tab|of|dose|pain|cup|%))", digits=2, hints=("/",), flags=re.I),
    pattern("Chinese numerals with the year", "DATE", "{二〇二三年三月五日}出生",
            rf"[一二][〇零○OoQ一二三四五六七八九]{{3}}年{_ZH_MONTH}(?:{_ZH_DAY})?", hints=("月",)),
    pattern("Chinese numerals", "DATE", "{三月五日}来诊",
            rf"{_ZH_MONTH}{_ZH_DAY}", hints=("月",)),
    pattern("month and day without 日", "DATE", "{3月5}入院",
            rf"(?<!\d){_MONTH}月{_DAY}(?=[，。,;；、 ]|$|晚|早|上午|下午|凌晨|来|入|出|因|就|住)", digits=2, hints=("月",)),
    pattern("month, day and year", "DATE", "born {04/14/1975}",
            rf"(?<![\d/]){_MONTH}([/\-]){_DAY}\1(?:19|20)?\d{{2}}(?![\d/]){_CLOCK}", digits=4),
    pattern("day, month and year", "DATE", "seen {14/04/1975}",
            rf"(?<![\d/]){_DAY}([/\-]){_MONTH}\1{_YEAR}(?![\d/]){_CLOCK}", digits=6),
    pattern("month name, day and year", "DATE", "on {March 3rd, 2019}",
            rf"\b{_MONTH_NAME} {_DAY}{_ORDINAL}(?:, ?| ){_YEAR}\b", digits=5, flags=re.I, month=True),
    pattern("day, month name and year", "DATE", "on {3rd March 2019}",
            rf"(?<!\d){_DAY}{_ORDINAL} {_MONTH_NAME},? {_YEAR}\b", digits=5, flags=re.I, month=True),
    pattern("Chinese date of birth", "DATE", "出生日期：{1975年4月}",
            r"(?:出生日期|出生于|生日|生于)[ :是为]{0,3}(?P<phi>\d{4}(?:年|[-/.])?\d{0,2}(?:月|[-/.])?\d{0,2}日?)", digits=4),
    pattern("English date of birth", "DATE", "DOB: {4 Apr 75}",
            r"\b(?:DOB(?![a-z])|date of birth|born(?: on)?(?! (?:at|by|via|with|to|premature|preterm|full|after|weighing)\b))[ :]{0,3}(?P<phi>[A-Za-z0-9][A-Za-z0-9,/.\- ]{3,20}\d)", digits=1, hints=("dob", "birth", "born"), flags=re.I),
)
# fmt: on
