"""Terms that are never replaced: words of medicine (ours), and those a workspace adds.

A span that the tagger, the network or a position gives is dropped when it is nothing but such terms. What a check digit, a form or a
title gives is replaced all the same: "Dr. Baker" is a person, "Baker cyst" is not.
"""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from medloop.errors import ConfigError
from medloop.privacy.phi import lists
from medloop.privacy.phi.english.name_words import WORD_NAMES
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import ChineseTerms, WordList
from medloop.privacy.phi.normalize import fold
from medloop.privacy.phi.spans import Span

_WORD = lazy_pattern(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_HAN = lazy_pattern(r"[\u3400-\u9fff]")
_LOOSE = frozenset(("NAME", "PLACE", "ORG"))
_JOINTS = frozenset(("and", "or", "prn", "s", "c", "e", "h", "o"))
_TERM_NOUN = lazy_pattern(
    r"['’]?s? (?:syndrome|disease|histology|sign|test|criteria|staging|classification|fracture|deformity|lesion|cyst|palsy|score|scale|index|pattern|capsule|crisis|triad|bodies"
    r"|cells|stain(?:ing)?|(?:level|grade|type|class|stage) (?:[IV]{1,3}|\d))\b"
)
_TITLE = lazy_pattern(r"(?:dr|doctor|mr|mrs|ms|miss|mister|prof)\b")
_EPONYM_BEHIND = lazy_pattern(
    r"(?:['’]s)?(?:[ -][A-Z][a-z]+)?(?:,? (?:and|or) [A-Z][a-z]+)?[ -](?:signs?|tests?|scores?|scale|grade|class|stage|index|criteria|maneuvers?|manoeuvres?|points?|cyst|fracture|syndrome"
    r"|disease|procedure|operation|contractions?|reflex|catheter|positive|negative|normal|absent|present|lateraliz|consistent|tests?|position|tube|repair|palsy|purpura|ulcer|nodes?|lesions?|respirations?|cultures?|lines?|balloon|block|plaque|abscess|work-?up|features|neg|pos|wort|[a-z]+(?:itis|osis|oma|emia|pathy)\b|\d)",
    re.I,
)
_EPONYM_BEFORE = lazy_pattern(
    r"(?:positive|negative|pos|neg|signs?|tests?|scores?|scale|grade|criteria|performed|per|modified)[:,]? (?:[A-Z][a-z]+,? (?:and )?)?$",
    re.I,
)
_ILLNESS = lazy_pattern(
    r"^(?:immuno|neuro|cardio|gastro|hepato|nephro|osteo|arthro|ha?emo|hyper|hypo|peri|intra|extra|trans|supra|infra|anti|post|poly|normo|tachy|brady|micro|macro|mid|retro|endo|electro|radio|thrombo|broncho|pneumo|psycho|physio|laparo|cysto)"
    r"[a-z]{4,}$|...(?:itis|osis|emia|aemia|omas?|opathy|penia|algia|ectomy|otomy|oscopy|uria|plegia|megaly|plasty|rrh[eo]+a|stenosis|cytosis|graphy|coccus|virus|viruses|cillin|mycin|statin|sartan|prazole|azole|dipine|zepam|oxacin"
    # stems of international drug names
    r"|[nltzxr]umab|[xzmo]umab|[tcvnzlx]i?mab|tinib|rafenib|ciclib|parib|zomib|degib|lisib|metinib|citinib|brutinib|siran|mersen|gliflozin|gliptin|glutide|glitazone|gliptins|statins|lukast|triptan|setron|gepant|caftor|copan"
    r"|limus|fungin|penem|bactam|cycline|asone|solone|sonide|terol|tropium|prost|dronate|xaban|gatran|parin|teplase|semide|thiazide|fibrate|zolam|barbital|triptyline|oxetine|pramine|peridone|peridol|azepine|zapine|caine"
    r"|curium|stigmine|profen|coxib|fenac|oxicam|codone|morphone|fentanil|nacin|tidine|prazoles|nidazole|bendazole|oquine|micin|vudine|navir|tegravir|buvir|asvir|previr|ciclovir|platin|rubicin|taxel|tecan|citabine"
    r"|trexate|mustine|lidomide|poetin|grastim|cept|kinra|relix|relin|pressin|afil|dopa|giline|canazole|terone|estrel|estradiol|ically|ularly|iently|vitis|nosing)$"
)
_DRUG_BEHIND = lazy_pattern(  # a form or a dose
    r"(?: [A-Z]{1,3}\d?)? (?:\d+(?:[.,/]\d+)? ?(?:mg|mcg|µg|μg|g|ml|mL|units?|iu|IU|%)|tablets?|tabs?|caps(?:ules?)?|patch(?:es)?|cream|gel|ointment|lotion|drops|syrup|suspension|inhalers?|sprays?|nebul\w+"
    r"|injections?|infusion|pessar\w+|suppositor\w+|sachets?|ampoules?|mouthwash|shampoo|insoles?|od|bd|tds|qds|nocte|prn)\b"
)
_DRUG_BEFORE = lazy_pattern(
    r"\b(?:[Tt]abs?|[Cc]aps?|[Ii]nj|[Ss]yp|[Ss]usp|[Tt]ablets?|courses? of|doses? of|mg of|ml of|prescribed|allerg(?:ic|y) to|intolerant of)\.? $"
)
_DRUG_CALLED = lazy_pattern(
    r"\b(?:drugs?|medicines?|medications?|pills?|antibiotics?|supplements?|(?:free|trial) samples? of|brands?(?: of)?)(?: (?:was|is|were|are))?(?P<called> (?:called|named|like|such as))? $"
)
# The drug (Lunavex) for sleep. Not: the medication (Okonjo) prescribed.
_GOES_ON = lazy_pattern(r"[.,;:!?)\n]|$| (?:for|and|or|to|in|at|as|every|twice|once|daily|because|but|which|with|since|from)\b")
_DRUG_OPENS = lazy_pattern(r"(?P<drug>[A-Za-z]{5,})(?P<form> [a-z]+)? ?\((?:[A-Z][\w-]+, ?){0,3}$")  # acarbose (Precose
_SHORTEST_DRUG = 7  # letters
_WHO_OR_WHERE = lazy_pattern(
    "(?:ist|ians?|er|or|ar|ology|try|ics?|ery|wife|nurse|physio|ortho|neuro|cardio|ing|eon|lain|man|mate|son|ward|team|care|unit|aide|staff|tech|scopy|therapy|lysis|graphy|tive|(?<!barbit)al|tion|sis|ia|ma)s?$"
)
# Nontender, Undisplaced, Preauricular; Deford, Resnick and Underhill are people.
_PREFIXED = lazy_pattern("(?:non(?=.{4})|un(?=.{6})|(?:de|re|pre|sub|over|under)(?=.{8}))(?P<stem>[a-z]+)")
_WITHOUT_APOSTROPHE = frozenset(
    "ive weve theyve youve theres wheres heres whats thats whos shes hes youre theyre dont doesnt didnt cant couldnt wouldnt shouldnt isnt arent wasnt werent hasnt havent hadnt wont aint".split()
)
_DRUG_FORMS = frozenset("tab tabs cap caps inj syp susp".split())
# What a sentence about nobody begins with: "Headache gets worse at night". Beside a name, or alone on a line, it may be one.
SYMPTOMS = frozenset(
    """pain pains headache headaches itching itchiness soreness tenderness stiffness numbness tingling dizziness nausea vomiting diarrhea diarrhoea constipation bloating
    cramping cramps swelling redness bruising bleeding fever fevers chills fatigue tiredness weakness insomnia sleeplessness appetite thirst hunger cough coughs coughing
    snoring swallowing acne eczema anxiety depression hearing vision belching burping sneezing wheezing breathlessness palpitations rash rashes hives blisters heartburn
    indigestion sweating sweats aches migraine migraines spotting anti""".split()
)
_OPENS = lazy_pattern(r"(?:^|[.!?;:\n] ?|[.!?;:] )$")
_NO_PERSON_DOES = lazy_pattern(
    r" (?!(?:says?|said|called|calls|told|tells|asked|asks|denie[sd]|reports?|reported|complain\w*|states?|stated|wants|has|had)\b)[a-z]"
)
_NATIONS = frozenset({WordList.COUNTRY, WordList.NATION})
_WORT = lazy_pattern(r"['’]?s? [Ww]ort\b")
_ABBREVIATION = lazy_pattern("[A-Z]{2,5}")
_LONGEST = 12  # characters of a Chinese term


class Terms(NamedTuple):
    """What a workspace adds: English words and phrases in lower case, and Chinese terms."""

    english: frozenset[str]
    chinese: ChineseTerms

    @classmethod
    def of(cls, terms: Iterable[str]) -> "Terms":
        plain = [fold(term).strip().lower() for term in terms]
        return cls(
            frozenset(term for term in plain if not _HAN.search(term)),
            lists.chinese_terms(term for term in plain if _HAN.search(term)),
        )


NOTHING = Terms.of(())
_added = NOTHING  # of the workspace this process works for


def use(file: Path) -> Terms:
    """From now on leave the terms of this file alone, in this process; a file that is not there holds none."""
    global _added
    _added = Terms.of(read_terms(file))
    return _added


def read_terms(file: Path) -> list[str]:
    """The terms of an allow-list, one a line; empty lines and lines with # are left out."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text", "Convert it, or name another file as privacy.allow_file") from None
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def version() -> str:
    """Names the allow-list in the card of a dataset: empty without one, else a digest of its terms."""
    if _added == NOTHING:
        return ""
    terms = sorted([*_added.english, *(term for group in _added.chinese.by_first_two.values() for term in group)])
    return f"+allow.{hashlib.sha256(chr(10).join(terms).encode()).hexdigest()[:8]}"


def is_added(word: str) -> bool:
    """Whether the workspace allows this English word."""
    return word.lower() in _added.english


@lru_cache(maxsize=32_768)
def is_illness(word: str) -> bool:
    return _ILLNESS.search(word) is not None and not lists.is_listed(word, lists.NAMES)


def is_term(text: str, span: Span) -> bool:
    """Whether the span of a folded text is nothing but allowed terms."""
    start, end, kind = span
    added = _added
    if kind not in _LOOSE:
        return False
    if _HAN.search(text, start, end):
        return _is_within(text, start, end, lists.medical_terms_zh()) or _is_within(text, start, end, added.chinese)
    if _ABBREVIATION.fullmatch(text, start, end) and not lists.is_listed(text[start:end].lower(), lists.NAMES):
        return not text.isupper()  # OGD, CABG, DNR
    phrase, medical = text[start:end].lower(), lists.medical_words()
    words = _WORD.findall(phrase)
    is_name = kind != "PLACE" and not added.english and any(map(_is_only_name, words))
    if is_name and not phrase.startswith(("ray", "x")) and "-" not in text[max(0, start - 1) : end + 1]:  # x-ray, Dix-Hallpike
        return _WORT.match(text, end) is not None or (_TERM_NOUN.match(text, end) is not None and not _TITLE.match(phrase))
    if phrase.startswith(("x-ray", "x ray")) or (
        phrase.startswith("ray") and text[max(0, start - 2) : start].lower() in ("x-", "x ")
    ):
        return True
    if phrase in added.english or _WORT.match(text, end):
        return True
    if _TERM_NOUN.match(text, end):
        return not _TITLE.match(phrase)
    if words and _is_plain_word(text, start, end, words):
        return True
    if kind == "PLACE" and words and all(lists.is_listed(word, _NATIONS) or word in _JOINTS for word in words):
        return True  # a country identifies nobody
    if _is_drug(text, start, end, words):
        return True
    if phrase in SYMPTOMS and _NO_PERSON_DOES.match(text, end) and _OPENS.search(text, max(0, start - 2), start):
        return True
    if kind == "NAME" and phrase in WORD_NAMES and text[start].isupper() and not text[start:end].isupper():
        return phrase in lists.eponyms() and _beside_eponym(text, start, end)
    if text[start:end].islower() and len(words) > 1 and any(map(medical.__contains__, words)):
        if all(word in medical or lists.tier(word) in lists.ORDINARY for word in words):
            return True  # "kidney stone", "lisfranc joint space" in a text without capitals
    if words and "-" in text[max(0, start - 1) : end + 1] and _is_double_eponym(text, start, end):
        return True
    while len(words) > 1 and words[0] not in medical and words[0] not in WORD_NAMES and lists.tier(words[0]) in lists.ORDINARY:
        words = words[1:]  # "Start Symbicort", "Negative Murphy"
    if not words or not (
        is_illness(words[0])
        or words[0] in medical
        or words[0] in _JOINTS
        or words[0] in lists.eponyms()
        or words[0] in added.english
    ):
        return False
    unknown = [
        word
        for word in words
        if not is_illness(word) and word not in medical and word not in added.english and word not in _JOINTS
    ]
    if len(unknown) == len(words) or all(word in _JOINTS for word in words):
        return all(word in lists.eponyms() for word in words) and _beside_eponym(text, start, end)
    eponyms = lists.eponyms()
    return not unknown or (all(word in eponyms for word in unknown) and _beside_eponym(text, start, end))


@lru_cache(maxsize=32_768)
def _is_only_name(word: str) -> bool:
    """A listed name that no rule of `is_term` takes for a part of a term: whatever stands with it in a span, the span is none."""
    if not lists.is_listed(word, lists.NAMES) or lists.tier(word) in lists.ORDINARY or _ILLNESS.search(word):
        return False
    if word in WORD_NAMES or word in lists.medical_words() or word in lists.eponyms():
        return False
    return word not in _JOINTS and word not in _WITHOUT_APOSTROPHE and word not in _DRUG_FORMS


def _is_drug(text: str, start: int, end: int, words: list[str]) -> bool:
    """One word that no list of names or words holds, with its form or its dose: "Estradot patches", "Tab Telma"."""
    form, *rest = words if words and words[0] in _DRUG_FORMS else ["", *words]
    if not rest or any(lists.lists_of(word) or lists.tier(word) in lists.ORDINARY for word in rest):
        return False
    before = max(0, start - 40)
    drug = _DRUG_OPENS.search(text, before, start)
    if drug and _is_known_drug(drug["drug"]) and not _WHO_OR_WHERE.search(drug["form"] or ""):
        return True
    called = _DRUG_CALLED.search(text, before, start)
    return len(rest) == 1 and bool(
        form
        or _DRUG_BEHIND.match(text, end)
        or _DRUG_BEFORE.search(text, max(0, start - 24), start)
        or (called and (called["called"] or _GOES_ON.match(text, end)))
    )


def _is_known_drug(word: str) -> bool:
    """A word in small letters that is in no list, or in those of medicine: acarbose. No person or department: cardiology (Okonjo)."""
    if not word.islower() or len(word) < _SHORTEST_DRUG or _WHO_OR_WHERE.search(word) or lists.lists_of(word):
        return False
    tier = lists.tier(word)
    return tier == lists.UNLISTED or (word in lists.medical_words() and tier not in lists.COMMON)


def _is_plain_word(text: str, start: int, end: int, words: list[str]) -> bool:
    """Words that are nobody by their form: "Ive", "Nontender", "Status post", a heading in capitals before a colon."""
    if all(word in _WITHOUT_APOSTROPHE for word in words):
        return True
    if any(lists.is_listed(word, lists.NAMES) for word in words):
        return False
    prefixed = _PREFIXED.fullmatch(words[0]) if len(words) == 1 else None
    if prefixed and (lists.tier(prefixed["stem"]) in lists.ORDINARY or prefixed["stem"] in lists.medical_words()):
        return True
    known = all(lists.tier(word) in lists.ORDINARY or word in lists.medical_words() for word in words)
    if not known:
        return False
    if text[start:end].isupper():
        return text[end : end + 1] in (":", "\n") and not text.isupper()
    # "Status post renal transplant", "Nobody else at home": only the first word has a capital, and it opens a sentence.
    opens = start == 0 or text[start - 1] == "\n" or text[max(0, start - 2) : start] in (". ", "? ", "! ", ": ", "  ")
    return opens and len(words) > 1 and text[start + 1 : end].islower()


_HYPHENATED = lazy_pattern(r"[A-Za-z]+(?:-[A-Za-z]+)+")


def _is_double_eponym(text: str, start: int, end: int) -> bool:
    """Whether the span lies in a word such as "Guillain-Barre" or "Dix-Hallpike", all of whose parts are eponyms."""
    for match in _HYPHENATED.finditer(text, max(0, start - 24), end + 24):
        if match.start() <= start and match.end() >= end:
            return all(part in lists.eponyms() or part in lists.medical_words() for part in match[0].lower().split("-"))
    return False


def _beside_eponym(text: str, start: int, end: int) -> bool:
    """Whether a word of examination stands beside: "Ortolani and Barlow negative", "positive Hawkins"."""
    return bool(_EPONYM_BEHIND.match(text, end) or _EPONYM_BEFORE.search(text, max(0, start - 24), start))


def _is_within(text: str, start: int, end: int, terms: ChineseTerms) -> bool:
    """Whether the span lies within a term: 罗培南 in 美罗培南."""
    if end - start > 1 and text[start : start + 2] not in terms.pairs:
        return False
    for first in range(max(0, end - _LONGEST), start + 1):
        for term in terms.by_first_two.get(text[first : first + 2], ()):
            if first + len(term) >= end and text.startswith(term, first):
                return True
    return False
