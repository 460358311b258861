"""From tags of words to identifiers: whole names with title and degree, addresses in one piece, numbers only beside words."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from typing import NamedTuple

from medloop.privacy.phi.allowed import SYMPTOMS, is_added
from medloop.privacy.phi.english import tagger
from medloop.privacy.phi.english.candidates import TITLES, PhiCandidate, is_phi, is_word_phi
from medloop.privacy.phi.english.name_words import SELDOM_NAMES, WORD_NAMES, is_plain
from medloop.privacy.phi.english.tagger import TAGS, LetterCase, Scores, Token
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import (
    COMMON,
    FREQUENT,
    NAMES,
    NOT_ONLY_ORDINARY,
    ORDINARY,
    WordList,
    eponyms,
    is_listed,
    medical_words,
    tier,
)
from medloop.privacy.phi.normalize import MASK
from medloop.privacy.phi.spans import Span

DOUBTLESS = -60.0  # a word so far from being removed is not a reason to doubt
_PERSON_BIAS = 30.0  # the least that is added to names in a text that is known to be about a person
_DEGREES = frozenset("md phd dds dvm rn np do pa jr sr ii iii iv esq mph msn".split())
_CJK = lazy_pattern(r"[\u3400-\u9fff]")
_LETTER = lazy_pattern(r"[^\W\d_]")
_ZIP_LABEL = lazy_pattern(r"(?:zip|postal|post ?code)[a-z ]{0,8}[:#]?\s{0,3}$", re.I)
_CAPITALIZED = lazy_pattern(r"(?<=[a-z,;] )[A-Z][a-z]+")
NOBODY = frozenset(
    {
        WordList.MONTH_OR_DAY,
        WordList.NATION,
        WordList.MEDICAL_NAME,
        WordList.COUNTRY,
        WordList.STATE,
        WordList.TITLE,
    }
)
_NATION = frozenset({WordList.NATION})
_WEEKDAYS = frozenset("monday tuesday wednesday thursday friday saturday sunday".split())
_BEFORE_DAY = frozenset("the a on this next last every each until by since from".split())
_ENDS = frozenset(".!?:\n")
_REMARK = 5  # words and signs; a text with fewer is a remark
_PROPER = NAMES | {WordList.TOWN}
_PERSON = lazy_pattern(
    r"\b(?:Mr|Mrs|Ms|Miss|Dr)\b\.? [A-Z]|\b(?:[Mm]y|[Hh]er|[Hh]is) (?:wife|husband|son|daughter|mother|father|mom|dad|brother"
    r"|sister|friend|neighbou?r)\b|\b(?:[Ss]he|[Hh]e) (?:lives|reports|reported|denies|works|said|says|came|called)\b"
)
_SCIENCE = frozenset(
    """conclude concluded conclusion conclusions results findings suggest suggests suggested associated association compared
    significantly significant effects evaluation evaluated assessment assessed programme intervention research analysis
    evidence efficacy strategy strategies procedure procedures techniques factors mechanism mechanisms prosthesis receptor
    receptors expression signaling improvement population correlation measurements technique observed demonstrated
    participants hypothesis parameters detected""".split()
)


class LatinPart(NamedTuple):
    """A part of a text in Latin letters, as tokens."""

    start: int
    text: str
    tokens: list[Token]
    text_type: str
    """See `tagger.text_type`."""
    is_note: bool
    """In the short words of a clinic. The tagger does not know them, so its words are looked at as those of medicine."""

    @property
    def is_medical(self) -> bool:
        return self.is_note or self.text_type[1] != "0"


class TaggedPart(NamedTuple):
    part: LatinPart
    scores: list[Scores]
    tags: list[int]


def is_about_person(folded: str) -> bool:
    """Whether the text is about one person, by title, kinship or as "she": not about patients in general."""
    return _PERSON.search(folded) is not None


def find(parts: Iterable[LatinPart], about_person: bool = False) -> tuple[list[Span], list[TaggedPart]]:
    """Names, places and organisations of the parts, and the tagged parts for `nearest`.

    `about_person`: the text is known to be about a person, so that less is asked of a name."""
    spans, tagged, model = list[Span](), list[TaggedPart](), tagger.load()
    for part in parts:
        scores = model.scores(part.text, part.tokens, part.text_type)
        bias = model.bias[part.text_type]
        tags = model.path(scores, max(bias, _PERSON_BIAS) if about_person else bias)
        if any(tags):
            spans += [(start + part.start, end + part.start, kind) for start, end, kind in _spans_of(part, tags)]
        tagged.append(TaggedPart(part, scores, tags))
    return spans, tagged


def nearest(tagged: Iterable[TaggedPart]) -> float:
    """How close the best word that was left came to being removed: zero is a toss-up, far below zero is certainty."""
    best, model = -1e9, tagger.load()
    for part, scores, tags in tagged:
        margins = model.margins(scores, tags, model.bias[part.text_type])
        if any(margin > best and margin > DOUBTLESS for margin in margins):
            best = _nearest_in(part, margins, best)
    return best


def _nearest_in(part: LatinPart, margins: Sequence[float], best: float) -> float:
    is_medical, mixed_case = part.is_medical, tagger.case_of(part.text) == LetterCase.MIXED
    is_remark = len(part.tokens) < _REMARK
    for index, margin in enumerate(margins):
        if margin <= best:
            continue
        token, before = part.tokens[index], part.tokens[index - 1].word if index else "\n"
        word, opens, is_day = token.word, before in _ENDS, before.lower() in _BEFORE_DAY
        if is_day and word.lower() in _WEEKDAYS:  # "The Friday clinic"; "Friday says" is a person
            continue
        if is_remark and (word.lower() in SELDOM_NAMES or _is_nobody(word)):  # "Good.", "Rude tone"
            continue
        if mixed_case and _is_called_so(word):
            best = margin
            continue
        if (is_medical or is_remark or opens) and _is_heading(word):
            continue
        if (
            margin <= DOUBTLESS
            or not word[0].isalpha()
            or is_listed(word.lower(), _NATION)  # "a clinic that speaks English"; "Dr. English" has been removed
            or _is_frequent(word)
            or is_medical_term(word)
            or is_added(word)
        ):
            continue
        if mixed_case and word.isupper() and len(word) < 6:  # INR, MRI
            continue
        if not is_medical or is_word_phi(PhiCandidate([token], 0, 0, "NAME", is_medical, mixed_case)):
            best = margin
    return best


@lru_cache(maxsize=32_768)
def _is_nobody(word: str) -> bool:
    """An ordinary word that is in no list of names, or a common one in small letters; whatever town has its name."""
    lower = word.lower()
    is_common = word.islower() and tier(lower) in COMMON
    return is_common or (tier(lower) in ORDINARY and not is_listed(lower, NAMES) and lower not in WORD_NAMES)


@lru_cache(maxsize=32_768)
def _is_called_so(word: str) -> bool:
    """A capitalized word that people are called by, though it is an ordinary one: what the tagger made of it counts."""
    return word.istitle() and word.lower() in WORD_NAMES


@lru_cache(maxsize=32_768)
def _is_frequent(word: str) -> bool:
    return len(word) < 3 or tier(word.lower()) in FREQUENT


@lru_cache(maxsize=32_768)
def is_medical_term(word: str) -> bool:
    return word.lower() in medical_words() or word.lower() in eponyms()


@lru_cache(maxsize=32_768)
def _is_heading(word: str) -> bool:
    """An ordinary word that is nobody's name and no town: in a note its capital means nothing ("Reasoning")."""
    lower = word.lower()
    return is_plain(lower.removeprefix("non")) and not is_listed(lower, _PROPER)


def capital_left(folded: str, is_medical: bool) -> bool:
    """Whether a capitalized word is left inside a sentence that is not a month, nation, country, title or medical term.

    Where somebody has been removed already, it may be a person or a place too."""
    words = (word for word in _CAPITALIZED.findall(folded) if not (is_medical and _is_heading(word)))
    return any(not is_listed(word.lower(), NOBODY) and not is_medical_term(word) and not is_added(word) for word in words)


_SMALL = "[a-zß-öø-ÿ\u0100-\u024fə]"
_BEHIND_NAME = lazy_pattern(
    rf"(?:{MASK}|\b(?:[Dd]octor|[Dd]r\.?|M(?:r|rs|s)\.?|Miss|Mister)) ({_SMALL}{{3,20}})(?=[:,.?!\n]|$| {_SMALL}+[:,.?!\n])"
)
_SUBJECT = lazy_pattern(r"(?:^|[.!?:\n\"“] ?)([A-Z][a-z]{2,15}) (?:reports|denies|states|complains|complained|endorses|says)\b")
# What hardly anything but a person does, behind a word that opens a clause: (hope) denies, "Last night, (Scooter) drove".
_DOES = (
    r"(?:reports|denies|states|complain(?:s|ed)|endorses|says|said|explain(?:s|ed)|notes (?:that|a|no|some)|"
    r"present(?:s|ed) (?:for|with|to)|thinks|thought|wants|wanted|refuse[sd]|decline[sd]|describe[sd]|admits|smokes|"
    r"lives|works|drove|went|hates|loves|likes|walked|attacked|laughed|cried|died|suffers|"
    r"(?:has|had) (?:noticed|tried|experienced|been (?:taking|having|feeling))|"
    r"was (?:diagnosed|experiencing|born|admitted|upset|(?:re)?evaluated)|"
    r"is (?:allergic|walking|taking|drinking|only \w+\.)|is \w+ years? old|will follow up|"
    r"(?:also|still|initially|never|suddenly) (?:reports|denies|suffers|has|had|thought|takes|experienced))\b"
)
_DOER = lazy_pattern(rf"(?:^|[.!?:\n\"“,;] ?)([A-Za-z][a-z]{{2,15}}) (?={_DOES})")
_HAS = lazy_pattern(
    r"(?:^|[.!?:\n\"“,;] ?)([A-Za-z][a-z]{2,15}) "
    r"(?=(?:has|had) (?:an?|no|his|her|had|high|low)\b|(?:hasn|won|doesn|isn|wasn)['’]t)"
)
_ROLES = frozenset(
    """it its this that these those there here and but then also who which what where when whoever one some many most other
    others another neither both each everybody someone somebody anyone anybody none grandma grandpa mommy daddy granny kid
    toddler teen teenager newborn dog cat puppy boss coach employee worker driver therapist dentist surgeon midwife
    pharmacist paramedic interpreter translator cousin niece nephew client mum colleague customer owner stranger officer
    police hospital clinic office department team author study research data evidence everything nothing something anything
    pain always usually often sometimes recently today yesterday tonight never just still now so because since while
    although though until unless or nor yet not only even again once twice actually well patient mother father mom dad wife
    husband son daughter brother sister family caregiver carer spouse partner friend nurse doctor physician she he they
    nobody everyone radiology pathology pharmacy neurology cardiology surgery staff ems resident boy girl man woman lady
    child infant baby caller parent parents grandmother grandfather aunt uncle roommate neighbor neighbour teacher witness
    guest report law article guideline history chart note label policy""".split()
)


def name_may_be_left(folded: str) -> bool:
    """Whether an ordinary word does what a person does ("Chance reports"), or an unknown one follows a title or a name."""
    if any(tier(word) in NOT_ONLY_ORDINARY and not is_medical_term(word) for word in _BEHIND_NAME.findall(folded)):
        return True
    return any(word.lower() not in _ROLES and word.lower() not in medical_words() for word in _SUBJECT.findall(folded)) or any(
        _may_do(word) for word in [*_DOER.findall(folded), *(word for word in _HAS.findall(folded) if word.lower() in WORD_NAMES)]
    )


def _may_do(word: str) -> bool:
    """Whether an ordinary word, with a capital or not, is one that people are called by, or in no list."""
    lower = word.lower()
    if (
        lower in _ROLES
        or lower in SYMPTOMS
        or lower in medical_words()
        or is_medical_term(word)
        or is_added(word)
        or lower.endswith(("ly", "ing"))
    ):
        return False
    return lower in WORD_NAMES or is_listed(lower, NAMES) or tier(lower) not in FREQUENT


def parts_of(folded: str, known: Sequence[Span]) -> Iterator[LatinPart]:
    """The parts in Latin letters; `known` has been found by its form."""
    first = 0
    for start, end in _latin_lines(folded):
        text = folded[start:end]
        while first < len(known) and known[first][1] <= start:
            first += 1
        here = takewhile(lambda span: span[0] < end, islice(known, first, None))  # noqa: B023  used up in this turn
        inside = [(max(a, start) - start, min(b, end) - start, kind) for a, b, kind in here]
        tokens = tagger.tokens(text, inside)
        text_type = tagger.text_type(token.word for token in tokens)
        if text_type[1] == "0" and _is_scientific(tokens):
            text_type = text_type[0] + "1"
        yield LatinPart(start, text, tokens, text_type, _is_note(tokens))


_NOTE_WORDS = frozenset(
    """mg mcg ml mmol iv po im sc bid tid qid qd qhs prn stat od bd tds nocte pt hx dx rx tx sx fx bp hr rr spo temp wbc hb
    hgb plt inr crp esr egfr alt ast tsh psa bnp ecg ekg ct mri cxr echo us pe dvt mi cva tia copd uti ckd aki ca htn dm
    afib af sob cp neg pos bilat post op postop preop pod admit discharge labs bloods culture cultures scan biopsy dose wk
    wks yrs hba ldl hdl ef nyha gcs nihss phq gad bmi fev fvc abg ph na gtn nsaid abx ivf""".split()
)


def _is_note(tokens: Sequence[Token]) -> bool:
    """A note in the short words of a clinic, with values: about medicine though no long word says so."""
    words = {token.word.lower() for token in tokens}
    return len(words & _NOTE_WORDS) + len(words & medical_words()) > 1 and any(token.word[0].isdigit() for token in tokens)


def _is_scientific(tokens: Sequence[Token]) -> bool:
    """An abstract of a study: about medicine even where no word of the clinic is in it."""
    count = 0
    for token in tokens:
        count += token.word in _SCIENCE
        if count > 1:
            return True
    return False


def _latin_lines(folded: str) -> list[tuple[int, int]]:
    """Runs of lines that are mostly Latin: English words in a Chinese sentence are drugs and units, not English text."""
    if not _CJK.search(folded):
        return [(0, len(folded))]
    runs: list[tuple[int, int]] = []
    start = 0
    for line in folded.splitlines(keepends=True):
        end = start + len(line)
        if line.count(" ") >= 3 and len(_CJK.findall(line)) * 3 < len(_LETTER.findall(line)):
            if runs and runs[-1][1] == start:
                runs[-1] = (runs[-1][0], end)
            else:
                runs.append((start, end))
        start = end
    return runs


def _spans_of(part: LatinPart, tags: list[int]) -> Iterator[Span]:
    tokens = part.tokens
    filled, mixed_case = _without_speakers(tokens, _fill(tokens, tags)), tagger.case_of(part.text) == LetterCase.MIXED
    first = 0
    while first < len(tokens):
        tag, last = filled[first], first
        while last + 1 < len(tokens) and filled[last + 1] == tag:
            last += 1
        if tag:
            kind = TAGS[tag]
            span = _whole(part.text, tokens, first, last, kind)
            is_medical = part.text_type[1] != "0" if kind == "NAME" else part.is_medical
            if span and is_phi(PhiCandidate(tokens, first, last, kind, is_medical, mixed_case)):
                yield span
        first = last + 1


def _without_speakers(tokens: Sequence[Token], tags: list[int]) -> list[int]:
    """A dialogue's "[doctor]" is nobody, and no name reaches over a bracket."""
    for index, token in enumerate(tokens):
        if token.word in "[]":
            for beside in range(max(0, index - 1), index + 1):
                tags[beside] = 0
    return tags


def _fill(tokens: Sequence[Token], tags: list[int]) -> list[int]:
    """A comma, "de" or "and" between two parts of one address belongs to it; so do line ends."""
    filled, last = list(tags), -1
    for index, tag in enumerate(tags):
        if not tag:
            continue
        between = range(last + 1, index)
        if last >= 0 and tags[last] == tag and 0 < len(between) <= 3 and _are_joints(tokens, between, tag):
            for i in between:
                filled[i] = tag
        last = index
    return filled


def _are_joints(tokens: Sequence[Token], between: range, tag: int) -> bool:
    """In an address one odd word (a short code of a district) may stand between signs."""
    odd = [tokens[i].word for i in between if not _is_joint(tokens[i].word, tag)]
    return not odd or (TAGS[tag] == "PLACE" and len(odd) == 1 and len(between) > 1 and odd[0].isalpha() and len(odd[0]) < 4)


def _is_joint(word: str, tag: int) -> bool:
    if TAGS[tag] == "NAME":
        return word in "-'’."  # "Anna and Peter", "Anna, Peter": two persons
    return word.lower() in tagger.JOINTS or word == "\n"


def _whole(text: str, tokens: Sequence[Token], first: int, last: int, kind: str) -> Span | None:
    """The span without signs at its edges, a name with its title; None where it is a number or a sign alone."""
    while first < last and not tokens[first].word[0].isalnum() and tokens[first].word != "#":
        first += 1
    while last > first and not tokens[last].word[0].isalnum():
        last -= 1
    start, end = tokens[first].start, tokens[last].end
    if tokens[first].word[0] == "<" and len(tokens[first].word) > 1:
        return None
    if not _LETTER.search(text, start, end):
        is_zip = end - start >= 4 and bool(_ZIP_LABEL.search(text, max(0, start - 24), start))
        return (start, end, kind) if is_zip else None
    if kind == "NAME":
        start, end = _with_titles(tokens, first, last)
        if end - start < 2 or text[start - 1 : start].isalnum():  # the end of a code
            return None
    return start, end, kind


def _with_titles(tokens: Sequence[Token], first: int, last: int) -> tuple[int, int]:
    """The span with a title before it and a degree behind it."""
    while first and (
        tokens[first - 1].word.lower() in TITLES
        or (tokens[first - 1].word == "." and first > 1 and tokens[first - 2].word.lower() in TITLES)
    ):
        first -= 1
    behind = last + 1 + (last + 1 < len(tokens) and tokens[last + 1].word == ",")
    if behind < len(tokens):
        degree = tokens[behind].word
        if degree.lower() in _DEGREES and (degree.isupper() or degree.istitle()):
            last = behind
    return tokens[first].start, tokens[last].end
