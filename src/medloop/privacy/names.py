"""Names that a title or a label gives away, Chinese and English. Bare names are found by tagger.py and hanzi.py."""

from __future__ import annotations

import re
from collections.abc import Iterator

from medloop.privacy import lists

_SINGLE = "".join(name for name in lists.lines("surnames_zh.txt") if len(name) == 1)
_DOUBLE = "|".join(name for name in lists.lines("surnames_zh.txt") if len(name) == 2)
_TITLE = "医生|医师|大夫|主任|护士长|护士|先生|女士|小姐|教授|院长|阿姨|大爷|大妈|老师|药师|同志|奶奶|爷爷|叔叔|师傅"
_OFTEN = "王李张刘陈杨赵黄周吴徐孙胡朱林何郭罗梁宋郑谢韩唐冯董程曹袁邓许"
# "主任医师", "保安老师", "何大夫?" (which doctor): the character before the title is no surname there.
_NOT_BEFORE = "任何责主保安单全方成向时于关管解包卫严常易文干师门代位平水元支"
_ZH = (
    re.compile(rf"(?<![\u4e00-\u9fff])(?P<x>[{_SINGLE}]|{_DOUBLE})(?=(?:{_TITLE})(?!员|证|室|台|节))"),
    re.compile(rf"(?<![谢感多致酬任])(?P<x>[{_OFTEN}]|{_DOUBLE})(?=(?:{_TITLE})(?!员|证|室|台|节))"),
    re.compile(rf"(?<![\u4e00-\u9fff])[老小](?P<x>[{_OFTEN}])(?=[,。;、\s说来去，；]|$)"),
)
_CAP = r"[A-ZÀ-ÖØ-ÞĀ-Ž][a-zß-öø-ÿā-ž'’\-]{1,20}(?:[A-Z][a-zß-öø-ÿā-ž]{1,20})?"
_WHOLE = rf"(?:(?:{_CAP}|[A-Z]\.?|van|von|der|den|de|la|le|di|bin|al)[ \-]){{0,3}}{_CAP}"
_TITLE_EN = "Dr|Mr|Mrs|Ms|Miss|Mx|Prof|Professor|Doctor|Nurse|Sister"
_BEFORE_EN = (
    "[Pp]atient|[Nn]ame|[Aa]ttending|[Pp]hysician|[Pp]rovider|[Ss]urgeon|[Gg]uardian|[Ee]mergency contact|[Ss]igned(?: by)?"
)
_KIN = "wife|husband|son|daughter|mother|father|mom|dad|grandmother|grandfather|brother|sister|child|partner|friend"
# Each pattern with words of which one must be in the text: most texts are spared most patterns by that look.
_EN = tuple(
    (signs, re.compile(pattern))
    for signs, pattern in (
        (tuple(_TITLE_EN.split("|")), rf"\b(?P<x>(?:{_TITLE_EN})\b\.? {_WHOLE})"),
        ((":",), rf"\b(?:{_BEFORE_EN})(?: name| is)?: ?(?P<x>{_CAP}(?: (?:[A-Z]\.|{_CAP})){{1,2}})"),
        (("name", "called"), rf"\b(?:[Mm]y name(?:'s| is)|I am called) (?P<x>{_CAP}(?: (?:[A-Z]\.|{_CAP})){{0,2}})"),
        (("his is ", "I am ", "I'm ", "I’m "), rf"\b(?:[Tt]his is|I am|I['’]m) (?P<x>{_CAP}(?: (?:[A-Z]\.|{_CAP})){{1,2}})"),
        (("my ", "My "), rf"\b[Mm]y (?:{_KIN}),? (?P<x>{_CAP}(?: {_CAP}){{0,2}})"),
        (
            ("MD", "M.D.", "RN", "DO", "PhD", "DVM", "DDS", "NP", "PA-C", "year"),
            rf"(?P<x>{_CAP} (?:[A-Z]\. )?{_CAP})"
            r"(?=,? (?:MD|M\.D\.|RN|DO|PhD|DVM|DDS|NP|PA-C)\b|,? (?:is|was) an? \d{1,3}[- ]year)",
        ),
        (("DOB", "MRN", "SSN"), rf"(?P<x>{_CAP}, {_CAP}(?: [A-Z]\.)?)(?=[,.]? \(?(?:DOB|MRN|SSN)\b)"),
        (
            (":",),
            rf"\b(?:{_BEFORE_EN}|[Rr]eferral|R[Ee]|[Pp]t|[Cc]lient|[Ss]ubject|[Rr]esident|[Mm]ember|[Ii]nsured|[Cc]ontact)"
            r"(?: name)?: ?"
            rf"(?P<x>(?:(?:van|von|der|den|de|het|la|du|di) ){{0,2}}{_CAP}(?:[ \-]{_CAP})?, {_CAP}(?: [A-Z]\.)?)",
        ),
    )
)
_TITLES = re.compile(
    rf"^(?:(?:{_TITLE_EN}|Sir|Madam|Rev|Fr)\b\.?,?\s*)+|,?\s(?:MD|M\.D\.|RN|DO|PhD|DVM|DDS|NP|PA|Jr|Sr)\.?$", re.I
)
_EN_STOP = frozenset(
    """The This That There Then He She It We You They I In On At For And But If Please Patient Doctor Call Take Your My His Her
    No Not Yes Because When Where What Who How Is Are Was Monday Tuesday Wednesday Thursday Friday Saturday Sunday January
    February March April May June July August September October November December Emergency Department Hospital Clinic
    Having Taking Feeling""".split()
)


def find(folded: str) -> Iterator[tuple[int, int, str]]:
    if not folded.isascii():
        for pattern in _ZH:
            for match in pattern.finditer(folded):
                if match["x"] not in _NOT_BEFORE:
                    yield match.start("x"), match.end("x"), "NAME"
    for signs, pattern in _EN:
        for sign in signs:
            if sign in folded:
                break
        else:
            continue
        for match in pattern.finditer(folded):
            words = bare(match["x"]).split()
            if words and words[0] not in _EN_STOP:
                yield match.start("x"), match.end("x"), "NAME"


def bare(name: str) -> str:
    """The name without title and degree."""
    return _TITLES.sub("", _TITLES.sub("", name)).strip()
