"""Which words can be part of a person's name where a title, a role or a verb makes one likely."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import (
    FREQUENT,
    NAMES,
    NOT_ONLY_ORDINARY,
    ORDINARY,
    UNLISTED,
    WordList,
    is_listed,
    medical_words,
    tier,
    tiers,
)

SHORT_NAMES = frozenset(
    "wu xu hu ma li lu yu ng su ye le vo vu ko oh bo xi qi lo ip ma mo wa ly ha na ku".split()
)  # of two letters
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
    lane park parks wells banks brooks rivers waters fields woods hills flood frost snow winters summers holiday marshall law wise bright keen strong gentle loyal glory gift comfort lucky fortune spirit
    gates lodge castle house mill miller farmer fletcher chandler carpenter sawyer thatcher tinker webster fuller tanner skinner glover mercer draper chapman spicer honey sweet rye parsley thyme dill clover
    peach olive hazel black white brown green gray grey bliss wild wilder noble stark dark moon sunrise dawn storm cloud breeze meadow glen dell heath ridge cove harbor stone boulder pebble sand dune
    guy dean gay jean nick tony rob pierce bud tex red blue indigo ebony ivory sable raven lark dove""".split()
)
# Of these, words that seldom are a name: something else must say so.
SELDOM_NAMES = frozenset(
    """good nice best so do an day true happy blue red silver love lovely long short small little strange merry young spring summer autumn winter field may sister true bear song son sun
    june april august nice lane park law strong house dark black white brown green gray grey wild gift spirit sand stone sweet moon storm wells comfort
    page price justice junior major noble wood wolf ocean lake river heaven star sky post cross king queen church temple bridge so don pain cook baker ward""".split()
)
# Words that often begin with a capital and never begin a name.
SENTENCE_WORDS = frozenset(
    """The This That There Then He She It We You They I In On At For And But If Please Patient Doctor Call Take Your My His Her
    No Not Yes Because When Where What Who How Is Are Was Monday Tuesday Wednesday Thursday Friday Saturday Sunday January
    February March April May June July August September October November December Emergency Department Hospital Clinic
    Having Taking Feeling Yeah Um Uh Well Today Unfortunately Hello Hi Okay Sure""".split()
)
_STOP_WORDS = frozenset(word.lower() for word in SENTENCE_WORDS) | frozenset(
    """will can could should would shall might must does did do has have had be been being so as an a or nor yet per via no ok okay
    mg am pm er icu iv po she he his her their our new next last first second team staff care home health lab labs unit floor room
    manager google pharmacy radiology nursing services department education portal safety
    window group plan general regional memorial city county state states north south east west side park street blue code""".split()
)
_WORD = lazy_pattern(r"[^ ]+")
_PARTICLES = frozenset("van von de la del di bin al da dos el der den le".split())
_MONTHS = frozenset("january february march april may june july august september october november december".split())
_MONTH_NAMES = frozenset(("april", "may", "june", "august"))
_SHORT_FORM = lazy_pattern("(?:i|it|we|you|he|she|they|that|there|what|who|how|let|here)['’]|.+n['’]t$")  # I'm, let's, can't
_TERM_ENDING = lazy_pattern(
    r"(?:cillin|mycin|statin|sartan|pril|olol|azole|dipine|zepam|oxacin|gliptin|glutide|caine|farin|mab|nib|itis|osis|emia|ectomy|pathy|algia|profen|phen|oxetine"
    r"|therapy|ology|ologists?|icians?|ists|scopy|gram|graphy|tumors?|omas?|virus|ylic|amine|ergic|ative|ation|ations|ings?|ness|ment|ism)$"
)
# In small letters more is a term: nothing but its ending tells a drug from a name.
_SMALL_TERM_ENDING = lazy_pattern(
    r"(?:itis|osis|emia|aemia|oma|omas|pathy|algia|ectomy|otomy|oscopy|uria|penia|cillin|mycin|statin|sartan|pril|olol|azole|dipine|zepam|pam|lam|oxacin|gliptin"
    r"|glutide|caine|farin|vir|mab|nib|ine|ide|ate|one|ol|al|ium|cin|xin|gram|graphy|logy|logist|logic|therapy|ic|ics|ous|in|en|fen|phen|statins|oxetine|pine|done|zole|ex|ax|ix|or|il)$"
)
_DISEASE_OR_NATION = frozenset({WordList.DISEASE_WORD, WordList.NATION, WordList.COUNTRY})
_PLACE_OR_TERM = _DISEASE_OR_NATION | {WordList.STATE, WordList.STREET_WORD}
_PHRASE_WORDS = _DISEASE_OR_NATION | {WordList.MONTH_OR_DAY, WordList.COMPANY_WORD, WordList.TITLE}
_NOT_IN_SMALL_NAME = _DISEASE_OR_NATION | {WordList.MONTH_OR_DAY, WordList.MEDICAL_NAME, WordList.STATE}
_FIRST_NAME = frozenset({WordList.FIRST_NAME})
_TOWN = frozenset({WordList.TOWN})
_MEDICAL = frozenset({WordList.MEDICAL_NAME})
_NAME_OR_EPONYM = NAMES | _MEDICAL
_SURNAME_OR_EPONYM = frozenset({WordList.SURNAME, WordList.MEDICAL_NAME})


class WordRule(NamedTuple):
    """Decides for a word in lower case; `expected` says that only a name can stand in this place ("Nurse …")."""

    name: str
    example: str
    applies: Callable[[str, bool], bool]
    is_name: bool


WORD_RULES = (  # the first that applies decides
    WordRule("month that is a first name", "april", lambda word, expected: expected and word in _MONTH_NAMES, True),
    WordRule("month", "october", lambda word, _: word in _MONTHS, False),
    WordRule("function word, or word of the clinic", "radiology", lambda word, _: word in _STOP_WORDS, False),
    WordRule("short form", "can't", lambda word, _: bool(_SHORT_FORM.match(word)), False),
    WordRule("place or disease word", "syndrome", lambda word, _: is_listed(word, _PLACE_OR_TERM), False),
    WordRule("brand or germ", "tylenol", lambda word, _: is_listed(word, _MEDICAL) and not is_listed(word, NAMES), False),
    WordRule("only a first name", "cornelia", lambda word, expected: not expected and _is_only_first_name(word), True),
    WordRule("word where something else is as likely", "lancaster", lambda _, expected: not expected, False),
    WordRule("first name", "grace", lambda word, _: is_listed(word, _FIRST_NAME), True),
    WordRule("surname", "lancaster", lambda word, _: is_listed(word, NAMES) and tier(word) not in FREQUENT, True),
    WordRule("surname that is a frequent word", "price", lambda word, _: is_listed(word, NAMES), False),
    WordRule("word in no list", "ashgrovenko", lambda word, _: _is_unknown(word), True),
    WordRule("ordinary word", "kitchen", lambda _word, _expected: True, False),
)


def _is_only_first_name(word: str) -> bool:
    return is_listed(word, _FIRST_NAME) and not is_listed(word, _TOWN) and tier(word) in NOT_ONLY_ORDINARY


def _is_unknown(word: str) -> bool:
    return (
        tier(word) in NOT_ONLY_ORDINARY
        and not is_listed(word, _TOWN)
        and word.replace("-", "").isalpha()
        and len(word) > 2
        and not _TERM_ENDING.search(word)
    )


@lru_cache(maxsize=16_384)
def rule_for(word: str, expected: bool) -> WordRule:
    return next(rule for rule in WORD_RULES if rule.applies(word, expected))


def name_end(text: str, start: int, end: int, expected: bool) -> int:
    """Where the name between `start` and `end` ends: behind the last word that can belong to it; 0 if the first cannot."""
    matches = list(_WORD.finditer(text, start, end))
    words = [_without_ending(match[0]) for match in matches]
    last = 0
    for index, (match, word) in enumerate(zip(matches, words, strict=True)):
        if len(word) == 1 or word in _PARTICLES:
            continue
        if not (rule_for(word, expected).is_name or _is_beside_name(words, index, expected)):
            break
        last = match.end()
    return last


@lru_cache(maxsize=32_768)
def _without_ending(word: str) -> str:
    return re.sub(r"(?:['’]s|\.)$", "", word).lower()


def _is_beside_name(words: Sequence[str], index: int, expected: bool) -> bool:
    """A word that is ordinary by itself, beside a name: "Summer L. Ott", "Ivy Paget"."""
    word, surname = words[index], words[-1]
    if word in _STOP_WORDS or _SHORT_FORM.match(word) or is_listed(word, _DISEASE_OR_NATION):
        return False
    if index:
        return expected or is_listed(word, _NAME_OR_EPONYM)
    has_initial = len(words) > 2 and len(words[1]) == 1
    return (
        expected
        and len(words) > 1
        and (has_initial or is_listed(surname, _SURNAME_OR_EPONYM) or tier(surname) == UNLISTED)
        and surname not in _STOP_WORDS
    )


def is_short_form(word: str) -> bool:
    """I'm, we'll, can't."""
    return _SHORT_FORM.match(word.lower()) is not None


def is_phrase(first: str, last: str) -> bool:
    """Two words that are ordinary or part of a term, though both are names: "Will May", "Black Death", "Iron Deficiency"."""
    if is_listed(first, _PHRASE_WORDS) or is_listed(last, _PHRASE_WORDS) or first in _STOP_WORDS or last in _STOP_WORDS:
        return True
    return tier(first) in FREQUENT and tier(last) in FREQUENT


class _SmallWord(NamedTuple):
    end: int
    is_listed: bool
    tier: str


def small_name_end(text: str, start: int, end: int, titled: bool) -> int:
    """As `name_end`, for small letters: "dr. nakamura", "this is kwame boateng". Without a title more is asked of the words."""
    words: list[_SmallWord] = []
    for match in _WORD.finditer(text, start, end):
        word = match[0].lower().removesuffix("'s").removesuffix("’s")
        if not _can_be_small_name(word, titled):
            break
        words.append(_SmallWord(match.end(), is_listed(word, NAMES), tier(word)))
    if not words:
        return 0
    if titled and len(words) == 1 and text[end : end + 1] in ":,.":
        return end  # "doctor dave tack:", whatever the second word is
    all_uncommon = all(word.tier in NOT_ONLY_ORDINARY for word in words)
    if titled or (len(words) == 2 and (all_uncommon or any(word.is_listed for word in words))):
        return words[-1].end
    return words[0].end if words[0].is_listed and words[0].tier in NOT_ONLY_ORDINARY else 0


def _can_be_small_name(word: str, titled: bool) -> bool:
    if word in _STOP_WORDS or tier(word) in FREQUENT or word in medical_words():
        return False
    if titled and tier(word) in NOT_ONLY_ORDINARY:
        return not _TERM_ENDING.search(word)
    if is_listed(word, _NOT_IN_SMALL_NAME):
        return False
    return is_listed(word, NAMES) or (tier(word) == UNLISTED and not _SMALL_TERM_ENDING.search(word))


@lru_cache(maxsize=32_768)
def is_plain(word: str) -> bool:
    """An ordinary word, also in a form no list holds: "midwives", "tornadoes"."""
    lower, known = word.lower(), tiers()
    forms = [lower]
    if lower.endswith("s"):
        forms.append(lower[:-1])
        if lower.endswith("es"):
            forms.append(lower[:-2])
            if lower.endswith("ves"):
                forms += [lower[:-3] + "fe", lower[:-3] + "f"]
            elif lower.endswith("ies"):
                forms.append(lower[:-3] + "y")
    for form in forms:
        if len(form) > 2 and known.get(form) in ORDINARY:
            return True
    return False
