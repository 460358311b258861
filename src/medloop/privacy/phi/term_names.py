"""Words of medicine that are somebody's name, too, where the sentence puts a person: 我女儿夏天发烧了, "My name is Penrose".

A word in the lists of medicine is left alone (allowed.py). What is found here is replaced all the same: a lost word of medicine costs
less than a name that stays.
"""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Iterator

from medloop.privacy.phi import lists
from medloop.privacy.phi.allowed import is_illness
from medloop.privacy.phi.english.name_words import SENTENCE_WORDS
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import ORDINARY, WordList, is_listed, tier
from medloop.privacy.phi.normalize import MASK
from medloop.privacy.phi.rules import Finder, spans_where
from medloop.privacy.phi.spans import Span

# Chinese words of our list of medicine that people are called by.
_SEASONS = "夏天|盛夏"  # when, too: 我妈夏天经常头晕
_PIMPLES = "痘痘"  # what somebody has, too: 我女儿痘痘发炎
_OTHERS = "李子|雪莲|曲靖|双花|空军|白醋|祖国|盛世|雪樱花|初染|鲍鱼|杨梅|梅花|丁香|玉竹|远志|泽兰|佩兰|连翘|杜仲|柴胡|白芷|白术|白芍|黄芪|当归|陈皮|石斛|苏叶|桂枝|桑叶|柳絮|柳树|秋凉|王道|江南|满月|花椒|山楂|胡桃|黄桃|贡菊|红花|常山|安宝|怡宝"
_ANY = f"(?:{_SEASONS}|{_PIMPLES}|{_OTHERS})"
_WORD = f"(?:{_PIMPLES}|{_OTHERS})"
_START = r"(?:^|(?<=[。！？!?;\n:,、\s(\"“@]))"
_END = r"(?=[,。;、/()!?！？\s]|$)"
_LABEL = "姓名|名字|签名|签字|代签人?|记录[人者]?|审核人?|医师|医生|护士|护师|术者|主刀|助手|监护人|联系人|家属|亲属|患者|病人|患儿|就诊人|预约人|挂号人|申请人|收件人|陪护|称呼|昵称|小名|大名"
_KIN = "(?:爸爸?|妈妈?|父亲|母亲|爷爷?|奶奶?|外公|外婆|姥姥|姥爷|公公|婆婆|岳父|岳母|丈夫|妻子|太太|爱人|老公|老婆|老伴|儿子|女儿|闺女|孙子|孙女|外孙女?|外甥女?|侄子|侄女|儿媳妇?|女婿|媳妇|哥哥?|弟弟?|姐姐?|妹妹?|嫂子|舅舅?|舅妈|姨妈?|姑姑?|姑妈|叔叔?|伯伯?|婶婶?|朋友|同事|同学|室友|邻居|闺蜜|男友|女友|家|娃|孩子|宝宝|患儿|小孩)"
_AILS = "发烧|发热|高烧|低烧|肚子|拉肚|腹[痛泻胀]|头[痛疼晕]|胸[痛闷]|咳|呕|吐|感冒|摔|住院|出院|入院|抽搐|昏|晕|高血压|糖尿|痛风|中风|心[脏梗慌]|怀孕|流产|骨折|手术|失眠|哮喘|肺炎|腰|膝|体温|血[压糖氧]"
_SAYS = "说|诉|问|表示|反映|觉得|告诉|来电|打电话|来复[诊查]|来就诊|来院|来看病|要求|拒绝"
_DAY = "(?:今[天晨早晚日]|昨[天晚日夜]|前天|上周|最近|刚刚?|突然|一直|已经|又|也|还|今年)"
_PARENT = "妈妈?|爸爸?|奶奶|爷爷|外婆|外公|姥姥|姥爷|家长|家属"

_ZH = (
    # 姓名：夏天; 家属李子签字; 3床李子血压偏高
    lazy_pattern(rf"(?:{_LABEL})[:是为] {{0,3}}(?P<name>{_ANY}){_END}"),
    lazy_pattern(rf"(?:家属|护士|护工|联系人|患者|病人|患儿)(?P<name>{_WORD})(?={_DAY}?(?:{_AILS}|{_SAYS})|[签在同已])"),
    lazy_pattern(rf"(?:家属|护士|护工|联系人|患者|病人|患儿)(?P<name>{_SEASONS})(?={_SAYS}|[签同])"),
    lazy_pattern(rf"\d床[:, ]?(?P<name>{_ANY})(?!吃|喝|过)"),
    # 我叫夏天; 我是雪莲，
    lazy_pattern(
        rf"(?:我|本人|[他她]|孩子|宝宝|患者|病人|{_KIN})(?:的?(?:大名|小名|名字)[是叫]|名?叫做?)(?P<name>{_ANY})(?:{_END}|(?=今年|\d|的|说|因|有|最近))"
    ),
    lazy_pattern(rf"(?:我是|这是)(?P<name>{_ANY})(?=[,。!！]|$|的?(?:{_PARENT}))"),
    # 我女儿夏天发烧了; 我朋友李子昨天住院
    lazy_pattern(rf"[我他她俺你您]的?{_KIN},? ?(?P<name>{_OTHERS})(?={_DAY}?(?:{_AILS}|{_SAYS})|{_DAY}?得了|[,(]? ?\d{{1,3}}岁)"),
    lazy_pattern(rf"[我他她俺你您]的?{_KIN},? ?(?P<name>{_SEASONS})(?=(?:今[天晨早]|昨[天晚]|突然|又)?(?:{_AILS})|{_SAYS}|[,(]? ?\d{{1,3}}岁)"),
    lazy_pattern(
        rf"[我他她俺你您]的?{_KIN}(?P<name>{_PIMPLES})(?={_DAY}?(?:发烧|发热|拉肚|拉稀|腹泻|咳|呕|吐|肚子|头[痛疼晕]|感冒|摔|住院|哭|闹|{_SAYS})|[,(]? ?\d{{1,3}}岁)"
    ),
    # 请夏天到3号诊室就诊; 痘痘妈妈，孩子…
    lazy_pattern(rf"请(?P<name>{_ANY})(?:到|来|至|前往)(?=[^,。;!?\n]{{0,8}}(?:诊室|窗口|楼|病房|科|处|就诊|取药|抽血|采血))"),
    lazy_pattern(rf"{_START}(?P<name>{_WORD})(?=(?:{_PARENT})[,:!。您你好说请])"),
    # 夏天说她头痛; 雪莲昨晚发热; 李子和[NAME_1]都要复查
    lazy_pattern(rf"{_START}(?P<name>{_ANY})(?={_SAYS})"),
    lazy_pattern(rf"{_START}(?P<name>{_OTHERS})(?=(?:今[天晨早日]|昨[天晚日夜])(?:{_AILS}))"),
    lazy_pattern(rf"{_START}(?P<name>{_ANY})(?=[和跟与、]{MASK})"),
    lazy_pattern(rf"{MASK}[和跟与、](?P<name>{_ANY})(?=都|两|也|{_SAYS}|[,。])"),
    lazy_pattern(rf"{_START}(?P<name>{_ANY})(?=[,( ]{{0,2}}[男女](?:性)?[,。 )]|[,( ]{{0,2}}\d{{1,3}}岁)"),
)  # fmt: skip
_ANY_WORD = lazy_pattern(_ANY)

_CAP = r"[A-Z][a-z]{3,20}"
_WHO = r"wife|husband|son|daughter|mother|father|mom|mum|dad|grandmother|grandfather|grandma|grandpa|brother|sister|child|partner|friend|aunt|uncle|niece|nephew|cousin|girlfriend|boyfriend|neighbou?r|baby"
_DOES = r"has|had|is|was|says|said|feels|felt|got|gets|complains|reports|denies|fell|vomited|started|can't|cannot|keeps|went|came|will|needs|wants|told|asked|states|thinks"
_EN_ALONE = (
    lazy_pattern(r"\b(?i:my|his|her|the patient['’]s|patient['’]s) (?i:full |last |first |sur)?(?i:name)(?: is|['’]s|:) (?P<name>[A-Za-z]{4,21})(?=[.,;!)\n]|$| and\b| I\b| from\b)"),
    lazy_pattern(rf"(?:(?:^|(?<=[\n;,.|]))[ ]?|\b(?:[Pp]atient|[Ff]ull|[Ll]ast|[Ff]irst|[Cc]lient|[Pp]t)['’]?s? )(?:[Nn]ame|NAME|[Ss]urname)(?: is)?: ?(?P<name>{_CAP})(?=[.,;)\n|]|$| (?:[A-Z]|\d))"),
    lazy_pattern(rf"\b(?:I am|I['’]m) (?P<name>{_CAP})(?=,? (?:\d{{1,3}}\b(?! ?m?g\b)|a \d|an? (?:\d|male|female|man|woman|patient|nurse|doctor)|from|and I)|[.!]|$)"),
    lazy_pattern(rf"\b[Tt]his is (?P<name>{_CAP})(?=,? (?:calling|speaking|from|again|I am|I['’]m))"),
    lazy_pattern(rf"\b(?:[Mm]y|[Hh]is|[Hh]er|[Oo]ur) (?:{_WHO}),? (?P<name>{_CAP})(?=,? (?:{_DOES})\b|, (?:\d|who\b))"),
    lazy_pattern(rf"\b(?:[Ss]poke|[Ss]peak|[Ss]poken|[Tt]alked|[Mm]et|[Dd]iscussed) (?:with|to) (?P<name>{_CAP})(?= (?:by|over|on|about|today|yesterday|regarding|who|this|and|at|in)\b|[.,]|$)"),
    lazy_pattern(rf"(?:^|(?<=[.!?\n] )|(?<=\n))(?P<name>{_CAP})(?= (?:said|says|denies|denied|complains|complained|states|stated|told|feels|thinks|asked|asks|endorses)\b|,? \(?\d{{1,3}},? ?(?:[MF]\b|male|female|man|woman|boy|girl|y/?o\b|years?[ -]old|yrs?\b))"),
    lazy_pattern(rf"\b(?:[Ss]igned(?: by)?|[Ss]incerely|[Rr]egards|[Tt]hanks|[Tt]hank you|[Cc]heers|[Yy]ours|[Bb]est wishes)[,:]?\s{{1,2}}(?P<name>{_CAP})(?=[.!]?\s*$|, (?:MD|RN|NP|PA|DO)\b)"),
)  # fmt: skip
_EN_SURNAME = lazy_pattern(
    rf"(?<![\w-])(?P<name>(?P<first>[A-Z][a-z]{{2,15}}) {_CAP})(?=,? \(?\d{{1,3}}(?:\)|,|\.?$|;|\n| ?(?:[MF]\b|male|female|y/?o\b|years?|yrs?)))"
)
_PATIENT = lazy_pattern(
    rf"(?:^|(?<=\n))(?:Patient|Pt|Client|Resident): ?(?P<name>{_CAP})(?=\.?\s*$|[,;(\n]| (?:\d|has|is|was)\b)"
)
_TALK = lazy_pattern(r"(?:^|\n)(?:Doctor|Dr|Clinician|Nurse|Physician|Guest)[\w .]{0,20}:", re.I)
_TERMS = frozenset({WordList.MEDICAL_NAME})
_FIRST_NAME = frozenset({WordList.FIRST_NAME})


def _is_term_or_name(word: str) -> bool:
    """A word of medicine that is no ordinary word and no illness, so a brand or an eponym: "Penrose", "Nivea"."""
    lower = word.lower()
    if tier(lower) in ORDINARY or is_illness(lower) or word.title() in SENTENCE_WORDS:
        return False
    return lower in lists.medical_words() or lower in lists.eponyms() or is_listed(lower, _TERMS)


def _find_chinese(text: str) -> Iterator[tuple[int, int]]:
    if _ANY_WORD.search(text):
        for regex in _ZH:
            yield from (match.span("name") for match in regex.finditer(text))


def _find_english(text: str) -> Iterator[tuple[int, int]]:
    for regex in _EN_ALONE:
        for match in regex.finditer(text):
            if _is_term_or_name(match["name"]):
                yield match.span("name")
    for match in _EN_SURNAME.finditer(text):
        if is_listed(match["first"].lower(), _FIRST_NAME) and _is_term_or_name(match["name"].split()[1]):
            yield match.span("name")
    if not _TALK.search(text):  # there "Patient: Zoloft." answers a question
        yield from spans_where(_PATIENT, text, lambda start, end: _is_term_or_name(text[start:end]))


FINDERS = (
    Finder("Chinese word of medicine in a person's place", "NAME", ("姓名：{夏天}", "我女儿{夏天}发烧了", "请{李子}到3号诊室"), _find_chinese),
    Finder("English word of medicine in a person's place", "NAME", ("My name is {Penrose}.", "My wife {Nivea} has a rash"), _find_english),
)  # fmt: skip


def find(folded: str, has_han: bool, has_latin: bool) -> Iterator[Span]:
    chinese, english = FINDERS
    for finder in [chinese] * has_han + [english] * has_latin:
        for start, end in finder.find(folded):
            yield start, end, finder.kind
