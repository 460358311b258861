"""From tags of words to identifiers: whole names with title and degree, addresses in one piece, numbers only beside words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from medloop.privacy.phi import lists
from medloop.privacy.phi.chinese import places
from medloop.privacy.phi.english import tagger
from medloop.privacy.phi.english.tagger import TAGS, Three, Token

_TITLES = frozenset("mr mrs ms miss mx dr prof professor doctor sir madam".split())
_DEGREES = frozenset("md phd dds dvm rn np do pa jr sr ii iii iv esq mph msn".split())
_CJK = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"[^\W\d_]")
_ZIP = re.compile(r"(?:zip|postal|post ?code)[a-z ]{0,8}[:#]?\s{0,3}$", re.I)
_ABBREVIATION = re.compile(
    r"[A-Z]{2,6}s?|(?!(?:Mc|Mac|De|Di|La|Le|Van|Von|Fitz)[A-Z])[A-Za-z]{0,12}[A-Z][A-Za-z]{0,12}[A-Z][A-Za-z]{0,12}"
)
_MEDICAL_TAIL = re.compile(
    r".{6}(?:al|ar|ous|ary|gyria|ae)$|.{3}(?:itis|osis|oses|emias?|aemia|omas?|pathy|pathies|pathic|algia|ectomy|otomy|oscopy|ism|uria|plegia|plegic|paresis|penia|cytosis|genesis"
    r"|genic|megaly|plasty|rrh[eo]+a|stenosis|trophy|trophic|malacia|phobia|lysis|edema|graphy|gram|ology|ologists?|itic|otic|emic|pril|olol|statin"
    r"|azole|mycin|cillin|oxacin|mab|nib|vir|sartan|dipine|zepam|caine|prazole|gliptin|glutide|ergic|oma|ylus|philus|bacter|monas|ella|virus|plasma|phyton|cephaly|dactyly|ploidy|typing|philia|bullosa|cocci|coccus|therapy|therapies|chemistry|sensiti[sz]ers?|steroids?|suppressive|sporine|prevention|amine|phrine|tonin|globin|plasia|iridia|cyte|cytes|kine|kines|zyme|ergic|oid|oids|ium|ic|ics|ide|ate)$",
    re.I,
)
Span = tuple[int, int, str]


_FEW = 4  # words of a remark
_DRUG = re.compile(
    "(?:cillin|mycin|statin|sartan|pril|olol|azole|dipine|zepam|oxacin|gliptin|caine|farin|itis|osis|emia|ectomy|pathy|algia)$",
    re.I,
)
_RECORD = 30.0  # the least that is added to names in a text that is known to speak of somebody
DOUBTLESS = -60.0  # a word so far from being taken out is no reason to doubt
Part = tuple[int, str, list[Token], str]
Judged = tuple[Part, list[Three], list[int]]


_SOMEBODY = re.compile(
    r"\b(?:Mr|Mrs|Ms|Miss|Dr)\b\.? [A-Z]|\b(?:[Mm]y|[Hh]er|[Hh]is) (?:wife|husband|son|daughter|mother|father|mom|dad|brother"
    r"|sister|friend|neighbou?r)\b|\b(?:[Ss]he|[Hh]e) (?:lives|reports|reported|denies|works|said|says|came|called)\b"
)


def is_about_person(folded: str) -> bool:
    """Whether one person is spoken of, by title, kinship or as "she": not patients in general."""
    return _SOMEBODY.search(folded) is not None


def find(parts: Iterable[Part], record: bool = False) -> tuple[list[Span], list[Judged]]:
    """Names, places and organisations of the parts in Latin letters; and what `nearest` needs to say how sure that is.

    `record`: the text is known to speak of somebody, so that less is asked of a name."""
    spans, judged, model = list[Span](), list[Judged](), tagger.load()
    for part in parts:
        start, text, words, manner = part
        scores = model.scores(text, words, manner)
        tags = model.path(scores, max(model.bias[manner], _RECORD) if record else model.bias[manner])
        if any(tags):
            spans += [(a + start, b + start, kind) for a, b, kind in _spans(text, words, tags, manner[1] != "0")]
        judged.append((part, scores, tags))
    return spans, judged


def nearest(judged: Iterable[Judged]) -> float:
    """How close the best word that was left came to being taken out: zero is a toss of a coin, far below zero is certainty."""
    best, model = -1e9, tagger.load()
    for (_, text, words, manner), scores, tags in judged:
        gaps = model.gaps(scores, tags, model.bias[manner])
        if any(gap > best and gap > DOUBTLESS for gap in gaps):
            best = _nearest(text, words, gaps, manner[1] != "0", best)
    return best


_CAPITAL = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]+")


def capital_left(folded: str) -> bool:
    """Whether a word with a capital is left inside of a sentence that is no month, people, land, title or word of medicine:
    where somebody has been taken out already, it may be somebody or somewhere too."""
    return any(not set(lists.marks().get(word.lower(), "")) & set("MNQKST") for word in _CAPITAL.findall(folded))


def _nearest(part: str, words: Sequence[Token], gaps: Sequence[float], medical: bool, best: float) -> float:
    mixed = tagger.case_of(part) == "a"
    for word, gap in zip(words, gaps, strict=True):
        if gap <= best or gap <= DOUBTLESS or not word.word[0].isalpha() or _ordinary(word.word):
            continue
        if not (mixed and word.word.isupper() and len(word.word) < 6):  # INR, MRI
            if not (medical and _innocent([word], "NAME", "", medical, mixed)):
                best = gap
    return best


@lru_cache(maxsize=32_768)
def _ordinary(word: str) -> bool:
    return len(word) < 3 or lists.tiers().get(word.lower(), lists.OPEN) in "01"


def parts_of(folded: str, known: Sequence[Span]) -> Iterator[Part]:
    """The parts in Latin letters, as words; `known` has been found by its form."""
    for start, end in _latin(folded):
        part = folded[start:end]
        inside = [(max(a, start) - start, min(b, end) - start, kind) for a, b, kind in known if a < end and b > start]
        words = tagger.tokens(part, inside)
        manner = tagger.manner(token.word for token in words)
        yield start, part, words, manner[0] + "1" if manner[1] == "0" and _scientific(words) else manner


_SCIENCE = frozenset(
    """conclude concluded conclusion conclusions results findings suggest suggests suggested associated association compared
    significantly significant effects evaluation evaluated assessment assessed programme intervention research analysis
    evidence efficacy strategy strategies procedure procedures techniques factors mechanism mechanisms prosthesis receptor
    receptors expression signaling improvement population correlation measurements technique observed demonstrated
    participants hypothesis parameters detected""".split()
)


def _scientific(words: Sequence[Token]) -> bool:
    """An abstract of a study: about medicine even where no word of the clinic is in it."""
    seen = 0
    for token in words:
        seen += token.word in _SCIENCE
        if seen > 1:
            return True
    return False


def _latin(folded: str) -> list[tuple[int, int]]:
    """Runs of lines that are mostly Latin: English words in a Chinese sentence are drugs and units, not English text."""
    if not _CJK.search(folded):
        return [(0, len(folded))]
    out: list[tuple[int, int]] = []
    at = 0
    for line in folded.splitlines(keepends=True):
        if len(_CJK.findall(line)) * 3 < len(_WORD.findall(line)) and line.count(" ") >= 3:
            if out and out[-1][1] == at:
                out[-1] = (out[-1][0], at + len(line))
            else:
                out.append((at, at + len(line)))
        at += len(line)
    return out


def _spans(text: str, words: Sequence[Token], tags: list[int], medical: bool) -> list[Span]:
    filled, mixed = _fill(words, tags), tagger.case_of(text) == "a"
    few = sum(token.word[0].isalpha() for token in words) <= _FEW
    out: list[Span] = []
    first = 0
    while first < len(words):
        tag, last = filled[first], first
        while last + 1 < len(words) and filled[last + 1] == tag:
            last += 1
        if tag:
            span = _whole(text, words, first, last, TAGS[tag])
            before = next((words[i].word for i in range(first - 1, max(-1, first - 3), -1) if words[i].word != "."), "")
            kind = TAGS[tag]
            if (
                span
                and not (few and _known(words[first : last + 1]))
                and not (medical and kind != "PLACE" and _eponym(words, last))
                and not (
                    kind == "ORG" and mixed and places.nobodys(w.word for w in words[first : last + 1] if w.word[0].isalpha())
                )
                and not (kind == "NAME" and first == last and mixed and _opening(words, first))
                and not _innocent(words[first : last + 1], kind, before, medical, mixed)
            ):
                out.append(span)
        first = last + 1
    return out


def _known(words: Sequence[Token]) -> bool:
    """ "Unsafe", "Too long", "LGTM", "Amoxicillin": a remark of a few words, each of them an ordinary one."""
    letters = [token.word for token in words if token.word[0].isalpha()]
    return all(_DRUG.search(word) or (not lists.marks().get(word.lower()) and _remark(word)) for word in letters)


def _remark(word: str) -> bool:
    return _plain(word) or (word.isupper() and len(word) < 5)


def _fill(words: Sequence[Token], tags: list[int]) -> list[int]:
    """A comma, "de" or "and" between two parts of one address belongs to it; so do line ends."""
    filled, last = list(tags), -1
    for at, tag in enumerate(tags):
        if not tag:
            continue
        between = range(last + 1, at)
        if last >= 0 and tags[last] == tag and 0 < len(between) <= 3 and _same(words, between, tag):
            for i in between:
                filled[i] = tag
        last = at
    return filled


def _same(words: Sequence[Token], between: range, tag: int) -> bool:
    """In an address one odd word (a short code of a district) may stand between signs."""
    odd = [words[i].word for i in between if not _joins(words[i].word, tag)]
    return not odd or (TAGS[tag] == "PLACE" and len(odd) == 1 and len(between) > 1 and odd[0].isalpha() and len(odd[0]) < 4)


def _joins(word: str, tag: int) -> bool:
    if TAGS[tag] == "NAME":
        return word in "-'’."  # "Anna and Peter", "Anna, Peter": two persons
    return word.lower() in tagger.JOINTS or word == "\n"


def _whole(text: str, words: Sequence[Token], first: int, last: int, kind: str) -> Span | None:
    while first < last and not words[first].word[0].isalnum() and words[first].word != "#":
        first += 1
    while last > first and not words[last].word[0].isalnum():
        last -= 1
    start, end = words[first].start, words[last].end
    if words[first].word[0] == "<" and len(words[first].word) > 1:
        return None
    if not _WORD.search(text, start, end):
        digits = end - start >= 4 and bool(_ZIP.search(text, max(0, start - 24), start))
        return (start, end, kind) if digits else None
    if kind == "NAME":
        start, end = _with_titles(words, first, last)
        if end - start < 2:
            return None
    return start, end, kind


def _with_titles(words: Sequence[Token], first: int, last: int) -> tuple[int, int]:
    """The span with a title before it and a degree behind it."""
    at = first - 1
    while at >= 0 and (
        words[at].word.lower() in _TITLES or (words[at].word == "." and at and words[at - 1].word.lower() in _TITLES)
    ):
        first, at = at, at - 1
    at = last + 1 + (last + 1 < len(words) and words[last + 1].word == ",")
    if at < len(words) and words[at].word.lower() in _DEGREES and (words[at].word.isupper() or words[at].word.istitle()):
        last = at
    return words[first].start, words[last].end


def _innocent(words: Sequence[Token], kind: str, before: str, medical: bool, mixed: bool) -> bool:
    """An abbreviation, a heading, a term, in a medical text a whole country, with nothing to make it somebody's."""
    letters = [token.word for token in words if token.word[0].isalpha()]
    marks = [lists.marks().get(word.lower(), "") for word in letters]
    digits = [token.word for token in words if token.word[0].isdigit()]
    if kind == "PLACE" and digits and not all("M" in mark for mark in marks):
        dose = all(len(word) < 4 and word.isupper() for word in letters) and not any(len(number) == 5 for number in digits)
        count = max(map(len, digits)) < 4 and all(_term(word, mark, medical) for word, mark in zip(letters, marks, strict=True))
        plain_case = mixed and not any(word[0].isupper() and word not in ("AM", "PM", "A", "P", "M") for word in letters)
        if plain_case and max(map(len, digits)) < 5:
            return True  # 9:40 AM, 75 an hour
        single = max(map(len, digits)) < 4 and all(len(word) == 1 for word in letters)  # +2 D, 3 T
        return single or (medical and (dose or count))  # else an address
    if not any(token.word[0].isupper() or token.word[0].isdigit() for token in words) and mixed:
        return True  # capitals are used in this text, and here there are none
    if medical and " ".join(letters).lower() in _BODIES:
        return True
    lands = [bool(set(mark) & set("KSN")) for mark in marks]
    if (
        medical
        and kind == "PLACE"
        and any(lands)
        and all(land or _plain(word) for land, word in zip(lands, letters, strict=True))
    ):
        return True
    if kind == "NAME" and before.lower() in _TITLES:
        return False
    if kind == "PLACE" and any("K" in mark for mark in marks):
        return False
    if medical and len(letters) == 1 and (_plain(letters[0]) or _people(letters[0])):
        return True  # a word that is also somebody's surname
    return all(_term(word, mark, medical) for word, mark in zip(letters, marks, strict=True))


# What follows an ordinary word at the beginning of a sentence that is also somebody's name: "Mark the spot", "Rich in iron".
_AFTER = frozenset(
    "the your a an this that it of in to for all any period periods therapy testing panel hips oil flags down blood labs"
    " him her knife".split()
)
_QUALITIES = frozenset(
    "rich frank sunny hardy stark sterling patience grace faith hope joy drew sue jack mark bill pat skip".split()
)


def _opening(words: Sequence[Token], at: int) -> bool:
    """An ordinary word with a capital only because the sentence begins there: "Grace period", "Rich, fatty meals"."""
    if at and words[at - 1].word not in '.!?:\n"“-':
        return False
    low = words[at].word.lower()
    if (low not in _QUALITIES and lists.tiers().get(low, lists.OPEN) not in "012345") or at + 1 >= len(words):
        return False
    after = words[at + 1].word
    if after == "," and low in _QUALITIES and at + 2 < len(words):
        return words[at + 2].word.islower() and words[at + 2].word not in (
            "please",
            "you",
            "can",
            "could",
            "we",
            "i",
            "thank",
            "thanks",
        )
    return after in _AFTER


_BODIES = frozenset(("child health", "inc", "inc web", "human development", "world bank", "who and world bank"))
_LATIN = frozenset("situ vitro vivo utero facto versus vulgaris spina bifida saliva americas latinas".split())
# What is called after somebody; and bodies whose own name begins with a person's.
_CALLED = frozenset(
    """cell type variant anomaly malformation complex operation technique scan trial study questionnaire inventory model equation
    formula ring rings membrane canal ligament muscle artery vein gland glands space layer fold plexus position incision
    approach repair flap cycle effect law principle region regions phenotype mice rats medium assay software instrument
    sign signs test tests maneuver manoeuvre procedure score scale criteria classification reflex response stain method period
    phenomenon
    contracture deformity nodes nodules spots bodies body tube catheter drain forceps retractor clamp splint stage staging grade
    institute institutes national foundation association society network center library registry database""".split()
)


def _eponym(words: Sequence[Token], last: int) -> bool:
    """ "Marie-Tooth disease", "Farber lipogranulomatosis": what follows says that the name is a disease's, or a body's."""
    for far, token in enumerate(words[last + 1 : last + 4]):
        word, low = token.word, token.word.lower()
        if word in ".,;:(\n":
            return False
        if "D" in lists.marks().get(low, "") or (word.islower() and _MEDICAL_TAIL.search(word) and not _plain(word)):
            return True
        if low in _CALLED and (not far or word[0].isupper()):
            return True
    return False


@lru_cache(maxsize=32_768)
def _plain(word: str) -> bool:
    """An ordinary word, also in a form no list holds: "midwives", "tornadoes"."""
    low, known = word.lower(), lists.tiers()
    ends = (("", ""), ("s", ""), ("es", ""), ("ves", "fe"), ("ves", "f"), ("ies", "y"))
    forms = (low.removesuffix(end) + other for end, other in ends if low.endswith(end))
    return any(known.get(form, lists.OPEN) in "01234" for form in forms if len(form) > 2)


@lru_cache(maxsize=4096)
def _people(word: str) -> bool:
    """Koreans, Jordanian: who lives in a country."""
    stem = re.sub("(?:ians?|ans?|ese|ish|is)$", "", word.lower())
    return stem != word.lower() and len(stem) > 3 and any(country.startswith(stem) for country in lists.lines("countries.txt"))


@lru_cache(maxsize=32_768)
def _term(word: str, mark: str, medical: bool) -> bool:
    if _DRUG.search(word):
        return True
    if medical and ((word.isupper() and len(word) < 7) or word.lower() in _LATIN):
        return True
    if set(mark) & set("QDNM") or len(word) < 3:
        return True
    if mark:
        return False
    if _plain(word) or _ABBREVIATION.fullmatch(word):
        return medical or not word[0].isupper() or lists.tiers().get(word.lower(), lists.OPEN) in "012"
    return medical and _MEDICAL_TAIL.search(word) is not None
