"""English hospitals and towns, by the words before and behind them; `tagger.py` finds the others."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Iterable, Iterator
from functools import partial

from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import WordList, is_listed
from medloop.privacy.phi.rules import Finder
from medloop.privacy.phi.spans import Span

_WORD = r"(?:[A-Z][a-z]{1,15}(?:['’]s)?|[A-Z][a-z]{1,3}[A-Z][a-z]{2,12})"
_HOUSE = (
    "Hospitals?|Medical Cent(?:er|re)|Med(?:ical)? Ctr|Clinics?|Health Cent(?:er|re)|Health System|Healthcare|Urgent Care|Infirmary|Hospice|Nursing Home|Surgery Center"
    "|Surgical Center|Cancer Center|Care Center|Family Practice|Family Medicine|Medical Group|Rehab(?:ilitation)?(?: Center| Hospital)?|Imaging|Dialysis|Pediatrics|Dental"
    "|Senior Living|Assisted Living|Birth Center|Walk-In|Orthopedics|Cardiology Associates|Associates|Pharmacy|Wellness Center|Manor"
)
_SORT = (
    "Family|Community|General|Regional|Memorial|Children['’]?s|Women['’]?s|University|County|City|Veterans|VA|Medical|Health|Surgical|Dental|Eye|Heart|Cancer|Pain|Sleep|Kidney"
    "|Specialty|District|National|Methodist|Baptist|Lutheran|Presbyterian|Catholic|Jewish|Adventist|Internal Medicine|Primary Care|Pediatric|Physical Therapy"
)
# The proper name, perhaps what sort of house it is, and the word for the house.
_HOSPITAL = lazy_pattern(
    rf"(?P<place>(?:(?:St\.?|Saint|Mount|Mt\.?|San|Santa|Our Lady of|Holy|Good) )?(?P<proper>{_WORD}(?:(?: |-)(?!(?:{_HOUSE})\b){_WORD}){{0,3}}) (?:(?:{_SORT}) ){{0,2}}(?:{_HOUSE}))(?![A-Za-z])"
)
_SHORT_HOSPITAL = lazy_pattern(
    rf"(?:\b(?:at|to|from|of|in|by|near|via|left|leaving|visited)(?: the)? |(?:MD|RN|DO|NP|PA), |(?:^|\n))"
    rf"(?P<place>(?:(?:St\.?|Saint|Mount|Mt\.?) )?(?P<proper>{_WORD}(?: {_WORD})?) (?:General|Regional|Memorial|Children['’]s|Methodist|Baptist|Presbyterian|Mercy))(?=[.,;:!?)\n]|$| (?:and|for|with|on|after|in|where|who|last|this|ER|ED|ICU|by|to)\b)"
)
_SAINT = lazy_pattern(
    r"\b(?P<possessive>(?:St\.?|Saint|Mount|Mt\.?) [A-Z][a-z]{2,14}['’]s(?: (?:Hospital|General|Regional))?)(?! [Ww]ort)|\b(?:at|to|from|of|in) (?P<led>(?:Mount|Mt\.?|Saint|St\.) [A-Z][a-z]{2,14}(?:['’]s)?)(?! (?:[Ww]ort|[a-z]{4,12}itis|virus))"
)
_TOWN = lazy_pattern(
    r"\b(?:[Mm]an|[Ww]oman|[Mm]ale|[Ff]emale|[Ll]ady|[Gg]entleman|[Bb]oy|[Gg]irl|[Rr]esident|[Nn]ative|[Vv]eteran|[Ff]armer|[Tt]eacher|[Ss]tudent|[Vv]isitor|[Rr]etiree|[Vv]isiting|[Tt]ransferred|[Hh]ails) (?:from|of) (?P<origin>[A-Z][a-z]{2,14}(?: [A-Z][a-z]{2,14})?)"
    r"|\b(?:him|her|them|me|us|lives?|living|lived|moved|moving|born|raised|grew up|stayed|staying|relatives|family|sister|brother|son|daughter|mother|father|parents|home|house|apartment|office|vacation|trip|flight|flew|drove|driving|drive|travel(?:ed|ing)?|returned|works?|working|worked|job) (?:back )?(?:in|to|from|near|outside) (?P<stay>[A-Z][a-z]{2,14}(?: [A-Z][a-z]{2,14})?)"
)
_NOT_TOWNS = frozenset(
    "January February March April May June July August September October November December Monday Tuesday Wednesday Thursday Friday Saturday Sunday Christmas Easter Thanksgiving English Spanish French German Chinese Room Bed Unit Ward Building Suite The This That Hospice Hospital Emergency Clinic Rehab Radiology Cardiology Oncology Triage Surgery Recovery Medicaid Medicare Part".split()
)
_NOT_TOWN_LISTS = frozenset({WordList.COUNTRY, WordList.NATION, WordList.DISEASE_WORD, WordList.MEDICAL_NAME})
_GENERAL = frozenset(
    "The A An This That Our Your My His Her Their Local Nearest New Same Other Another Every Any Each Emergency Outpatient Inpatient Teaching Private Public Rural Urban Academic Tertiary Acute Mental Behavioral Home Hospital Clinic In At To From For And Or If When After Before Please Call Visit Go Children Pain Memory Anticoagulation Sleep Travel Flu Fertility Wound Diabetes Heart Stroke Cancer Eye Dental Women Men Family Community General Regional Memorial University County City Medical Health Primary Secondary Special Specialty Physical Occupational Speech Cardiac Pulmonary Renal National International State Federal World Global Infusion Coumadin Warfarin Walk Urgent Day Night Free Mobile Virtual Online Ask Manager Internal Medicine Student Department Services Pediatric Adult Senior Military Patient Care Multidisciplinary Methadone".split()
)
_SORT_ENDING = lazy_pattern(
    "(?:ology|ologic|iatric|iatrics|ics|ical|tion|ment|ing|gery|ancy|ity|emia|osis|itis|therapy|al|ic|ive)$"
)
_HOUSE_WORDS = frozenset(re.findall("[A-Z][a-z]+", f"{_HOUSE} {_SORT}")) | {
    "Department", "Services", "Center", "Unit", "Office", "Room", "Desk",
}  # fmt: skip


def _find_hospitals(regex: re.Pattern[str], folded: str) -> Iterator[tuple[int, int]]:
    for match in regex.finditer(folded):
        start = match.start("place")
        words = match["proper"].split()
        while words and words[0] in _GENERAL:  # "Please call Willow Creek Urgent Care"
            start += len(words.pop(0)) + 1
        if words and not all(_says_what_sort(word) for word in words):
            yield start, match.end("place")


def _find_saints(folded: str) -> Iterator[tuple[int, int]]:
    for match in _SAINT.finditer(folded):
        yield match.span("possessive" if match["possessive"] else "led")


def _find_towns(folded: str) -> Iterator[tuple[int, int]]:
    for match in _TOWN.finditer(folded):
        group = "origin" if match["origin"] else "stay"
        first = match[group].split()[0]
        if first not in _NOT_TOWNS and not is_listed(first.lower(), _NOT_TOWN_LISTS):
            yield match.span(group)


FINDERS = (
    Finder("hospital", "ORG", ("Please call {Willow Creek Urgent Care} now",), partial(_find_hospitals, _HOSPITAL)),
    Finder(
        "hospital without the word", "ORG", ("discharged from {Riverbend General}.",), partial(_find_hospitals, _SHORT_HOSPITAL)
    ),
    Finder("hospital named after a saint", "ORG", ("I left {St. Brigid's} at noon", "a bed at {Mount Hebron} now"), _find_saints),
    Finder("town of origin or stay", "PLACE", ("a man from {Spokane} fell", "she moved to {Eau Claire} then"), _find_towns),
)
_MIXED_CASE = lazy_pattern(r"[a-z] [A-Z]|[a-z]{2}, [A-Z]|\n[A-Z]")


def find(folded: str) -> Iterator[Span]:
    if _MIXED_CASE.search(folded):
        for finder in FINDERS:
            for start, end in finder.find(folded):
                yield start, end, finder.kind


def is_department(words: Iterable[str]) -> bool:
    """Whether these words name a department or a sort of clinic and no house: "Internal Medicine Clinic"."""
    return all(word in _HOUSE_WORDS or not word[0].isupper() or _says_what_sort(word) for word in words)


def _says_what_sort(word: str) -> bool:
    """A word that says what sort of clinic it is: a department, an illness."""
    return word in _GENERAL or bool(_SORT_ENDING.search(word))
