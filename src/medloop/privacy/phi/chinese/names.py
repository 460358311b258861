"""Chinese names: what the network takes for a name, its exact extent, and how sure the network must be in each situation.

`SITUATIONS` is the table, in the order in which the rows are tried: the first that applies says how sure.
"""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from medloop.privacy.phi import lists
from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.chinese.network import NameNetwork, ids_of, load

_HAN = re.compile(r"[\u3400-\u9fff]")
_INSIDE_NAME = re.compile(r"[\u3400-\u9fff·•]")
_HOT = -2.7  # the logit from which a character is looked at, a probability of about 0.06
_SECOND, _FURTHER = 0.08, 0.1  # the probability with which a name continues, to two characters and beyond
_CERTAIN = 0.95
_COMMENT = 60  # characters; in a text so short, a cheap look may save the network
NEVER = 2.0  # no network is as sure as that
_SIGNS = "，。：；、,:;（）() \n"
_BEFORE_SURNAME = "老小阿姓大"
_ILLNESS = re.compile("[胃肝肾肺脾肠癌炎症痛痒霉菌毒尿肿瘤疹疮疡痔痰咳喘泻药髂癜痣瘢脉栓膏]")
_TAKES = re.compile("(?:服用|口服|服食|服|吃了|吃|涂抹?|外用|使用|注射|静滴|含服)(?:点|些|的)?$")
_BRAND = re.compile(r"[片囊膏液粒剂丸浆散素针]\($")
_REMEDY = re.compile("[丸霜散汤](?![一-鿿])|.(?:病(?![情历人房程])|综合征|综合症|[动静]脉|胶囊|颗粒|栓)")
_FUNCTION = "的是和了在也有不我你他她就都来去说到与及请找给对跟同让叫把被这那又还已从为将想要能可后前上下时一"
_PATIENT = frozenset(("患者", "病人", "患儿", "产妇", "家属", "死者", "伤者"))
_CHILD_WORDS = frozenset(("儿子", "儿童", "儿科", "儿女", "儿媳", "儿时", "儿茶"))
_TITLE = re.compile(
    "医生|医师|大夫|主任|护士|先生|女士|小姐|教授|院长|阿姨|大爷|大妈|老师|药师|同志|奶奶|爷爷|叔叔|师傅|同学|警官|律师|经理|主治"
)
# What a surname alone may be followed by.
_BEHIND_SURNAME = re.compile(
    f"{_TITLE.pattern}|叔|姐|哥|总|姨|婶|嫂|伯|老板|工|处长|科长|队长|会计|秘书|太太|某|氏|老|公|主管|技师|博士|院士|大姐|大哥"
    "|大娘|大叔|姥|医|护|副"
)
# Who somebody is, right before the name.
_ROLE = re.compile(
    "(?:姓名|[弟妹哥姐姑舅]{2}|姨妈|伯母|婶婶|丈夫|妻子|爱人|老公|老婆|儿子|女儿|同事|朋友|同学|护工|家属|邻居|保姆|男友|女友|助手|术者|一助|二助|陪护|访者|询者"
    r"|表[哥弟姐妹]|堂[哥弟姐妹]|姐夫|妹夫|舅妈|[大二三四小][姨叔舅姑]|岳[父母]|太太|闺女|老伴|侄女|甥女|村医|护理员|护师|教授|大夫|我爸|我妈|器械|麻醉|巡回|患儿|孕妇|产妇|转告|转入|新收|\d床|通知|感谢|随访|申请人|投诉人|投诉者|联系人|监护人|代理人|侄子|外甥|孙子|孙女|儿媳|女婿|母亲|父亲|妈妈|爸爸|奶奶|爷爷|外婆|外公|老师|叫|名叫|叫做|死者|伤者|房东|司机|工友|战友|室友|队友|[：:] ?)$"
)
# What persons do or are, right behind the name.
_SAYS = re.compile("觉得|认为|说|表示|讲|反映|提到|问|告诉|要求|希望|担心|建议|反馈|来电|打来|诉|称")
_PERSON_BEHIND = re.compile(rf"{_SAYS.pattern}|{_TITLE.pattern}|[，,（( ]?(?:男|女)[，,。 )）]|[，,（( ]?\d{{1,3}}岁")
_TITLED_BEHIND = re.compile(rf"{_TITLE.pattern}|[，,（( ]?(?:男|女)[，,。 )）]|[，,（( ]?\d{{1,3}}岁")
# A week, a company, a speaker's own: the surname belongs to the character before it.
_WORD_ACROSS = re.compile(
    "[上下本每这那一二两三四五六七八九十几多双单半]周|[我贵公该]司|[分小一]时|[不未]曾|[同每]房|[医]师|[小厅]车|[过全日历工]程|[不]安|[可]能"
)
_WEEKDAY_WISH_OR_TOWN = re.compile(
    "周[一二三四五六日末]|祝[健您你早好平愉顺生一]|吉林|南京|宣武|温州|康复|安徽|江苏|江西|青海|云南|贵州|石家庄|常州|金华"
    "|陆军|连云港|安阳|小梁|张冠李戴"
)
# Words of records and letters about a person; in such a text a name is likelier than in an article or an exam question.
_RECORD = re.compile(
    r"姓名|家属|[我他她]叫|叫做|名叫|本人|签名|签字|签署|\d床|床号|收件|收货|快递|地址|邮箱|户名|登记号|护照|来电|查房|值班|随访"
    r"|交班|转账|退款|参保|身份证|手机|电话|住院号|门诊号|病历号|病案号|挂号|的号|我(?:爱人|丈夫|妻子|外甥|同事)|护士|助手|执笔|伤者"
    r"|见证|\d{7}|[患病][者人][^的可应有在，,。]{2,3}[，,]|尊敬的|投诉|转告|陪同|先生|女士|@"
)


_PERSON_WORD = re.compile("叫|请|患儿|产妇|孕妇|病人|患者|闺女|儿子|女儿|侄|甥|大叔|大爷|大妈|阿姨|主刀|一助|·")


def find(text: str, about_person: bool = False, network: NameNetwork | None = None) -> tuple[list[tuple[int, int]], float]:
    """The names of a folded text, and how close the best of what was left came to being one (0 to 1).

    `about_person`: the text is known to be about a person, so that less is asked of a name.
    """
    if not _HAN.search(text) or (len(text) < _COMMENT and not about_person and not _may_name_somebody(text)):
        return [], 0.0
    network = network or load()
    ids, offsets = ids_of(text, network.table)
    logits = network.scores(ids)
    hot = (logits[:, 1:].max(axis=1) - logits[:, 0] >= _HOT).nonzero()[0].tolist()
    if not hot:
        return [], 0.0
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    inside, begins = (1 - probabilities[:, 0]).tolist(), probabilities[:, 1].tolist()
    spans = _grow(text, inside, begins, offsets.tolist(), hot)
    return _choose(text, spans, about_person or bool(_RECORD.search(text)))


def _may_name_somebody(text: str) -> bool:
    """Whether there is a word of records, or a surname that belongs to no ordinary word."""
    if _RECORD.search(text) or _PERSON_WORD.search(text):
        return True
    single, double = _surnames()
    words = ordinary_words()
    for index in range(len(text) - 1):
        pair = text[index : index + 2]
        if text[index] in single or pair in double:
            in_word = pair in words and (text[index + 1 : index + 3] in words or text[index + 2 : index + 3] < "\u3400")
            if not (text[index + 1] < "\u3400" or in_word):
                return True
    return False


def _grow(
    text: str, inside: Sequence[float], begins: Sequence[float], offsets: Sequence[int], hot: Sequence[int]
) -> list[tuple[int, int, float]]:
    """From each hot character to the end of the name: start, end and the highest probability in it."""
    spans, done = list[tuple[int, int, float]](), 0
    for first in hot:
        if first < done or not _HAN.match(text, offsets[first]):
            continue
        last = first + 1
        while (
            last < len(inside)
            and offsets[last] == offsets[last - 1] + 1
            and begins[last] < 0.5
            and _INSIDE_NAME.match(text, offsets[last])
            and inside[last] >= (_SECOND if last - first < 2 else _FURTHER)
        ):
            last += 1
        start, end = _whole(text, offsets[first], offsets[last - 1] + 1)
        spans.append((start, end, max(inside[first:last])))
        done = last
    return spans


def _whole(text: str, start: int, end: int) -> tuple[int, int]:
    """With the surname before it, without a title, and a surname without a title with one character more."""
    if start and not surname_length(text, start):
        if surname_length(text, start - 1) == 1:
            start -= 1
        elif start > 1 and surname_length(text, start - 2) == 2:
            start -= 2
    for index in range(start + 1, end):
        if _TITLE.match(text, index):
            return start, index
    if end - start == 2 and text[end : end + 1] == "儿" and text[end : end + 2] not in _CHILD_WORDS:
        end += 1
    if end - start == 1 and end < len(text) and surname_length(text, start) and _HAN.match(text[end]):
        end += not (_BEHIND_SURNAME.match(text, end) or (start and text[start - 1] in _BEFORE_SURNAME))
    return _without_words(text, start, end)


def _without_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Without a character of the word before, and without a whole word behind: (老公)梁燕, 胡龙(心理)."""
    if end - start > 2 and start and is_pair(text, start - 1, often=True) and surname_length(text, start + 1):
        start += text[start - 1] not in _FUNCTION
    if end - start > 3 and is_pair(text, end - 2, often=True):
        end -= 2
    return start, end


def _choose(text: str, spans: Sequence[tuple[int, int, float]], in_record: bool) -> tuple[list[tuple[int, int]], float]:
    # Where one person is named for certain, others are likely.
    in_record = in_record or any(best >= _CERTAIN and _threshold(text, start, end, False) <= 0.6 for start, end, best in spans)
    names, nearest = list[tuple[int, int]](), 0.0
    for start, end, best in spans:
        threshold = _threshold(text, start, end, in_record)
        if best >= threshold:
            names.append((start, end))
        elif (
            end - start > 1
            and threshold < NEVER
            and not _is_everyday(text, start, end)
            and not is_term(text, (start, end, "NAME"))
        ):
            nearest = max(nearest, best / threshold)
    return names, nearest


class NameCandidate:
    """Characters `start` to `end`, which the network takes for a name."""

    __slots__ = ("end", "has_role", "has_surname", "is_blocked", "size", "start", "text")

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.start, self.end, self.size = text, start, end, end - start
        self.has_role = start > 1 and _ROLE.search(text, max(0, start - 4), start) is not None
        self.has_surname = surname_length(text, start) > 0
        self.is_blocked = _begins_blocked_word(text, start) or _is_across_word(text, start)

    def behind(self, count: int = 1) -> str:
        return self.text[self.end : self.end + count]

    def before(self, count: int = 1) -> str:
        return self.text[max(0, self.start - count) : self.start]


class Situation(NamedTuple):
    name: str
    example: str
    """The candidate is in braces."""
    applies: Callable[[NameCandidate], bool]
    threshold: float
    """The probability from which the candidate is a name."""
    in_record: float
    """The same in a record or letter about a person."""


def _is_led(name: NameCandidate) -> bool:
    """Whether a role before it, a title, sex or age behind it, or signs to both sides say that this is a person."""
    if name.has_role and name.before() not in ":： ":
        return True
    if name.before(2) in _PATIENT and name.behind() in _SIGNS:
        return True
    if _TITLED_BEHIND.match(name.text, name.end):
        return True
    return name.size > 2 and name.behind() in _SIGNS and name.before() in _SIGNS


def _is_taken_or_ill(text: str, start: int, end: int) -> bool:
    """A drug that somebody takes, a brand in brackets behind its substance, or characters of illness: 口服(舒婷), 乳膏(艾洛松)."""
    return bool(
        _ILLNESS.search(text, start, end)
        or _TAKES.search(text, max(0, start - 4), start)
        or _BRAND.search(text, max(0, start - 2), start)
    )


def _is_in_frequent_pair(name: NameCandidate) -> bool:
    """Whether it is, or is cut out of, characters that often stand side by side: 矫正, (亲)戚家, 许多(水)."""
    text, start, end = name.text, name.start, name.end
    if (name.size == 2 and is_pair(text, start, often=True)) or _is_taken_or_ill(text, start, end):
        return True
    if name.before(2) in _PATIENT and name.has_surname and not is_pair(text, start):
        return False
    is_word = (
        is_pair(text, start)
        or _REMEDY.match(text, end - 1) is not None
        or is_term(text, (start, start + 2, "NAME"))
        or (name.size > 2 and (is_pair(text, end - 2, often=True) or is_term(text, (start + 1, end, "NAME"))))
        or (start > 0 and text[start - 1] not in _FUNCTION and is_pair(text, start - 1))
        or (name.size < 3 and text[end : end + 1] not in _FUNCTION and is_pair(text, end - 1, often=True))
    )
    return is_word and not _is_led(name)


def _is_long_blocked(name: NameCandidate) -> bool:
    return _begins_blocked_word(name.text, name.start, 3)


def _is_blocked_person(name: NameCandidate) -> bool:
    ends = name.behind() in _SIGNS  # also at the end of the text
    led = name.has_role and (ends or name.before() not in ":：")
    return name.is_blocked and (led or bool(_PERSON_BEHIND.match(name.text, name.end)))


def _is_blocked_alone(name: NameCandidate) -> bool:
    alone = name.size == 3 and name.behind() in _SIGNS
    return name.is_blocked and alone and (name.before() in _SIGNS or name.before(2) in _PATIENT)


def _has_blocked_inside(name: NameCandidate) -> bool:
    inside = range(name.start + 1, name.end)
    return not name.has_surname and any(
        _begins_blocked_word(name.text, index) or _is_across_word(name.text, index) for index in inside
    )


def _is_hidden(name: NameCandidate) -> bool:
    return name.text[name.start + 1 : name.start + 2] == "某"


def _is_bare_surname(name: NameCandidate) -> bool:
    return name.size == 1 and not _BEHIND_SURNAME.match(name.text, name.end)


def _is_nickname(name: NameCandidate) -> bool:
    led = name.start > 0 and name.before() in _BEFORE_SURNAME
    return _is_bare_surname(name) and led and not (name.start > 1 and _HAN.match(name.text[name.start - 2]))


def _is_weekday_wish_or_town(name: NameCandidate) -> bool:
    return _WEEKDAY_WISH_OR_TOWN.match(name.text, name.start) is not None


def _is_word(name: NameCandidate) -> bool:
    return name.text[name.start : name.end] in ordinary_words()


def _is_in_word(name: NameCandidate) -> bool:
    """Whether this is the beginning of an ordinary word, or cut out of one."""
    text, start, end, words = name.text, name.start, name.end, ordinary_words()
    return (
        text[start : end + 1] in words
        or text[start : end + 2] in words
        or text[start : start + 2] in words
        or (start > 0 and text[start - 1 : start + 1] in words)
        or text[end - 1 : end + 1] in words
    )


def _says_something(name: NameCandidate) -> bool:
    return bool(_SAYS.match(name.text, name.end)) and not _is_in_word(name)


SITUATIONS = (
    Situation("herb or drug of three characters", "口服{何首乌}", _is_long_blocked, NEVER, NEVER),
    Situation("term that can be a name, with a role or a title", "我问了{高敏}护士", _is_blocked_person, 0.3, 0.3),
    Situation("term and one character more, between signs", "患者{高热明}，", _is_blocked_alone, 0.9, 0.9),
    Situation("term that begins with a surname", "{高敏}体质", lambda name: name.is_blocked, NEVER, NEVER),
    Situation("no surname, with a term inside", "此{刻高热}", _has_blocked_inside, NEVER, NEVER),
    Situation("part of a frequent pair of characters", "牙齿{矫正}器", _is_in_frequent_pair, NEVER, NEVER),
    Situation("no surname", "找{扎西}看病", lambda name: not name.has_surname, 0.95, 0.7),
    Situation("name that is hidden already", "{郑某}来诊", _is_hidden, NEVER, NEVER),
    Situation("surname behind 老 or 小", "，老{汪}来了", _is_nickname, 0.5, 0.5),
    Situation("surname alone", "问{汪}吧", _is_bare_surname, 0.9, 0.9),
    Situation("weekday, wish or town", "{金华}人", _is_weekday_wish_or_town, 0.97, 0.97),
    Situation("ordinary word of three characters", "，{植物油}，", lambda name: name.size >= 3 and _is_word(name), 0.97, 0.97),
    Situation("ordinary word behind a role", "我同事{文安}", lambda name: name.has_role and _is_word(name), 0.15, 0.15),
    Situation("ordinary word", "很{舒心}", _is_word, NEVER, 0.9),
    Situation("somebody who says something", "但{彭龙}觉得", _says_something, 0.06, 0.06),
    Situation("behind a role", "一助{彭龙}", lambda name: name.has_role, 0.12, 0.12),
    Situation("part of an ordinary word", "{高挑明}吧", _is_in_word, 0.93, 0.5),
    Situation("anything else with a surname", "请{彭龙}来", lambda _: True, 0.5, 0.2),
)


def situation_of(name: NameCandidate) -> Situation:
    for situation in SITUATIONS:
        if situation.applies(name):
            return situation
    raise AssertionError("the last situation always applies")


def _threshold(text: str, start: int, end: int, in_record: bool) -> float:
    situation = situation_of(NameCandidate(text, start, end))
    return situation.in_record if in_record else situation.threshold


def _begins_blocked_word(text: str, start: int, least: int = 2) -> bool:
    """Herbs, drugs, diseases and everyday words of at least so many characters that begin with a surname: 葛根素, 高热, 尚未."""
    blocked = _blocked_words()
    four = text[start : start + 4]
    if len(four) > 2 and (four in blocked or four[:3] in blocked):
        return True
    return least < 3 and four[:2] in blocked


def _is_across_word(text: str, start: int) -> bool:
    """Whether the character belongs to the one before it: 上周, 我司."""
    return _WORD_ACROSS.match(text[max(0, start - 1) : start + 1]) is not None


def _is_everyday(text: str, start: int, end: int) -> bool:
    """Whether this is, begins with or ends in an ordinary word, or has no surname: not a reason to hold a text back."""
    words = ordinary_words()
    return any(text[start:last] in words for last in range(start + 2, end + 3)) or not surname_length(text, start)


def surname_length(text: str, start: int) -> int:
    """How many characters of a surname stand here: 0, 1 or 2."""
    single, double = _surnames()
    return 2 if text[start : start + 2] in double else int(text[start : start + 1] in single)


@lru_cache(maxsize=1)
def _surnames() -> tuple[frozenset[str], frozenset[str]]:
    surnames = [
        *lists.lines("surnames_zh.txt"),
        *"阚楼逄亓衣郏缑苌琚隗鄂粘邴乜弓展厍覃",
        *"鲜于 第五 闾丘 呼延 澹台 公冶 宗政 濮阳 淳于 太叔 申屠 仲孙 轩辕 钟离 宇文 长孙 相里 厍狄 公羊 谷梁 拓跋 端木 百里 东郭 梁丘 左丘 万俟 闻人 夏侯 赫连 尉迟".split(),
    ]  # the last are too rare to be learned from
    return frozenset(s for s in surnames if len(s) == 1), frozenset(s for s in surnames if len(s) == 2)


@lru_cache(maxsize=1)
def _blocked_words() -> frozenset[str]:
    return frozenset(word for line in lists.lines("never_zh.txt") for word in line.split())


@lru_cache(maxsize=1)
def _pairs() -> tuple[frozenset[str], frozenset[str]]:
    often, seldom = set[str](), set[str]()
    for line in lists.lines("pairs_zh.txt"):
        first, rest = line[0], line[1:].partition(" ")
        often.update(first + second for second in rest[0])
        seldom.update(first + second for second in rest[2])
    return frozenset(often), frozenset(often | seldom)


def is_pair(text: str, start: int, *, often: bool = False) -> bool:
    """Whether these two characters stand side by side in several medical texts (`often`: in very many), so are a word."""
    return text[start : start + 2] in _pairs()[not often]


@lru_cache(maxsize=1)
def ordinary_words() -> frozenset[str]:
    """Ordinary words that hold a surname: 高血压, 白芍, 张力, 方法."""
    return frozenset(lists.lines("words_zh.txt"))
