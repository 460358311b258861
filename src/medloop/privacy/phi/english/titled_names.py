"""Names that a title or a label gives away, Chinese and English. Bare names are found by tagger.py and hanzi.py."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
from __future__ import annotations

import re
from collections.abc import Iterator

from medloop.privacy.phi import lists

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
# A form says who: "苏平凡，女，45岁"; "一助：苏平凡；".
_SHEET = re.compile(
    r"(?:^|(?<=[\n。；;：:，, ]))(?P<x>[\u4e00-\u9fff]{2,4})(?=[，,、 ] ?[男女](?:性)?(?:[，,、 ]|\d))"
    r"|(?:姓名|术者|主刀|[一二三]助|助手|联系人|签名|签字|经治医师|主治医师|主管医师|责任护士|记录者?|开嘱|执行人?|核对人?|审核人?|报告人|送检人|申请人|监护人|家属|收件人|户名|陪护)[：:] ?"
    r"(?P<y>[\u4e00-\u9fff]{2,3})(?=[；;，,。、\n ]|$)"
)
_NO_NAME = re.compile(
    "[无不详同见未否待全局已有是阴阳正可的了患病者方老幼青中年入初复例儿]|麻|拒绝|陪同|本人|签字|知情|主诉|现病"
)
_CAP = r"[A-ZÀ-ÖØ-ÞĀ-Ž][a-zß-öø-ÿā-ž'’\-]{1,20}(?:[A-Z][a-zß-öø-ÿā-ž]{1,20})?"
_WHOLE = rf"(?:(?:{_CAP}|[A-Z]\.?|van|von|der|den|de|la|le|di|bin|al)[ \-]){{0,3}}{_CAP}"
_TITLE_EN = "Dr|Mr|Mrs|Ms|Miss|Mx|Prof|Professor|Doctor|Nurse|Sister"
_BEFORE_EN = (
    "[Pp]atient|[Nn]ame|[Aa]ttending|[Pp]hysician|[Pp]rovider|[Ss]urgeon|[Gg]uardian|[Ee]mergency contact|[Ss]igned(?: by)?"
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
_WEAK = "you|worker|from|by|for|with|that|and|to|of|may|can|is|did|does|has"
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
# A name in a place where one is expected: which words it may be made of is asked in `_likely`.
_FULL = rf"{_CAP}(?: [A-Z]\.?)?(?: (?:(?:van|von|de|la|del|di|bin|al|da|dos|el) ){{0,2}}{_CAP}){{0,2}}"
_LEAD = re.compile(r"(?<![\w-])([A-Za-z][A-Za-z\-]*)[,:]?\s\(?(?=[A-Z])")
_NAME = re.compile(rf"(?P<x>{_FULL})(?![A-Za-z])")
_STRONG_WORDS = frozenset(f"{_ROLES}|{_VERBS}".split("|"))
_WEAK_WORDS = frozenset(_WEAK.split("|"))
_PHRASE = re.compile(
    r"(?i:spoke|speaks?|talk|talked|met|discussed|reported|called|signed|seen|accepted|received|booked|thank|social|case) $"
)
_DEGREE = re.compile(rf"(?P<x>{_FULL})(?=,? (?:MD|M\.D\.|RN|LPN|DO|PhD|NP|PA|PA-C|CNA|PharmD|DPT|LCSW)\b)")
_DEGREES = ("MD", "M.D.", "RN", "LPN", "DO", "PhD", "NP", "PA", "CNA", "PharmD", "DPT", "LCSW")
_FIRST = re.compile(
    rf"(?:^|[\n\"“] ?|[.!?] )(?P<x>{_FULL})(?=,? (?:is|was|has|had|called|calls|came|says|said|states|reports|denies|needs|wants|lives|please)\b)"
)
_SURE = re.compile(rf"\b(?P<x>{_CAP} (?:[A-Z]\.? )?{_CAP})(?![A-Za-z\-])")
_SMALL = re.compile(
    r"\b(?=[dDiImMnNtT])(?i:(?P<s>this is|my name is|my name['’]s|name is|i am|i['’]m|it['’]s|dr\.?|mrs?\.?|ms\.?|nurse|doctor|my (?:wife|husband|son|daughter|mom|mother|dad|father|sister|brother|friend)))"
    r",? (?P<x>[a-z][a-z'’\-]{2,20}(?: (?!and\b|at\b|for\b|from\b|the\b|my\b|is\b|was\b|has\b|had\b|said\b|to\b)[a-z][a-z'’\-]{2,20})?)"
)
_UPPER = re.compile(r"(?<![A-Z,] )\b(?P<x>[A-Z][A-Z'’\-]{2,20}, [A-Z][A-Z'’\-]{2,20}(?: [A-Z]\b\.?)?)(?!,? [A-Z]{2})")
_LABELLED = re.compile(
    r"(?:label+ed|label|named?|patient|pt|re|for|chart|band|tube|specimen|of|bed \d{1,3})[:,]? $|(?:^|\n)$", re.I
)
_SYLLABLE = (
    "soo|su|min|ji|hye|hyun|sung|seung|young|yong|jae|jin|joon|jun|kyung|eun|mi|sang|dong|tae|woo|yoo|yu|in|hee|ha|da|bo|chan|byung|ki|kyu|myung|won|yeon|na"
    "|so|seo|ye|do|si|gi|geun|chul|hwa|jung|jeong|jong|joo|ju|kwang|moon|nam|sun|sook|suk|soon|wook|yun|ho|hoon|ah|rae|ri|wan|shik|sik|ok|mei|ling|wei|xiao|li|hui|fang|yan|hong|ming"
)
_SYLLABLES = frozenset(_SYLLABLE.split("|"))
_HYPHEN = re.compile(rf"(?<![\w-])(?P<x>([A-Z][a-z]{{1,5}})-([a-z]{{1,5}}))(?![\w-])(?: (?:[A-Z]\. )?{_CAP})?")
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
        for match in _SHEET.finditer(folded):
            group = "x" if match["x"] else "y"
            if not _NO_NAME.search(match[group]):
                yield match.start(group), match.end(group), "NAME"
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
    if _LATIN.search(folded):
        yield from _english(folded)


def _slots(folded: str) -> Iterator[tuple[bool, re.Match[str]]]:
    """Places where a name is expected, and whether a name alone is (True) or something else is as likely (False)."""
    for lead in _LEAD.finditer(folded):
        word = lead[1].lower().removeprefix("ex-")
        strong = word in _STRONG_WORDS
        if not strong and word not in _WEAK_WORDS:
            continue
        if not strong:
            strong = _PHRASE.search(folded, max(0, lead.start() - 12), lead.start()) is not None
        if match := _NAME.match(folded, lead.end()):
            yield strong, match
    if any(degree in folded for degree in _DEGREES):
        yield from ((True, match) for match in _DEGREE.finditer(folded))
    yield from ((False, match) for match in _FIRST.finditer(folded))


def _english(folded: str) -> Iterator[tuple[int, int, str]]:
    """Names by the place they stand in: behind a role or a verb, before a degree, "LAST, FIRST", in small letters behind a title."""
    if folded.isupper():
        folded = folded.title()
    if not folded.islower():
        for strong, match in _slots(folded):
            end = _name_end(match, strong)
            if end and not _TERM.match(folded, end):
                yield match.start("x"), end, "NAME"
        for match in _SURE.finditer(folded):
            first, last = (match["x"].split()[i].lower() for i in (0, -1))
            if "F" in _mark(first) and "L" in _mark(last) and not _either(first, last) and not _TERM.match(folded, match.end()):
                yield match.start("x"), match.end("x"), "NAME"
        if not folded.isupper():
            for match in _UPPER.finditer(folded):
                words = re.findall(r"[A-Z'’\-]{3,}", match["x"])
                marks = [set(_mark(word.lower())) & set("FL") for word in words]
                led = _LABELLED.search(folded, max(0, match.start() - 16), match.start()) is not None
                led = led and min(map(len, words)) > 3
                if (led or any(marks)) and not any(
                    set(_mark(word.lower())) & set("QDNKS" if led else "QMDNKS") for word in words
                ):
                    yield match.start("x"), match.end("x"), "NAME"
        for match in _HYPHEN.finditer(folded) if "-" in folded else ():
            if match[2].lower() in _SYLLABLES and match[3] in _SYLLABLES:
                yield match.start(), match.end(), "NAME"
    for match in _SMALL.finditer(folded):
        if end := _small_end(match):
            yield match.start("x"), end, "NAME"


# What makes the two words before it a disease, a scale, an institute.
_TERM = re.compile(
    r"(?:['’]s?)?[ -](?:[a-z]{1,15} )?(?:disease|syndrome|sign|test|scale|score|criteria|lymphoma|virus|disorder|procedure|maneuver|operation|method|trial|study|palsy|ataxia"
    r"|dystrophy|institute|foundation|hospital|university|clinic|classification|staging|reaction|stain|phenomenon|plot|curve)",
    re.I,
)


def _mark(word: str) -> str:
    return lists.marks().get(word, "")


def _either(first: str, last: str) -> bool:
    """Two words that are both ordinary, or terms: "Will May", "Black Death", "Iron Deficiency"."""
    common = lists.tiers()
    if set(_mark(first) + _mark(last)) & set("MDNKRBT") - {"R"} or first in _STOP or last in _STOP:
        return True
    return common.get(first, lists.OPEN) in "01" and common.get(last, lists.OPEN) in "01"


def _name_end(match: re.Match[str], strong: bool) -> int:
    """Where the name of a slot ends: its words as long as they can be a name's, 0 where not even the first can."""
    words = list(re.finditer(r"[^ ]+", match["x"]))
    lows = [re.sub(r"(?:['’]s|\.)$", "", word[0]).lower() for word in words]
    end = 0
    for at, (word, low) in enumerate(zip(words, lows, strict=True)):
        if len(low) == 1 or low in _PARTICLES:
            continue
        if not (_likely(low, strong) or _beside(lows, at, strong)):
            break
        end = match.start("x") + word.end()
    return end


def _beside(lows: list[str], at: int, strong: bool) -> bool:
    """A word that is ordinary by itself, beside one that is a name: "Summer L. Ott", "Ivy Paget"."""
    low = lows[at]
    if low in _STOP or _SHORTENED.match(low) or set(_mark(low)) & set("DNK"):
        return False
    if at:
        return bool(set(_mark(low)) & set("FLQ")) or strong
    initial = len(lows) > 2 and len(lows[1]) == 1
    return (
        strong
        and len(lows) > 1
        and (initial or bool(set(_mark(lows[-1])) & set("LQ")) or lists.tiers().get(lows[-1], lists.OPEN) == lists.OPEN)
        and lows[-1] not in _STOP
    )


_LATIN = re.compile(r"[A-Za-z]{3} [A-Za-z(]|[A-Za-z], [A-Z]")
_PARTICLES = frozenset("van von de la del di bin al da dos el der den le".split())
_STOP = frozenset(word.lower() for word in _EN_STOP) | frozenset(
    """will can could should would shall might must does did do has have had be been being so as an a or nor yet per via no ok okay
    mg am pm er icu iv po she he his her their our new next last first second team staff care home health lab labs unit floor room
    manager google pharmacy radiology nursing services department education portal safety
    window group plan general regional memorial city county state states north south east west side park street blue code""".split()
)


def _likely(low: str, strong: bool) -> bool:
    """Can this be somebody's name where one is expected? Listed ones, and words that nobody uses for anything else."""
    mark, tier = set(_mark(low)), lists.tiers().get(low, lists.OPEN)
    if low in _MONTHS:
        return strong and low in ("april", "may", "june", "august")
    if low in _STOP or _SHORTENED.match(low) or mark & set("DNKSR") or ("Q" in mark and not mark & set("FL")):
        return False
    if not strong:
        return "F" in mark and "C" not in mark and tier in (lists.OPEN, "5")
    if mark & set("FL"):
        return tier not in "01" or "F" in mark
    return (
        tier in (lists.OPEN, "5")
        and "C" not in mark
        and low.replace("-", "").isalpha()
        and len(low) > 2
        and not _DRUG.search(low)
    )


_SHORTENED = re.compile("(?:i|it|we|you|he|she|they|that|there|what|who|how|let|here)['’]|.+n['’]t$")  # I'm, let's, can't
_MONTHS = frozenset("january february march april may june july august september october november december".split())
_DRUG = re.compile(
    r"(?:cillin|mycin|statin|sartan|pril|olol|azole|dipine|zepam|oxacin|gliptin|glutide|caine|farin|mab|nib|itis|osis|emia|ectomy|pathy|algia|profen|phen|oxetine"
    r"|therapy|ology|ologists?|icians?|ists|scopy|gram|graphy|tumors?|omas?|virus|ylic|amine|ergic|ative|ation|ations|ings?|ness|ment|ism)$"
)
_MEDICAL = re.compile(
    r"(?:itis|osis|emia|aemia|oma|omas|pathy|algia|ectomy|otomy|oscopy|uria|penia|cillin|mycin|statin|sartan|pril|olol|azole|dipine|zepam|pam|lam|oxacin|gliptin"
    r"|glutide|caine|farin|vir|mab|nib|ine|ide|ate|one|ol|al|ium|cin|xin|gram|graphy|logy|logist|logic|therapy|ic|ics|ous|in|en|fen|phen|statins|oxetine|pine|done|zole|ex|ax|ix|or|il)$"
)


def _small_end(match: re.Match[str]) -> int:
    """As `_name_end` for small letters: "dr. nakamura", "this is kwame boateng". One of two words must be in a list of names."""
    words = list(re.finditer(r"[^ ]+", match["x"]))
    titled = match["s"].lower().rstrip(".") in ("dr", "mr", "mrs", "ms", "nurse", "doctor")
    kept = []
    for word in words:
        low = word[0].lower().removesuffix("'s").removesuffix("’s")
        tier, listed = lists.tiers().get(low, lists.OPEN), bool(set(_mark(low)) & set("FL"))
        if (
            low in _STOP
            or tier in "01"
            or not (listed or (tier == lists.OPEN and not _MEDICAL.search(low)))
            or set(_mark(low)) & set("MDNQKS")
        ):
            break
        kept.append((word.end(), listed, tier))
    if not kept:
        return 0
    unknown = all(tier in (lists.OPEN, "5") for _, _, tier in kept)
    if titled or (len(kept) == 2 and (unknown or any(listed for _, listed, _ in kept))):
        return match.start("x") + kept[-1][0]
    return match.start("x") + kept[0][0] if kept[0][1] and kept[0][2] in (lists.OPEN, "5") else 0


def bare(name: str) -> str:
    """The name without title and degree."""
    return _TITLES.sub("", _TITLES.sub("", name)).strip()
