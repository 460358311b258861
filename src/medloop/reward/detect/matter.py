"""Whether an answer is about this question's own matter: the same part of the body, the same patient, something said at all.

    is_other_matter("Half my tooth broke off", "A little discharge from the vagina is normal.")  -> True
    is_other_patient("我奶奶77岁，血压高", "宝妈，不用照蓝光")                                     -> True

An answer that was written for somebody else is a bad answer, and no advice or comfort to this patient. As in `certainty.py`
(whose version counts for this file, too) the cues are loose: what they miss is a verdict, not a penalty.
"""

from functools import lru_cache
from typing import Final

from medloop import lexicon
from medloop.lexicon.numbers import find_ages
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE

BABY: Final = 1.0  # years
# It comes and goes, or has long been so: an illness that needs a doctor, and no hour.
_RECURS: Final = lazy_pattern(
    r"\b(?:every time|each time|always|often|whenever|keeps? (?:happening|coming back)|for (?:months|years))\b"
    r"|每次|每年|总是|经常|老是|最近老|常常|时常|反复|长期|常年"
)
# It is put off, put down to something or played down, or something is to be done at home: "You're a genius" does none of it.
_PLAYS_DOWN: Final = lazy_pattern(
    r"\b(?:tomorrow|tonight|night|morning|lunch\w*|nap|sleep\w*|rest|wait\w*|overnight|a day|coming days|itself"
    r"|(?:a few|couple of|in|for|over|by|next) (?:\w+ )?(?:days?|weeks?|hours?|monday)|pass(?:es)?|wear off|fade\w*"
    r"|settle\w*|no (?:need|rush|reason|cause)|relax|fret|worry|benign|harmless|normal"
    r"|nothing|old|age(?:ing)?|common|calm|fine|better|it'll|tired|supposed to|meant to"
    r"|drink|water|juice|pudding|sips?|lie down|gargle|strip|massage|ice|tablet"
    r"|bugs?|harmed|expected|in the clear|worse than it|case closed|weather|cold|heat|stress\w*|nerves|panic|anxi\w*|hormon\w*)\b"
)
# Whom an answer speaks to or of, and the question does not: then it was written for somebody else.
_CHILD: Final = lazy_pattern(
    r"宝妈|宝宝|孩子|婴儿|小儿|新生儿|\b(?:your|the) (?:baby|toddler|infant|newborn|child|kid|son|daughter)\b"
)
_CHILD_ASKED: Final = lazy_pattern(
    r"宝|孩|婴|儿|娃|(?<!\d)(?:\d|1[0-7])岁|[一二三四五六七八九十]岁|个月|怀|孕|产|(?<!奶)奶(?!奶)|\b(?:bab(?:y|ies)|toddler|infant|newborn|child\w*|kids?|son|daughter|boy|girl|pregnan\w+|breast\w*"
    r"|birth|postpartum|labou?r|(?:year|month|week|day)s?[- ]old|teen\w*|niece|nephew"
    r"|grand\w+|\d+ ?(?:yo|y/o|mo|months?|weeks?|yrs?|years?))\b"
)
_YOUR: Final = lazy_pattern(r"\byour (husband|wife|boyfriend|girlfriend|mother|mom|mum|father|dad|sister|brother|uncle|aunt)\b")
_QUOTES_QUESTION: Final = lazy_pattern('以上是对[“"](.{4,60}?)[”"]这个问题')  # a forum's last line
# Regions of the body. Somebody is comforted about their hand only where the hand, or no other region, is spoken of.
_REGIONS: Final = tuple(
    lazy_pattern(region)
    for region in (
        r"\b(?:head(?:ache)?s?|brain|eyes?|vision|ears?|nose|nosebleeds?|throat|teeth|tooth|gums?|tongue|mouth|lips?|face|jaw)\b"
        r"|头(?!孢)|脑|眼|耳|鼻|喉|咽|嗓|牙(?!膏)|齿|舌|嘴|唇|脸|口腔",
        r"\b(?:chest|heart|lungs?|breath\w*|breasts?|cough\w*)\b|胸|心脏|心慌|心绞|肺|呼吸|喘|咳|乳房|乳腺",
        r"\b(?:belly|stomach|abdom\w+|tummy|bowels?|liver|stools?|vomit\w*|poop?|diarrh\w+)\b"
        r"|腹|肚|胃|肠|肝|胆|脾|胰|大便|便血|呕|拉稀",
        r"\b(?:urine|pee|bladder|kidneys?|vagina\w*|womb|period|penis|testicles?|pregnan\w+|miscarr\w+)\b"
        r"|肾|尿|膀胱|阴道|外阴|子宫|卵巢|月经|例假|白带|睾|前列腺|怀孕|孕|流产|同房",
        r"\b(?:arms?|hands?|fingers?|legs?|calf|calves|feet|foot|toes?|knees?|ankles?|wrists?|shoulders?|hips?)\b"
        r"|手(?![术段续机])|臂|胳膊|腿|脚|膝|趾|手指|肩|踝",
        r"\b(?:back|spine|neck)\b|腰|背|颈|脊",
    )
)


def recurs(question: str) -> bool:
    """Whether a complaint comes and goes, or has long been so."""
    return _RECURS.search(lexicon.folded(question)) is not None


def plays_down(visible: str) -> bool:
    """Whether an English answer puts something off or plays it down, or has a home remedy, whatever it is about."""
    return _PLAYS_DOWN.search(lexicon.folded(visible)) is not None


def is_other_matter(question: str, visible: str) -> bool:
    """Whether both name a part of the body and no region of it is the same, or the answer says which other question it is for."""
    if (quoted := _QUOTES_QUESTION.search(visible)) and not _shares(quoted[1], question):
        return True
    asked, told = _regions(question), _regions(visible)
    return bool(asked and told) and not asked & told


def is_other_patient(question: str, visible: str) -> bool:
    """Whether an answer speaks of a child or a relative, and the question of none, or both of babies of other ages."""
    asked, told = lexicon.folded(question), lexicon.folded(visible)
    if _CHILD.search(told) and not _CHILD_ASKED.search(asked):
        return True
    if (relative := _YOUR.search(told)) and relative[1] not in asked:
        return True
    ages, others = ([age.years for age in find_ages(text)] for text in (asked, told))
    return bool(ages and others) and max(*ages, *others) < BABY and not set(ages) & set(others)


def _shares(quoted: str, question: str) -> bool:
    """Whether half of the pairs of characters of a quoted question are in this one."""
    pairs = {quoted[place : place + 2] for place in range(len(quoted) - 1)}
    return sum(pair in question for pair in pairs) >= len(pairs) / 2


@lru_cache(maxsize=CACHE_SIZE)
def _regions(text: str) -> frozenset[int]:
    folded = lexicon.folded(text)
    return frozenset(index for index, region in enumerate(_REGIONS) if region.search(folded))
