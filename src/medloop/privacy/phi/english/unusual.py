"""English names that are ordinary words, or that stand where a note names its patient: at its beginning, behind "Granny", before a verb."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Iterator

from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.english.name_words import SENTENCE_WORDS, WORD_NAMES, is_short_form
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import FREQUENT, NAMES, ORDINARY, UNLISTED, WordList, eponyms, is_listed, medical_words, tier
from medloop.privacy.phi.rules import Finder, spans_where
from medloop.privacy.phi.spans import Span

_CAP = r"[A-ZÀ-ÖØ-ÞĀ-Ž][a-zß-öø-ÿ\u0100-\u024f'’]{1,20}"
_FIRST, _SURNAME = frozenset({WordList.FIRST_NAME}), frozenset({WordList.SURNAME})
_SEASONS = frozenset(
    "summer spring autumn winter hope faith grace joy love art gene rain day heaven long short sharp good best nice happy true may so do an".split()
)
_VERB = (
    "needs|wants|gets|takes|feels|does|carries|says|said|wakes|woke|reacts|refused|refuses|took|came|called|calls|started|stopped|lives|asks|asked|denies|reports|complains|declined|declines|attends|attended|missed|got|drinks|smokes|sleeps"
    "|slept|eats|walks|walked|fell|vomited|presented|presents|went|cannot|can't|doesn't|hasn't|won't|isn't|wasn't|tolerated|tested|received|underwent|developed|broke|lost|gained|weighs|knows|thinks|hates|loves|likes|keeps|forgot|remembers|prefers|works|stays"
    "|speaks|understands|sees|saw|wakes|cried|cries|snores|coughs|bleeds|faints|fainted|stepped|ate|drank|quit|ran|told|told|gave|swallowed|slipped|tripped|hurt|injured|brought|seen|reviewed|admitted|booked|listed|referred|examined|describes|endorses|admits|seems|appears|looks|sounds|sat|stood"
)
_STATE = r"(?:is|was) (?:the patient|an? \d|\d|here|back|in (?:bed|room|bay|clinic)|on \w+|having|feeling|taking|having|still|now|not|\w+ing\b|\w+ed\b|anxious|worried|pregnant|confused|well|better|sick|afebrile|stable)|(?:has|had) (?:a|an|been|no|not|had|his|her|some|two|three|\w+ (?:pain|fever|hematuria|cough))|will (?:need|be|have|come|call|see|take|go)|may (?:need|have|go)"
_SUBJECT = lazy_pattern(
    rf"(?:^|(?<=[.!?;\n] )|(?<=[\n(])|(?<=- ))(?P<name>{_CAP}(?: [A-Z]\.)?)(?= (?:(?:{_VERB}|no longer|[a-z]{{3,10}}(?:s|ed))\b|{_STATE}|c/o\b))"
)
_INSIDE = lazy_pattern(r"(?<=[a-z] )(?P<name>[A-Z][a-z]{1,12})(?=[,.;:?!]| [a-z])")
_DOUBTFUL_OPENING = lazy_pattern(
    r"(?:^|\n)(?P<name>[A-Z][a-z]{1,12})(?:['’]s| (?:on|to|in|is|and|at|with|for|from|was|has|had|-)) ?[a-zA-Z]"
)
_OWNER = lazy_pattern(
    rf"(?:^|(?<=[.!?;\n] ))(?P<name>{_CAP})(?=['’]s (?:EEG|ECG|EKG|MRI|CT|labs?|bloods?|cultures?|results?|biopsy|scan|x-ray|INR|BP|sugars?|glucose|rash|cough|wound|pain|mother|father|wife|husband|mum|mom|dad|son|daughter|family|drain|stitches|chest|cast|bed|meds?|medication|dose|temp|fever|urine|stool|potassium|sodium|creatinine|platelets)\b)"
)
_LEAD = lazy_pattern(
    rf"\b(?i:granny|grandma|nana|gran|grandpa|gramps|abuela|abuelo|auntie|aunty|aunt|uncle|baby|twin|foster (?:mum|mom|dad|mother|father)|nok|lil|little|old|big|patient|pt|nurse|midwife|carer|interpreter|index case|legal name|maiden name|surname|aka|seen w/|spoke w/|d/w|w/|please see|pls see|see|cc|re|labelled|labeled|belongs to|next bed|roommate|cousin|twin)[:,]? (?P<name>{_CAP}(?:[ \-]{_CAP}){{0,2}})(?![A-Za-z])"
)
_LAST_FIRST = lazy_pattern(
    r"(?:^|\n|(?<=[|:] ))(?P<name>(?:(?:DE|DA|VAN|VON|EL|AL|LE|LA|MC|O) )?[A-Z][A-Za-z'’\-]{2,20}, ?[A-Z][A-Za-z'’\-]{2,20}(?: [A-Z][A-Z'’\-]{2,20}\b| [A-Z]\b\.?)?)(?= ?[:|(–—-]| \d|,? (?:DOB|MRN|[MF]\b))"
)
_OPENING = lazy_pattern(
    rf"(?:^|(?<=\n))(?P<name>{_CAP}(?:[ \-]{_CAP}){{0,2}})(?= ?[-–—:(] ?|, (?:\d|[MF]\b)| (?:[A-Z]{{2,6}}\b|\d))"
)
_SMALL = lazy_pattern(
    rf"\b(?P<lead>pt|patient|baby|nurse|dr|called|named|mr|mrs|ms) (?P<name>[a-z]{{2,15}})(?= (?:(?:{_VERB}|has|had|is|was|will|says?|now|still|due|back)\b|c/o|s/p|w/|\d))"
)
_DESCRIBED = lazy_pattern(
    rf"(?:^|(?<=[.!?;\n] ))(?P<name>{_CAP}(?:[ \-]{_CAP}){{0,2}}) (?:is|was) an? (?:[a-z\d\-]+ ){{0,4}}(?:lady|man|woman|boy|girl|gentleman|male|female|smoker|child|infant|teenager|mother|nurse|teacher|farmer|student|widow|widower|veteran|\d{{1,3}}[- ]?(?:yo?|year))\b"
)
_SIGNED = lazy_pattern(
    rf"(?:^|\n|[.!?,] )(?i:thx|thanks|thank you|ta|cheers|best|best wishes|regards|rgds|kind regards|BW|yours|yours sincerely|yours truly|love|sincerely|respectfully)[,.!\-]?\s{{1,2}}(?P<name>{_CAP}(?: {_CAP}){{0,2}})(?:,? (?:RN|MD|FY\d|SHO|NP|PA))?\s*$"
)
# A name that is a disease or a sign, too, where a patient is named: "Patient Bell has palsy".
_PATIENT_EPONYM = lazy_pattern(
    rf"\b(?:[Pp]atient|[Pp]t|Client|Resident)[:,]? (?P<name>[A-Z][a-z]{{2,20}})(?= (?:is|was|has|had|will|says|{_VERB})\b)"
)
# A surname in small letters behind a title, also with an initial: "mr. smith", "mr j smith".
_SMALL_TITLED = lazy_pattern(
    r"(?<![\w.])(?P<title>[Mm]rs?|[Mm]s|[Mm]iss|[Dd]r)(?P<dot>\.?) (?P<name>(?P<initial>[a-z]\.? )?(?P<last>[a-z]{2,15}))(?![\w\-/])"
)
# A note in small letters that begins with a first name which is a word, too: "rose has a fever".
_SMALL_OPENING = lazy_pattern(rf"(?:^|\n)(?P<name>[a-z]{{3,12}}) (?=(?:{_VERB})\b|{_STATE})")
_SPEAKER = lazy_pattern(rf"(?:^|\n|[.!?] )[\"“‘'](?P<name>{_CAP})[\"”’'](?= \()")


def _can_be_person(word: str) -> bool:
    """A listed or an unknown word, or an ordinary one that people are called by; nothing of medicine."""
    lower = word.lower().replace("’", "'").removesuffix("'s")
    if lower in WORD_NAMES:
        return True
    if (
        is_short_form(lower)
        or lower in medical_words()
        or (lower in eponyms() and not is_listed(lower, NAMES))
        or word in SENTENCE_WORDS
        or is_listed(lower, _NOBODY)
    ):
        return False
    return is_listed(lower, NAMES) or (tier(lower) == UNLISTED and len(lower) > 2)


_NOBODY = frozenset(
    {WordList.MEDICAL_NAME, WordList.DISEASE_WORD, WordList.NATION, WordList.COUNTRY, WordList.STATE, WordList.MONTH_OR_DAY}
)


def _find_subjects(text: str) -> Iterator[tuple[int, int]]:
    for match in _SUBJECT.finditer(text):
        start, end = match.span("name")
        word = match["name"].split()[0].lower()
        if word in _AUXILIARIES and _ASKS.match(text, end):
            continue
        is_season = word in _SEASONS and not re.match(rf" (?:{_VERB})\b", text[end:])
        if _can_be_person(match["name"].split()[0]) and not is_season and not is_term(text, (start, end, "NAME")):
            yield start, end
    for match in _OWNER.finditer(text):
        if _can_be_person(match["name"]) and match["name"] not in _MINE:
            yield match.span("name")


_SMALL_FIRST = frozenset(
    """faith mark summer frank art gene hope dawn rose grace joy pearl ruby amber iris lily daisy violet ivy heather holly hazel olive bill bob jack pat sue
    chuck dale glen lance miles norm ray rod ted victor wade penny christian jordan hunter mason cooper carter tyler taylor parker drew robin jay crystal jade jasper
    guy dean jean nick tony rob pierce martin""".split()
)
_AUXILIARIES = frozenset(("will", "may"))
_ASKS = lazy_pattern(rf" (?:(?:this|his|thus|always|yes)\b|(?!(?:{_VERB}|has|was|is)\b)[a-z]+\b[^.!?\n]*\?)")
_MINE = frozenset(("It", "That", "Today", "Yesterday", "Mom", "Mum", "Dad", "Baby", "Patient"))


def _find_inside(text: str) -> Iterator[tuple[int, int]]:
    """An ordinary word with a capital inside a sentence is a name: "told Will to hold it"."""

    def is_name(start: int, end: int) -> bool:
        word = text[start:end].lower()
        return word in WORD_NAMES and word not in _SEASONS and word not in eponyms() and not is_listed(word, _NOBODY)

    yield from spans_where(_INSIDE, text, is_name)


def _find_led(text: str) -> Iterator[tuple[int, int]]:
    for match in _LEAD.finditer(text):
        words = re.split("[ -]", match["name"])
        size = 0
        for word in words:
            if not _can_be_person(word) or (size == 0 and word.lower() in _HEADINGS):
                break
            size += len(word) + 1
        start = match.start("name")
        if size and not is_term(text, (start, start + size - 1, "NAME")):
            yield start, start + size - 1


_HEADINGS = frozenset("will may long short best good day so do an little small field page old young".split())


def _find_last_first(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        words = [word.lower() for word in re.findall(r"[A-Za-z'’]{3,}", text[start:end])]
        terms = [word in medical_words() or (tier(word) in ORDINARY and not is_listed(word, NAMES)) for word in words]
        return not any(terms) and any(is_listed(word, NAMES) or tier(word) == UNLISTED for word in words[1:])

    yield from spans_where(_LAST_FIRST, text, is_name)


def _is_no_opening(words: list[str]) -> bool:
    """One frequent word that is no first name: "Case 11: fever"."""
    lower = words[0].lower()
    return len(words) == 1 and tier(lower) in FREQUENT and not is_listed(lower, _FIRST)


def _find_opening(text: str) -> Iterator[tuple[int, int]]:
    """At the beginning of a note: a word of the lists of names, alone or with others that are no words."""

    def is_name(start: int, end: int) -> bool:
        words = re.split("[ -]", text[start:end])
        if _is_no_opening(words):
            return False
        listed = any(is_listed(word.lower(), NAMES) for word in words)
        are_names = all(_can_be_person(word) and word.lower() not in WORD_NAMES for word in words)
        return listed and are_names and not is_term(text, (start, end, "NAME"))

    yield from spans_where(_OPENING, text, is_name)


def may_open_note(text: str) -> bool:
    """Whether a note begins with a word in no list, or has a surname in small letters: a reason to doubt."""
    for match in _OPENING.finditer(text):
        words = re.split("[ -]", match["name"])
        if not _is_no_opening(words) and all(_can_be_person(word) and word.lower() not in eponyms() for word in words):
            return True
    for match in _SMALL_OPENING.finditer(text) if text.islower() else ():
        word = match["name"]
        if word in _SMALL_FIRST and not is_term(text, (*match.span("name"), "NAME")):
            return True
    if any(
        match["name"].lower() in eponyms() or match["name"].lower() in medical_words() for match in _PATIENT_EPONYM.finditer(text)
    ):
        return True
    for match in _DOUBTFUL_OPENING.finditer(text):
        word = match["name"].lower()
        if (word in WORD_NAMES and word not in _SEASONS and not is_term(text, (*match.span("name"), "NAME"))) or (
            len(word) == 2 and _can_be_person(match["name"]) and tier(word) == UNLISTED
        ):
            return word not in eponyms()
    return False


def _find_small(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        word = text[start:end]
        return (word in WORD_NAMES or is_listed(word, NAMES)) and word not in medical_words() and word not in _HEADINGS

    yield from spans_where(_SMALL, text, is_name)
    for match in _SMALL_TITLED.finditer(text):
        last = match["last"]
        is_sure = match["dot"] or match["initial"] or tier(last) not in FREQUENT  # "ms long" is no person, "ms. long" is
        if is_sure and is_listed(last, _SURNAME) and is_name(*match.span("last")) and last.title() not in SENTENCE_WORDS:
            yield match.span("name")


def _find_described(text: str) -> Iterator[tuple[int, int]]:
    """Whoever is a lady or a smoker, or signs a message, is a person, whatever the word."""
    for match in _DESCRIBED.finditer(text):
        if match["name"] not in _PRONOUNS and match["name"].split()[0].lower() not in medical_words():
            yield match.span("name")
    if (
        (signed := _SIGNED.search(text))
        and signed["name"] not in SENTENCE_WORDS
        and signed["name"].lower() not in medical_words()
    ):
        yield signed.span("name")


_PRONOUNS = SENTENCE_WORDS | {
    "Patient",
    "Pt",
    "Mom",
    "Mum",
    "Dad",
    "Mother",
    "Father",
    "Caller",
    "Client",
    "Resident",
    "Husband",
    "Wife",
    "Son",
    "Daughter",
    "Each",
}


def _find_quoted(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span("name") for match in _SPEAKER.finditer(text))


FINDERS = (
    Finder("word that does what a person does", "NAME", ("{Summer} gets hay fever", "No. {Frank} has a cough", "{Blessing}'s EEG shows"), _find_subjects),
    Finder("ordinary word with a capital inside a sentence", "NAME", ("told {Will} to hold it",), _find_inside),
    Finder("behind a relative, a patient or a verb", "NAME", ("Granny {Pearl} wants tea", "Seen w/ {Yevgenia}. Plan"), _find_led),
    Finder("surname first at the beginning of a line", "NAME", ("{HERNANDEZ-PUIG,XIMENA L} | F",), _find_last_first),
    Finder("name at the beginning of a note", "NAME", ("{Cornelia} GCS 9",), _find_opening),
    Finder("small letters behind a patient", "NAME", ("pt {mark} has a lesion", "mr. {smith} has chest pain", "saw mr {j smith} today"), _find_small),
    Finder("somebody described, or a signature", "NAME", ("{An} is an anxious lady", "ta, {Gaz}"), _find_described),
    Finder("nickname before brackets", "NAME", ('"{Tex}" (a cowboy) fell',), _find_quoted),
)  # fmt: skip


def find(folded: str) -> Iterator[Span]:
    for finder in FINDERS:
        for start, end in finder.find(folded):
            yield start, end, finder.kind
