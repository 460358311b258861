"""English names that are ordinary words, or that stand where a note names its patient: at its beginning, behind "Granny", before a verb."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Iterator

from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.english.name_words import SENTENCE_WORDS, is_short_form
from medloop.privacy.phi.lists import NAMES, ORDINARY, UNLISTED, WordList, eponyms, is_listed, medical_words, tier
from medloop.privacy.phi.rules import Finder
from medloop.privacy.phi.spans import Span

_CAP = r"[A-ZÀ-ÖØ-ÞĀ-Ž][a-zß-öø-ÿ\u0100-\u024f'’]{1,20}"
# Ordinary words that people are called by.
WORD_NAMES = frozenset(
    """will faith mark summer frank art gene hope dawn rose grace joy mercy pearl ruby amber iris lily daisy violet ivy heather holly hazel olive ginger sage basil
    rosemary clay cliff rock stone rusty sandy sunny rich bill bob jack pat sue chuck chip dale glen heath lance miles norm ray rod skip stew ted victor wade ward woody penny
    patience prudence charity constance felicity harmony honor honour melody serenity trinity destiny genesis heaven angel blessing precious princess prince king duke earl baron
    noble justice major sterling stormy rain river brook lake ocean sky star autumn spring winter june may april august friday sunday christian jordan chase chance hunter mason
    cooper carter tyler taylor parker porter archer fisher gunner cash price reed drew wren robin jay colt buck bear fox wolf drake crystal diamond jade opal gem jasper flint
    silver scarlet cherry candy brandy sherry dolly dot kitty bunny happy merry bliss love lovely true young long short strange day knight bishop pope cook baker butler gardener
    sister pain moody sharp swift savage nice best good goodman little small rice bean berry plum lemon bird crane finch martin nightingale peacock marsh field forest wood hill
    ford bridge church abbey temple page wright smith potter weaver shepherd harper piper singer mann gay jolly so ho do an ng sung long son song king sun yu bong dung dong
    dusty windy cloudy misty rocky sonny buddy junior pepper maple willow juniper clover fern poppy rowan linden ash oak bay coral shelby mace dash blaze ace ryder sailor remy
    guy dean don gay jean nick tony rob pierce bud tex red blue indigo ebony ivory sable raven lark dove""".split()
)
_SEASONS = frozenset(
    "summer spring autumn winter hope faith grace joy love art gene rain day heaven long short sharp good best nice happy true may so do an".split()
)
_VERB = (
    "needs|wants|gets|takes|feels|does|carries|says|said|wakes|woke|reacts|refused|refuses|took|came|called|calls|started|stopped|lives|asks|asked|denies|reports|complains|declined|declines|attends|attended|missed|got|drinks|smokes|sleeps"
    "|slept|eats|walks|walked|fell|vomited|presented|presents|went|cannot|can't|doesn't|hasn't|won't|isn't|wasn't|tolerated|tested|received|underwent|developed|broke|lost|gained|weighs|knows|thinks|hates|loves|likes|keeps|forgot|remembers|prefers|works|stays"
    "|speaks|understands|sees|saw|wakes|cried|cries|snores|coughs|bleeds|faints|fainted|stepped|ate|drank|quit|ran|told|told|gave|swallowed|slipped|tripped|hurt|injured|brought|describes|endorses|admits|seems|appears|looks|sounds|sat|stood"
)
_STATE = r"(?:is|was) (?:the patient|an? \d|\d|here|back|in (?:bed|room|bay|clinic)|on \w+|having|feeling|taking|having|still|now|not|\w+ing\b|\w+ed\b|anxious|worried|pregnant|confused|well|better|sick|afebrile|stable)|(?:has|had) (?:a|an|been|no|not|had|his|her|some|two|three|\w+ (?:pain|fever|hematuria|cough))|will (?:need|be|have|come|call|see|take|go)|may (?:need|have|go)"
_SUBJECT = re.compile(
    rf"(?:^|(?<=[.!?;\n] )|(?<=[\n(])|(?<=- ))(?P<name>{_CAP}(?: [A-Z]\.)?)(?= (?:(?:{_VERB}|no longer|[a-z]{{3,10}}(?:s|ed))\b|{_STATE}|c/o\b))"
)
_INSIDE = re.compile(r"(?<=[a-z] )(?P<name>[A-Z][a-z]{1,12})(?=[,.;:?!]| [a-z])")
_DOUBTFUL_OPENING = re.compile(
    r"(?:^|\n)(?P<name>[A-Z][a-z]{1,12})(?:['’]s| (?:on|to|in|is|and|at|with|for|from|was|has|had|-)) ?[a-zA-Z]"
)
_OWNER = re.compile(
    rf"(?:^|(?<=[.!?;\n] ))(?P<name>{_CAP})(?=['’]s (?:EEG|ECG|EKG|MRI|CT|labs?|bloods?|cultures?|results?|biopsy|scan|x-ray|INR|BP|sugars?|glucose|rash|cough|wound|pain|mother|father|wife|husband|mum|mom|dad|son|daughter|family|drain|stitches|chest|cast|bed|meds?|medication|dose|temp|fever|urine|stool|potassium|sodium|creatinine|platelets)\b)"
)
_LEAD = re.compile(
    rf"\b(?i:granny|grandma|nana|gran|grandpa|gramps|abuela|abuelo|auntie|aunty|aunt|uncle|baby|twin|foster (?:mum|mom|dad|mother|father)|nok|lil|little|old|big|patient|pt|nurse|midwife|carer|interpreter|index case|legal name|maiden name|surname|aka|seen w/|spoke w/|d/w|w/|please see|pls see|see|cc|re|labelled|labeled|belongs to|next bed|roommate|cousin|twin)[:,]? (?P<name>{_CAP}(?:[ \-]{_CAP}){{0,2}})(?![A-Za-z])"
)
_LAST_FIRST = re.compile(
    r"(?:^|\n|(?<=[|:] ))(?P<name>(?:(?:DE|DA|VAN|VON|EL|AL|LE|LA|MC|O) )?[A-Z][A-Za-z'’\-]{2,20}, ?[A-Z][A-Za-z'’\-]{2,20}(?: [A-Z][A-Z'’\-]{2,20}\b| [A-Z]\b\.?)?)(?= ?[:|(–—-]| \d|,? (?:DOB|MRN|[MF]\b))"
)
_OPENING = re.compile(
    rf"(?:^|(?<=\n))(?P<name>{_CAP}(?:[ \-]{_CAP}){{0,2}})(?= ?[-–—:(] ?|, (?:\d|[MF]\b)| (?:[A-Z]{{2,6}}\b|\d))"
)
_SMALL = re.compile(
    rf"\b(?P<lead>pt|patient|baby|nurse|dr|called|named|mr|mrs|ms) (?P<name>[a-z]{{2,15}})(?= (?:{_VERB}|has|had|is|was|will)\b)"
)
_SPEAKER = re.compile(rf"(?:^|\n|[.!?] )[\"“‘'](?P<name>{_CAP})[\"”’'](?= \()")


def _can_be_person(word: str) -> bool:
    """A listed or an unknown word, or an ordinary one that people are called by; nothing of medicine."""
    lower = word.lower().replace("’", "'").removesuffix("'s")
    if lower in WORD_NAMES:
        return True
    if (
        is_short_form(lower)
        or lower in medical_words()
        or lower in eponyms()
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
        is_season = word in _SEASONS and not re.match(rf" (?:{_VERB})\b", text[end:])
        if _can_be_person(match["name"].split()[0]) and not is_season and not is_term(text, (start, end, "NAME")):
            yield start, end
    for match in _OWNER.finditer(text):
        if _can_be_person(match["name"]) and match["name"] not in _MINE:
            yield match.span("name")


_MINE = frozenset(("It", "That", "Today", "Yesterday", "Mom", "Mum", "Dad", "Baby", "Patient"))


def _find_inside(text: str) -> Iterator[tuple[int, int]]:
    """An ordinary word with a capital inside a sentence is a name: "told Will to hold it"."""
    for match in _INSIDE.finditer(text):
        word = match["name"].lower()
        if word in WORD_NAMES and word not in _SEASONS and word not in eponyms() and not is_listed(word, _NOBODY):
            yield match.span("name")


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
    for match in _LAST_FIRST.finditer(text):
        words = [word.lower() for word in re.findall(r"[A-Za-z'’]{3,}", match["name"])]
        terms = [word in medical_words() or (tier(word) in ORDINARY and not is_listed(word, NAMES)) for word in words]
        if not any(terms) and any(is_listed(word, NAMES) or tier(word) == UNLISTED for word in words[1:]):
            yield match.span("name")


def _find_opening(text: str) -> Iterator[tuple[int, int]]:
    """At the beginning of a note: a word of the lists of names, alone or with others that are no words."""
    for match in _OPENING.finditer(text):
        words = re.split("[ -]", match["name"])
        listed = any(is_listed(word.lower(), NAMES) for word in words)
        start, end = match.span("name")
        if (
            listed
            and all(_can_be_person(word) and word.lower() not in WORD_NAMES for word in words)
            and not is_term(text, (start, end, "NAME"))
        ):
            yield start, end


def may_open_note(text: str) -> bool:
    """Whether a note begins with a word in no list, or has a surname in small letters: a reason to doubt."""
    for match in _OPENING.finditer(text):
        if all(_can_be_person(word) and word.lower() not in eponyms() for word in re.split("[ -]", match["name"])):
            return True
    for match in _DOUBTFUL_OPENING.finditer(text):
        word = match["name"].lower()
        if (word in WORD_NAMES and word not in _SEASONS) or (
            len(word) == 2 and _can_be_person(match["name"]) and tier(word) == UNLISTED
        ):
            return word not in eponyms()
    return False


def _find_small(text: str) -> Iterator[tuple[int, int]]:
    for match in _SMALL.finditer(text):
        word = match["name"]
        if (word in WORD_NAMES or is_listed(word, NAMES)) and word not in medical_words() and word not in _HEADINGS:
            yield match.span("name")


def _find_quoted(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span("name") for match in _SPEAKER.finditer(text))


FINDERS = (
    Finder("word that does what a person does", "NAME", ("{Summer} gets hay fever", "No. {Frank} has a cough", "{Blessing}'s EEG shows"), _find_subjects),
    Finder("ordinary word with a capital inside a sentence", "NAME", ("told {Will} to hold it",), _find_inside),
    Finder("behind a relative, a patient or a verb", "NAME", ("Granny {Pearl} wants tea", "Seen w/ {Yevgenia}. Plan"), _find_led),
    Finder("surname first at the beginning of a line", "NAME", ("{HERNANDEZ-PUIG,XIMENA L} | F",), _find_last_first),
    Finder("name at the beginning of a note", "NAME", ("{Cornelia} GCS 9",), _find_opening),
    Finder("small letters behind a patient", "NAME", ("pt {mark} has a lesion",), _find_small),
    Finder("nickname before brackets", "NAME", ('"{Tex}" (a cowboy) fell',), _find_quoted),
)  # fmt: skip


def find(folded: str) -> Iterator[Span]:
    for finder in FINDERS:
        for start, end in finder.find(folded):
            yield start, end, finder.kind
