"""English names that a title, a label, a role or their place in the sentence gives away; `tagger.py` finds the others."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Iterator
from functools import lru_cache, partial

from medloop.privacy.phi.english.name_words import (
    SELDOM_NAMES,
    SENTENCE_WORDS,
    is_phrase,
    is_short_form,
    name_end,
    small_name_end,
)
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import NAMES, ORDINARY, UNLISTED, WordList, is_listed, medical_words, tier
from medloop.privacy.phi.rules import Finder, spans_where
from medloop.privacy.phi.spans import Span

_CAP = r"[A-ZÀ-ÖØ-ÞĀ-ŽƏȘȚ][a-zß-öø-ÿ\u0100-\u024fə'’\-]{1,20}(?:[A-Z][a-zß-öø-ÿ\u0100-\u024fə]{1,20})?"
_WHOLE = rf"(?:(?:{_CAP}|[A-Z]\.?|van|von|der|den|de|la|le|di|bin|al)[ \-]){{0,3}}{_CAP}"
_FULL = rf"{_CAP}(?: [A-Z]\.?)?(?: (?:(?:Ó|Ní|Nic|Mac|Ua|ibn|binti|van|von|de|la|del|di|bin|al|da|dos|el) ){{0,2}}{_CAP}){{0,2}}"
_TITLE = "Dr|Mr|Mrs|Ms|Miss|Mx|Prof|Professor|Doctor|Nurse|Sister|Md|Mohd|Smt|Shri|Sheikh|Haji|Señora?|Herr|Frau|Mme|Mlle|Monsieur|Madame|Signora?|Rabbi|Imam|Pastor|Sgt|Cpl|Capt|Officer|Constable|Councillor|Lady|Lord|Auntie|Aunty|Aunt|Uncle|Tita|Tito|Lola|Kuya|Nonna|Nonno|Babushka|Begum|Ustad|Pandit|Swami"
_LABEL = "[Cc]aller|[Ii]nterpreter|[Ii]nformant|[Aa]uthor|[Ww]itness|[Rr]esident|[Nn]urse|[Nn]ext of kin|[Cc]ontact|[Pp]atient|[Nn]ame|[Aa]ttending|[Pp]hysician|[Pp]rovider|[Ss]urgeon|[Gg]uardian|[Ee]mergency contact|[Ss]igned(?: by)?"
_KIN = "wife|husband|son|daughter|mother|father|mom|dad|grandmother|grandfather|brother|sister|child|partner|friend"


def _find_labelled(hints: tuple[str, ...], regex: re.Pattern[str], folded: str) -> Iterator[tuple[int, int]]:
    if hints and not any(hint in folded for hint in hints):
        return
    for match in regex.finditer(folded):
        words = without_title(match["name"]).split()
        if words and words[0].rstrip(",") not in SENTENCE_WORDS and not is_short_form(words[-1]):
            yield match.span("name")


def _labelled(name: str, example: str, hints: tuple[str, ...], regex: str) -> Finder:
    """`hints`: if there are some, one of them is part of every match, and most texts have none."""
    return Finder(name, "NAME", (example,), partial(_find_labelled, hints, lazy_pattern(regex)))


LABELLED = (
    _labelled(
        "title",
        "today {Dr. Maria van der Berg} came",
        (),  # so many that the search itself is sooner
        rf"\b(?P<name>(?:{_TITLE})\b\.? {_WHOLE})",
    ),
    _labelled(
        "label of a form",
        "Emergency contact: {Jane Q. Miller}",
        (":",),
        rf"\b(?:{_LABEL})(?: name| is)?: ?(?P<name>{_CAP}(?: (?:[A-Z]\.|{_CAP})){{1,2}})",
    ),
    _labelled(
        "somebody's own name",
        "My name is {Jane Miller}",
        ("name", "called"),
        rf"\b(?:[Mm]y name(?:'s| is)|I am called) (?P<name>{_CAP}(?: (?:[A-Z]\.|{_CAP})){{0,2}})",
    ),
    _labelled(
        "introduction",
        "Hello, this is {Jane Miller}",
        ("his is ", "I am ", "I'm ", "I’m "),
        rf"\b(?:[Tt]his is|I am|I['’]m) (?P<name>{_CAP}(?: (?:[A-Z]\.|{_CAP})){{1,2}})",
    ),
    _labelled("relative", "my wife, {Monique}", ("my ", "My "), rf"\b[Mm]y (?:{_KIN}),? (?P<name>{_CAP}(?: {_CAP}){{0,2}})"),
    _labelled(
        "degree or age behind the name",
        "{Lena Ott}, MD",
        ("MD", "M.D.", "RN", "DO", "PhD", "DVM", "DDS", "NP", "PA-C", "year"),
        rf"(?P<name>{_CAP} (?:[A-Z]\. )?{_CAP})"
        r"(?=,? (?:MD|M\.D\.|RN|DO|PhD|DVM|DDS|NP|PA-C)\b|,? (?:is|was) an? \d{1,3}[- ]year)",
    ),
    _labelled(
        "surname first, before a number of the person",
        "{Miller, Jane} (DOB unknown)",
        ("DOB", "MRN", "SSN"),
        rf"(?P<name>{_CAP}, {_CAP}(?: [A-Z]\.)?)(?=[,.]? \(?(?:DOB|MRN|SSN)\b)",
    ),
    _labelled(
        "label of a form, surname first",
        "Referral: {van der Veiver, Jerzy}.",
        (":",),
        rf"\b(?:{_LABEL}|[Rr]eferral|R[Ee]|[Pp]t|[Cc]lient|[Ss]ubject|[Rr]esident|[Mm]ember|[Ii]nsured|[Cc]ontact)"
        r"(?: name)?: ?"
        rf"(?P<name>(?:(?:van|von|der|den|de|het|la|du|di) ){{0,2}}{_CAP}(?:[ \-]{_CAP})?, {_CAP}(?: [A-Z]\.)?)",
    ),
)

_ROLES = (
    "wife|husband|son|daughter|mother|father|mom|mum|dad|grandmother|grandfather|grandma|grandpa|granddaughter|grandson|brother|sister|child|partner"
    "|friend|neighbor|neighbour|fiance|fiancee|fiancé|fiancée|aunt|uncle|niece|nephew|cousin|girlfriend|boyfriend|twin|spouse|roommate|coworker|colleague|boss|caregiver|carer"
    "|patient|pt|client|resident|caller|interpreter|aide|nurse|midwife|therapist|technician|tech|pharmacist|receptionist|chaplain"
    "|paramedic|intern|surgeon|physician|doctor|anesthesiologist|phlebotomist|volunteer|witness|guardian|attorney|lawyer|officer"
    "|teacher|manager|supervisor|coordinator|counselor|dietitian|baby|infant|toddler|boy|girl|man|woman|lady|gentleman|named|called|roomie|stepmother|stepfather|stepson|stepdaughter|mother-in-law|son-in-law|daughter-in-law|father-in-law"
)
_VERBS = (
    "call|called|calling|phone|phoned|page|paged|paging|contact|contacted|notify|notified|thanks|dear|hi|hello|hey|attn|cc|regards|sincerely|cheers|signed|per|told"
    "|asked|states|says|remind|tell|ask|texted|emailed|hugged|visited"
)
_BEFORE_NAME = frozenset(f"{_ROLES}|{_VERBS}".split("|"))
_BEFORE_ANYTHING = frozenset("you|worker|from|by|for|with|that|and|to|of|may|can|is|did|does|has".split("|"))
_BEFORE_CAPITAL = lazy_pattern(r"(?<![\w-])([A-Za-z][A-Za-z\-]*)[,:]?\s\(?(?=[A-Z])")
_NAME = lazy_pattern(rf"(?P<name>{_FULL})(?![A-Za-z])")
# "spoke with", "signed by", "thank you": together with such a verb a preposition expects a name.
_PHRASAL_VERB = lazy_pattern(
    r"(?i:spoke|speaks?|talk|talked|met|discussed|reported|called|signed|seen|accepted|received|booked|thank|social|case) $"
)
_DEGREES = ("MD", "M.D.", "RN", "LPN", "DO", "PhD", "NP", "PA", "CNA", "PharmD", "DPT", "LCSW")
_BEFORE_DEGREE = lazy_pattern(rf"(?P<name>{_FULL})(?=,? (?:MD|M\.D\.|RN|LPN|DO|PhD|NP|PA|PA-C|CNA|PharmD|DPT|LCSW)\b)")
_SPEAKS = lazy_pattern(
    r",? (?:reports|denies|states|complains|complained|endorses|says|tolerated|attended|needs|wants)\b|['’]s (?:blood|pressure|sugar|pain|labs?|wife|husband|mother|father)\b"
)
_NICKNAME = lazy_pattern(
    r"(?:known as|goes by|nicknamed|prefers(?: to be called)?|called) [\"“‘'](?P<name>[A-Z][a-z]{1,15})[\"”’']"
)
_CAPITALS_FIRST = lazy_pattern(
    r"(?:^|[.!?:\n] )(?P<name>[A-Z][A-Z'’]{2,20}(?:-[A-Z]{2,20})?(?: [A-Z]\.?)? [A-Z][A-Z'’]{2,20}(?:-[A-Z]{2,20})?)(?= (?:has|had|was|is|reports|denies|came|presents|needs|called)\b)"
)
_CAPITALS_AGED = lazy_pattern(
    r"(?<![\w\-])(?P<name>[A-Z][A-Z'’\-]{1,20}(?: [A-Z]\.?)? [A-Z][A-Z'’\-]{1,20})(?=,? \(?\d{1,3} ?(?:[MF]\b|y/?o\b|yrs?\b|years?\b))"
)
_CAPITALS_OPENING = lazy_pattern(r"(?:^|\n)(?P<name>[A-Z][A-Z'’\-]{1,20}(?: [A-Z]\.?)? [A-Z][A-Z'’\-]{1,20})(?=,? [a-z]{2})")
_SUBJECT = lazy_pattern(
    rf"(?:^|[\n\"“] ?|[.!?] )(?P<name>{_FULL})(?=['’]s [a-z]|,? (?:tolerated|attended|complains|complained|endorses|is|was|has|had|called|calls|came|says|said|states|reports|denies|needs|wants|lives|please)\b)"
)
_TWO_CAPITALIZED = lazy_pattern(rf"\b(?P<name>{_CAP} (?:[A-Z]\.? )?{_CAP})(?![A-Za-z\-])")
_IN_CAPITALS = lazy_pattern(r"(?<![A-Z,] )\b(?P<name>[A-Z][A-Z'’\-]{2,20}, [A-Z][A-Z'’\-]{2,20}(?: [A-Z]\b\.?)?)(?!,? [A-Z]{2})")
_LABEL_BEFORE = lazy_pattern(
    r"(?:label+ed|label|named?|patient|pt|re|for|chart|band|tube|specimen|of|bed \d{1,3})[:,]? $|(?:^|\n)$", re.I
)
_FIRST_NAME, _SURNAME = frozenset({WordList.FIRST_NAME}), frozenset({WordList.SURNAME})
_TERMS = frozenset({WordList.MEDICAL_NAME, WordList.DISEASE_WORD, WordList.NATION, WordList.COUNTRY, WordList.STATE})
_TERMS_AND_MONTHS = _TERMS | {WordList.MONTH_OR_DAY}
_SYLLABLES = frozenset(
    (
        "soo|su|min|ji|hye|hyun|sung|seung|young|yong|jae|jin|joon|jun|kyung|eun|mi|sang|dong|tae|woo|yoo|yu|in|hee|ha|da|bo|chan|byung|ki|kyu|myung|won|yeon|na"
        "|so|seo|ye|do|si|gi|geun|chul|hwa|jung|jeong|jong|joo|ju|kwang|moon|nam|sun|sook|suk|soon|wook|yun|ho|hoon|ah|rae|ri|wan|shik|sik|ok|mei|ling|wei|xiao|li|hui|fang|yan|hong|ming"
    ).split("|")
)
_HYPHENATED = lazy_pattern(rf"(?<![\w-])(?P<name>([A-Z][a-z]{{1,5}})-([a-z]{{1,5}}))(?![\w-])(?: (?:[A-Z]\. )?{_CAP})?")
_SMALL_NAME = lazy_pattern(
    r"\b(?=[dDiImMnNtT])(?i:(?P<lead>this is|my name is|my name['’]s|name is|i am|i['’]m|it['’]s|dr\.?|mrs?\.?|ms\.?|nurse|doctor|my (?:wife|husband|son|daughter|mom|mother|dad|father|sister|brother|friend)))"
    r",? (?P<name>[a-zß-öø-ÿ\u0100-\u024fə][a-zß-öø-ÿ\u0100-\u024fə'’\-]{2,20}(?: (?!and\b|at\b|for\b|from\b|the\b|my\b|is\b|was\b|has\b|had\b|said\b|to\b)[a-zß-öø-ÿ\u0100-\u024fə][a-zß-öø-ÿ\u0100-\u024fə'’\-]{2,20})?)"
)
_SMALL_TITLES = frozenset(("dr", "mr", "mrs", "ms", "nurse", "doctor"))
# What makes the words before it a disease, a scale, an institute.
_TERM_BEHIND = lazy_pattern(
    r"(?:['’]s?)?[ -](?:[a-z]{1,15} |[A-Z][a-z]{1,15}(?:['’]s)? ){0,2}(?:disease|syndrome|sign|test|scale|score|criteria|lymphoma|virus|disorder|procedure|maneuver|operation|method|trial|study|palsy|ataxia"
    r"|dystrophy|institute|foundation|hospital|university|clinic|classification|staging|reaction|stain|phenomenon|plot|curve)",
    re.I,
)


def _name_in(text: str, match: re.Match[str], expected: bool) -> Iterator[tuple[int, int]]:
    """The words of the match that can be a name; `expected`: only a name can stand here, so less is asked of them."""
    start, end = match.span("name")
    end = name_end(text, start, end, expected)
    if end and not _TERM_BEHIND.match(text, end):
        yield start, end


_REPLIES = frozenset(
    "Sounds Anything Nice Good Great Perfect Fine Right Correct Exactly Nothing Everything Something Maybe Sorry".split()
)


def _find_behind_word(text: str) -> Iterator[tuple[int, int]]:
    for lead in _BEFORE_CAPITAL.finditer(text):
        word = lead[1].lower().removeprefix("ex-")
        expected = word in _BEFORE_NAME
        if not expected and word not in _BEFORE_ANYTHING:
            continue
        if not expected:
            expected = _PHRASAL_VERB.search(text, max(0, lead.start() - 12), lead.start()) is not None
        if match := _NAME.match(text, lead.end()):
            if ":" in lead[0] and (match["name"].lower() in SELDOM_NAMES or match["name"].split()[0] in _REPLIES):
                continue  # somebody speaks: "Doctor: Nice.", "Patient: Sounds good"
            yield from _name_in(text, match, expected)


def _find_before_degree(text: str) -> Iterator[tuple[int, int]]:
    if any(degree in text for degree in _DEGREES):
        for match in _BEFORE_DEGREE.finditer(text):
            yield from _name_in(text, match, expected=True)


def _find_subjects(text: str) -> Iterator[tuple[int, int]]:
    for match in _SUBJECT.finditer(text):
        yield from _name_in(text, match, expected=_SPEAKS.match(text, match.end("name")) is not None)


def _find_nicknames(text: str) -> Iterator[tuple[int, int]]:
    if '"' in text or "“" in text or "'" in text or "‘" in text:
        yield from (match.span("name") for match in _NICKNAME.finditer(text))


def _find_capitals_first(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        words = [word.lower() for word in re.findall(r"[A-Z'’]{3,}", text[start:end])]
        return not all(tier(word) in ORDINARY or word in medical_words() or is_listed(word, _TERMS_AND_MONTHS) for word in words)

    yield from spans_where(_CAPITALS_FIRST, text, is_name)

    def is_aged(start: int, end: int) -> bool:
        first, *_, last = text[start:end].lower().split()
        is_known = is_listed(first, _FIRST_NAME) and (is_listed(last, _SURNAME) or tier(last) == UNLISTED)
        is_known = is_known or (is_listed(last, _SURNAME) and tier(first) == UNLISTED and first not in medical_words())
        return is_known and not is_phrase(first, last) and last not in medical_words() and not is_listed(last, _TERMS)

    yield from spans_where(_CAPITALS_AGED, text, is_aged)
    yield from spans_where(_CAPITALS_OPENING, text, is_aged)


def _find_listed(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        words = text[start:end].split()
        first, last = words[0].lower(), words[-1].lower()
        are_listed = is_listed(first, _FIRST_NAME) and is_listed(last, _SURNAME)
        return are_listed and not is_phrase(first, last) and not _TERM_BEHIND.match(text, end)

    yield from spans_where(_TWO_CAPITALIZED, text, is_name)


def _find_in_capitals(text: str) -> Iterator[tuple[int, int]]:
    if text.isupper():
        return
    for match in _IN_CAPITALS.finditer(text):
        words = [word.lower() for word in re.findall(r"[A-Z'’\-]{3,}", match["name"])]
        labelled = _LABEL_BEFORE.search(text, max(0, match.start() - 16), match.start()) is not None
        labelled = labelled and min(map(len, words)) > 3
        terms = _TERMS if labelled else _TERMS_AND_MONTHS
        is_name = labelled or any(is_listed(word, NAMES) for word in words)
        if is_name and not any(is_listed(word, terms) for word in words):
            yield match.span("name")


def _find_hyphenated(text: str) -> Iterator[tuple[int, int]]:
    for match in _HYPHENATED.finditer(text) if "-" in text else ():
        if match[2].lower() in _SYLLABLES and match[3] in _SYLLABLES:
            yield match.span()


def _find_small(text: str) -> Iterator[tuple[int, int]]:
    for match in _SMALL_NAME.finditer(text):
        start, end = match.span("name")
        if end := small_name_end(text, start, end, match["lead"].lower().rstrip(".") in _SMALL_TITLES):
            yield start, end


IN_SMALL_LETTERS = (
    Finder(
        "small letters behind a title or an introduction",
        "NAME",
        ("I saw dr. {nakamura} last week", "hello this is {kwame boateng} calling"),
        _find_small,
    ),
)
WITH_CAPITALS = (
    Finder(
        "behind a role, a verb or a preposition",
        "NAME",
        ("my ex-wife {Monique} called", "Please page {Violet Stone} when ready", "we spoke with {Obinna}"),
        _find_behind_word,
    ),
    Finder("before a degree", "NAME", ("Report called to {Summer}, RN",), _find_before_degree),
    Finder("first name at the beginning of a sentence", "NAME", ("Fine. {Cornelia} called twice",), _find_subjects),
    Finder("first name and surname from the lists", "NAME", ("near {Olivia Guthrie} there",), _find_listed),
    Finder("nickname between quotes", "NAME", ('she goes by "{Teddy}" here',), _find_nicknames),
    Finder(
        "in capitals before a verb or an age",
        "NAME",
        ("{WILHELMINA ASHGROVE-TULL} has a cough", "{KAREN MILLER} 45F chest pain", "{JOHN SMITH} chest pain 45M"),
        _find_capitals_first,
    ),
    Finder("surname first, in capitals", "NAME", ("Specimen labeled {OYELARAN, FEMI} was clotted",), _find_in_capitals),
    Finder("hyphenated syllables", "NAME", ("Interpreter {Min-ji} present",), _find_hyphenated),
    *IN_SMALL_LETTERS,
)
_SOME_WORDS = lazy_pattern(r"[A-Za-z]{3} [A-Za-z(]|[A-Za-z], [A-Z]")


def find(folded: str) -> Iterator[Span]:
    for finder in LABELLED:
        for start, end in finder.find(folded):
            yield start, end, finder.kind
    if _SOME_WORDS.search(folded):
        text = folded.title() if folded.isupper() else folded
        for finder in IN_SMALL_LETTERS if text.islower() else WITH_CAPITALS:
            for start, end in finder.find(text):
                yield start, end, finder.kind


_TITLES = lazy_pattern(
    rf"^(?:(?:{_TITLE}|Sir|Madam|Rev|Fr)\b\.?,?\s*)+|,?\s(?:MD|M\.D\.|RN|DO|PhD|DVM|DDS|NP|PA|Jr|Sr)\.?$", re.I
)


@lru_cache(maxsize=16_384)
def without_title(name: str) -> str:
    """The name without title and degree."""
    bare = _TITLES.sub("", name)
    return (bare if bare == name else _TITLES.sub("", bare)).strip()
