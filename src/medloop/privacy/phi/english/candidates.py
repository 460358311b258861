"""Which tagged words are really somebody's, somewhere or an organisation, and which are terms, headings or ordinary words.

`RULES` is the table, in the order in which the rules are tried: the first that applies decides.
"""

# ruff: noqa: E501  a rule in one line is easier to read than one in pieces
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from medloop.privacy.phi import lists
from medloop.privacy.phi.english.name_words import SELDOM_NAMES, SHORT_NAMES, WORD_NAMES, is_plain
from medloop.privacy.phi.english.places import is_department
from medloop.privacy.phi.english.tagger import Token
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import COMMON, UNLISTED, WordList, tier

TITLES = frozenset("mr mrs ms miss mx dr prof professor doctor sir madam".split())
_MAX_REMARK = 4  # words
_ABBREVIATION = lazy_pattern(
    r"[A-Z]{2,6}s?|(?!(?:Mc|Mac|De|Di|La|Le|Van|Von|Fitz)[A-Z])[A-Za-z]{0,12}[A-Z][A-Za-z]{0,12}[A-Z][A-Za-z]{0,12}"
)
_MEDICAL_ENDING = lazy_pattern(
    r".{6}(?:al|ar|ous|ary|gyria|ae)$|.{3}(?:itis|osis|oses|emias?|aemia|omas?|pathy|pathies|pathic|algia|ectomy|otomy|oscopy|ism|uria|plegia|plegic|paresis|penia|cytosis|genesis"
    r"|genic|megaly|plasty|rrh[eo]+a|stenosis|trophy|trophic|malacia|phobia|lysis|edema|graphy|gram|ology|ologists?|itic|otic|emic|pril|olol|statin"
    r"|azole|mycin|cillin|oxacin|mab|nib|vir|sartan|dipine|zepam|caine|prazole|gliptin|glutide|ergic|oma|ylus|philus|bacter|monas|ella|virus|plasma|phyton|cephaly|dactyly|ploidy|typing|philia|bullosa|cocci|coccus|therapy|therapies|chemistry|sensiti[sz]ers?|steroids?|suppressive|sporine|prevention|amine|phrine|tonin|globin|plasia|iridia|cyte|cytes|kine|kines|zyme|ergic|oid|oids|ium|ic|ics|ide|ate)$",
    re.I,
)
_DRUG_OR_DISEASE_ENDING = lazy_pattern(
    "(?:cillin|mycin|statin|sartan|pril|olol|azole|dipine|zepam|oxacin|gliptin|caine|farin|itis|osis|emia|ectomy|pathy|algia)$",
    re.I,
)
_LATIN_TERMS = frozenset("situ vitro vivo utero facto versus vulgaris spina bifida saliva americas latinas".split())
_PUBLIC_BODIES = frozenset(("child health", "inc", "inc web", "human development", "world bank", "who and world bank"))
# What is named after somebody, and bodies whose name begins with a person's.
_EPONYM_WORDS = frozenset(
    """cell type variant anomaly malformation complex operation technique scan trial study questionnaire inventory model equation
    formula ring rings membrane canal ligament muscle artery vein gland glands space layer fold plexus position incision
    approach repair flap cycle effect law principle region regions phenotype mice rats medium assay software instrument
    sign signs test tests maneuver manoeuvre procedure score scale criteria classification reflex response stain method period
    phenomenon
    contracture deformity nodes nodules spots bodies body tube catheter drain forceps retractor clamp splint stage staging grade
    institute institutes national foundation association society network center library registry database""".split()
)
# First words of a sentence that are also names, and what then follows: "Mark the spot", "Rich in iron".
_ALSO_QUALITIES = frozenset(
    "rich frank sunny hardy stark sterling patience grace faith hope joy drew sue jack mark bill pat skip".split()
)
_BEHIND_OPENING = frozenset(
    "the your a an this that it of in to for all any period periods therapy testing panel hips oil flags down blood labs"
    " him her knife".split()
)
# What a person does or is at the start of a note: "Golden was seen", "Price came in".
_PERSON_VERBS = frozenset(
    """was is has had came comes went goes said says called calls wants wanted needs needed reported reports denies denied states
    stated told asked asks felt feels lives lived works worked took takes did does will would can could may might should still
    also now again here there phoned rang thinks thought complained complains presented presents remains stays left arrived
    returned attended attends missed refused refuses agreed agrees wrote writes got gets fell aged who whose whom seen""".split()
)
_ADDRESSING = frozenset(("please", "you", "can", "could", "we", "i", "thank", "thanks"))  # "Grace, please call"
_PROPER_LISTS = frozenset(
    {WordList.FIRST_NAME, WordList.SURNAME, WordList.TOWN, WordList.STATE, WordList.COUNTRY, WordList.COMPANY_WORD}
)
_LAND_LISTS = frozenset({WordList.COUNTRY, WordList.STATE, WordList.NATION})
_ADDRESS_LISTS = frozenset({WordList.STREET_WORD, WordList.TOWN, WordList.STATE, WordList.COUNTRY})
_TERM_LISTS = frozenset({WordList.MEDICAL_NAME, WordList.DISEASE_WORD, WordList.NATION, WordList.MONTH_OR_DAY})


class PhiCandidate:
    """Tokens `first` to `last` of a text, tagged as `kind`."""

    __slots__ = (
        "digits", "first", "is_medical", "is_numbered_place", "kind", "last", "listed", "mixed_case", "span", "tokens",
        "words",
    )  # fmt: skip

    def __init__(self, tokens: Sequence[Token], first: int, last: int, kind: str, is_medical: bool, mixed_case: bool) -> None:
        self.tokens, self.first, self.last, self.kind = tokens, first, last, kind
        self.is_medical = is_medical  # the text is about medicine
        self.mixed_case = mixed_case  # the text uses small letters and capitals, so that a capital means something
        self.span = tokens[first : last + 1]
        self.words = [token.word for token in self.span if token.word[0].isalpha()]
        self.digits = [token.word for token in self.span if token.word[0].isdigit()]
        self.listed = [lists.lists_of(word.lower()) for word in self.words]
        self.is_numbered_place = (
            kind == "PLACE" and bool(self.digits) and not all(WordList.MONTH_OR_DAY in listed for listed in self.listed)
        )

    def longest_number(self) -> int:
        return max(map(len, self.digits))

    def all_terms(self) -> bool:
        return all(_is_term(word, listed, self.is_medical) for word, listed in zip(self.words, self.listed, strict=True))


class CandidateRule(NamedTuple):
    name: str
    example: str
    """The candidate is in braces."""
    applies: Callable[[PhiCandidate], bool]
    is_phi: bool
    kinds: tuple[str, ...] = ("NAME", "PLACE", "ORG")
    """It applies to no candidate of another kind."""
    medical: bool = False  # it applies in no text that is not about medicine
    mixed: bool = False  # it applies in no text in small letters or capitals alone
    one_word: bool | None = None  # it applies to no candidate of several words, or (False) of one


def is_phi(candidate: PhiCandidate) -> bool:
    return deciding_rule(candidate).is_phi


def deciding_rule(candidate: PhiCandidate) -> CandidateRule:
    for rule in _rules_for(False, candidate.kind, candidate.is_medical, candidate.mixed_case, len(candidate.words) == 1):
        if rule.applies(candidate):
            return rule
    raise AssertionError("the last rule always applies")


def is_word_phi(candidate: PhiCandidate) -> bool:
    """As `is_phi` for a word by itself: what stands beside it does not count."""
    rules = _rules_for(True, candidate.kind, candidate.is_medical, candidate.mixed_case, len(candidate.words) == 1)
    return next(rule for rule in rules if rule.applies(candidate)).is_phi


@lru_cache
def _rules_for(for_word: bool, kind: str, medical: bool, mixed: bool, one_word: bool) -> list[CandidateRule]:
    """Those that can apply: to ask the others would be most of the work."""
    return [
        rule
        for rule in (WORD_RULES if for_word else RULES)
        if kind in rule.kinds
        and (medical or not rule.medical)
        and (mixed or not rule.mixed)
        and (rule.one_word is None or rule.one_word == one_word)
    ]


def _is_short_form(candidate: PhiCandidate) -> bool:
    behind = candidate.tokens[candidate.last + 1 : candidate.last + 2]
    return bool(behind) and behind[0].word in ("'t", "’t")


def _is_called_so(candidate: PhiCandidate) -> bool:
    """One capitalized word that people are called by, though it is short or an ordinary word too: Wu, Sky."""
    if candidate.kind != "NAME" or not candidate.mixed_case or len(candidate.words) != 1:
        return False
    word, lower = candidate.words[0], candidate.words[0].lower()
    if not (word[0].isupper() and word[1:].islower()) or _is_seldom_here(candidate):
        return False
    return (lower in WORD_NAMES or lower in SHORT_NAMES) and not (_is_eponym(candidate) or _opens_sentence(candidate))


def _is_seldom_name(candidate: PhiCandidate) -> bool:
    """One ordinary word that seldom is a name, inside a text or in a remark: "Doctor: Nice, what about", "Lovely!"."""
    is_one = candidate.kind == "NAME" and len(candidate.words) == 1
    return is_one and _is_seldom_here(candidate) and not _is_titled(candidate)


def _is_seldom_here(candidate: PhiCandidate) -> bool:
    return candidate.words[0].lower() in SELDOM_NAMES and (candidate.first > 0 or _has_few_words(candidate.tokens))


def _is_heading(candidate: PhiCandidate) -> bool:
    """Several words, an ordinary one among them and nobody's name: "Glomerular Filtration Rate"."""
    if candidate.kind != "NAME" or len(candidate.words) < 2 or _is_titled(candidate):
        return False
    if any(not lists.NAMES.isdisjoint(listed) for listed in candidate.listed):
        return False
    return any(is_plain(word) and word.lower() not in WORD_NAMES for word in candidate.words)


def _is_remark(candidate: PhiCandidate) -> bool:
    return _has_few_words(candidate.tokens) and all(
        _DRUG_OR_DISEASE_ENDING.search(word) or (not listed and (is_plain(word) or (word.isupper() and len(word) < 5)))
        for word, listed in zip(candidate.words, candidate.listed, strict=True)
    )


def _has_few_words(tokens: Sequence[Token]) -> bool:
    count = 0
    for token in tokens:
        count += token.word[0].isalpha()
        if count > _MAX_REMARK:
            return False
    return True


def _is_small_talk(candidate: PhiCandidate) -> bool:
    """In a medical text without capitals, where the tagger knows little: no word is more a name or a town than anything else."""
    if (
        not candidate.is_medical
        or candidate.mixed_case
        or candidate.digits
        or not all(word.islower() for word in candidate.words)
    ):
        return False
    return not any(map(_is_telling, candidate.words, candidate.listed))


def _is_telling(word: str, listed: str) -> bool:
    if not lists.NAMES.isdisjoint(listed) and tier(word) not in lists.FREQUENT:
        return True
    if word in lists.medical_words() or tier(word) in COMMON:
        return False
    if not _PROPER_LISTS.isdisjoint(listed):
        return True
    letters = word.replace("'", "").replace("’", "").replace("-", "")
    return tier(word) == UNLISTED and len(word) > 3 and letters.isalpha() and not _MEDICAL_ENDING.search(word)


def _is_eponym(candidate: PhiCandidate) -> bool:
    if not candidate.is_medical or candidate.kind == "PLACE":
        return False
    for distance, token in enumerate(candidate.tokens[candidate.last + 1 : candidate.last + 4]):
        word = token.word
        if word in ".,;:(\n":
            return False
        if _is_named_after_person(word) or (word.lower() in _EPONYM_WORDS and (not distance or word[0].isupper())):
            return True
    return False


@lru_cache(maxsize=32_768)
def _is_named_after_person(word: str) -> bool:
    """A word for a disease or a sign: what stands before it is its name."""
    if WordList.DISEASE_WORD in lists.lists_of(word.lower()):
        return True
    return word.islower() and _MEDICAL_ENDING.search(word) is not None and not is_plain(word)


def _is_department(candidate: PhiCandidate) -> bool:
    return candidate.kind == "ORG" and candidate.mixed_case and is_department(candidate.words)


def _opening(candidate: PhiCandidate) -> int | None:
    """The index of the only word of a tagged name that opens a sentence; None if it has others or stands elsewhere."""
    tokens, index = candidate.tokens, candidate.last
    if candidate.kind != "NAME" or len(candidate.words) != 1 or not candidate.mixed_case or index + 1 >= len(tokens):
        return None
    return index if not index or tokens[index - 1].word in '.!?:\n"“-' else None


def _opens_sentence(candidate: PhiCandidate) -> bool:
    tokens, index = candidate.tokens, _opening(candidate)
    if index is None:
        return False
    word = tokens[index].word.lower()
    if word not in _ALSO_QUALITIES and tier(word) == UNLISTED:
        return False
    following = tokens[index + 1].word
    if following == "," and word in _ALSO_QUALITIES and index + 2 < len(tokens):
        second = tokens[index + 2].word
        return second.islower() and second not in _ADDRESSING
    return following in _BEHIND_OPENING


def _begins_no_person(candidate: PhiCandidate) -> bool:
    """A frequent word, as a surname rare, or in a remark an ordinary one that nobody is called by, that opens a sentence in which
    nobody of that name does anything: "Rude tone"."""
    tokens, index = candidate.tokens, _opening(candidate)
    if index is None:
        return False
    word = tokens[index].word.lower()
    is_nobody = tier(word) in lists.ORDINARY and not lists.is_listed(word, lists.NAMES) and word not in WORD_NAMES
    is_nobody = is_nobody and _has_few_words(candidate.tokens)
    is_rare = tier(word) in lists.FREQUENT and WordList.FIRST_NAME not in candidate.listed[0]
    if not (word in SELDOM_NAMES or is_nobody or is_rare):
        return False
    following = tokens[index + 1].word
    if following == "and" and index + 2 < len(tokens):
        following = tokens[index + 2].word
    return following.isdigit() or (following.islower() and following not in _PERSON_VERBS)


def _is_time_or_price(candidate: PhiCandidate) -> bool:
    if not candidate.is_numbered_place or not candidate.mixed_case or candidate.longest_number() >= 5:
        return False
    return not any(word[0].isupper() and word not in ("AM", "PM", "A", "P", "M") for word in candidate.words)


def _is_number_with_letters(candidate: PhiCandidate) -> bool:
    return candidate.is_numbered_place and candidate.longest_number() < 4 and all(len(word) == 1 for word in candidate.words)


def _is_dose(candidate: PhiCandidate) -> bool:
    if not candidate.is_numbered_place or not candidate.is_medical:
        return False
    return all(len(word) < 4 and word.isupper() for word in candidate.words) and not any(
        len(number) == 5 for number in candidate.digits
    )


def _is_counted_term(candidate: PhiCandidate) -> bool:
    numbered = candidate.is_numbered_place and candidate.is_medical
    return numbered and candidate.longest_number() < 4 and candidate.all_terms()


def _is_measured(candidate: PhiCandidate) -> bool:
    """Numbers beside words that are no street, town or state: laboratory values and doses."""
    if not candidate.is_numbered_place or candidate.longest_number() >= 5:
        return False
    is_place = any(not _ADDRESS_LISTS.isdisjoint(listed) for listed in candidate.listed)
    return not is_place and not any(map(_may_be_name, candidate.words, candidate.listed))


def _may_be_name(word: str, listed: str) -> bool:
    lower = word.lower()
    if (word.isupper() and len(word) < 6) or len(word) < 3 or lower in lists.medical_words() or _MEDICAL_ENDING.search(word):
        return False
    return tier(lower) == UNLISTED or (word[0].isupper() and not lists.NAMES.isdisjoint(listed) and tier(lower) not in COMMON)


def _has_no_capital(candidate: PhiCandidate) -> bool:
    return candidate.mixed_case and not any(token.word[0].isupper() or token.word[0].isdigit() for token in candidate.span)


def _is_public_body(candidate: PhiCandidate) -> bool:
    return candidate.is_medical and " ".join(candidate.words).lower() in _PUBLIC_BODIES


def _is_land_of_article(candidate: PhiCandidate) -> bool:
    if not candidate.is_medical or candidate.kind != "PLACE":
        return False
    lands = [not _LAND_LISTS.isdisjoint(listed) for listed in candidate.listed]
    return any(lands) and all(land or is_plain(word) for land, word in zip(lands, candidate.words, strict=True))


def _is_titled(candidate: PhiCandidate) -> bool:
    tokens, first = candidate.tokens, candidate.first
    if candidate.kind != "NAME":
        return False
    before = first - 2 if first > 1 and tokens[first - 1].word == "." else first - 1
    return before >= 0 and tokens[before].word.lower() in TITLES


def _is_in_country(candidate: PhiCandidate) -> bool:
    return candidate.kind == "PLACE" and any(WordList.COUNTRY in listed for listed in candidate.listed)


def _is_ordinary_word(candidate: PhiCandidate) -> bool:
    if not candidate.is_medical or len(candidate.words) != 1:
        return False
    return is_plain(candidate.words[0]) or _is_inhabitant(candidate.words[0])


WORD_RULES = (
    CandidateRule("time or price", "the next check of the drip is at {9:40 AM}", _is_time_or_price, False, ("PLACE",), mixed=True),
    CandidateRule("number with single letters", "her refraction on the left is now {+2 D}", _is_number_with_letters, False, ("PLACE",)),
    CandidateRule("dose", "all of the patients took {500 MG} daily", _is_dose, False, ("PLACE",), medical=True),
    CandidateRule("counted term", "patients with {12 Lymphoma} cells", _is_counted_term, False, ("PLACE",), medical=True),
    CandidateRule("values of a note", "{9 14, GAD-7 11, Lexapro 10, CBT} next week", _is_measured, False, ("PLACE",)),
    CandidateRule("any other place with a number", "patients of {12 Malmesbury}", lambda c: c.is_numbered_place, True, ("PLACE",)),
    CandidateRule("no capital in a text that uses them", "Call {malmesbury} now", _has_no_capital, False, mixed=True),
    CandidateRule("public body", "patients of {World Bank} funds", _is_public_body, False, medical=True),
    CandidateRule("country in a medical article", "patients in {Kenya} had fever", _is_land_of_article, False, ("PLACE",), medical=True),
    CandidateRule("name behind a title", "she was one of the patients of Dr. {Fever}", _is_titled, True, ("NAME",)),
    CandidateRule("place in a country", "She lives in {Malmesbury, France}", _is_in_country, True, ("PLACE",)),
    CandidateRule("ordinary word or inhabitant", "patients were {Jordanians} by birth", _is_ordinary_word, False, medical=True, one_word=True),
    CandidateRule("nothing but terms", "most of the patients took {Tylenol, Metoprolol} daily", PhiCandidate.all_terms, False),
    CandidateRule("anything else", "Call {Annabelle Kowalczyk}", lambda _: True, True),
)  # fmt: skip
RULES = (
    CandidateRule("short form of a verb", "Thanks, {Don}'t stop the tablets", _is_short_form, False),
    CandidateRule("frequent word that opens a sentence without a person", "{Put} ice on the knee of all", _begins_no_person, False, ("NAME",), mixed=True, one_word=True),
    CandidateRule("short or ordinary word that people are called by", "{Wu} was here with a cough again", _is_called_so, True, ("NAME",), mixed=True, one_word=True),
    CandidateRule("word that seldom is a name", "the patients said: {Nice}, what about it", _is_seldom_name, False, ("NAME",), one_word=True),
    CandidateRule("ordinary words and nobody's name", "the {Glomerular Filtration Rate} of patients fell", _is_heading, False, ("NAME",), one_word=False),
    CandidateRule("remark of a few ordinary words", "{Outdated} Guideline", _is_remark, False),
    CandidateRule("small talk in small letters", "the patients were {using okay} doses of it", _is_small_talk, False, medical=True),
    CandidateRule("eponym of a disease, a sign or an institute", "patients with {Marie-Tooth} disease", _is_eponym, False, ("NAME", "ORG"), medical=True),
    CandidateRule("department, not a house", "ask the people of the {Internal Medicine Clinic} there", _is_department, False, ("ORG",), mixed=True),
    CandidateRule("ordinary word that opens a sentence", "{Grace} period for the copay ends", _opens_sentence, False, ("NAME",), mixed=True, one_word=True),
    *WORD_RULES,
)  # fmt: skip


@lru_cache(maxsize=4096)
def _is_inhabitant(word: str) -> bool:
    """Koreans, Jordanian: who lives in a country."""
    lower = word.lower()
    stem = re.sub("(?:ians?|ans?|ese|ish|is)$", "", lower)
    return stem != lower and len(stem) > 3 and any(country.startswith(stem) for country in lists.lines("countries.txt"))


@lru_cache(maxsize=32_768)
def _is_term(word: str, listed: str, is_medical: bool) -> bool:
    """`listed`: the letters of the lists that hold the word."""
    if _DRUG_OR_DISEASE_ENDING.search(word):
        return True
    if is_medical and ((word.isupper() and len(word) < 7) or word.lower() in _LATIN_TERMS):
        return True
    if not _TERM_LISTS.isdisjoint(listed) or len(word) < 3:
        return True
    if listed:
        return False
    if is_plain(word) or _ABBREVIATION.fullmatch(word):
        return is_medical or not word[0].isupper() or tier(word.lower()) in COMMON
    return is_medical and _MEDICAL_ENDING.search(word) is not None
