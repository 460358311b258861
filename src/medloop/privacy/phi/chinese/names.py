"""Chinese names: a small network looks at every character with eight to each side and says whether it belongs to a name.

Three convolutions over characters, computed with numpy. The weights (assets/phi/hanzi.npz) are learned by tools/train_phi_zh.py
from sentences we make and from real medical texts with made-up names put in.
"""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.privacy.phi import lists
from medloop.privacy.phi.normalize import MASK

LAYERS = ((5, 1), (3, 2), (3, 4))  # width of each convolution and the gap between what it sees
REACH = sum(gap * (width // 2) for width, gap in LAYERS)
# Ids: 0 beyond the text, then what stands for many characters, then characters of their own.
UNKNOWN, _MASKED, _DIGITS, _LATIN, _SPACE, _LINE, FIRST = 1, 2, 3, 4, 5, 6, 7
_PIECE, _BLOCK = 4096, 64  # characters looked at together, and rows multiplied together

Array = NDArray[Any]


def is_own(char: str) -> bool:
    """Chinese characters and signs have an id of their own; digits, Latin letters and spaces are seen as one thing in a row."""
    return not (char.isspace() or char == MASK or (char.isascii() and char.isalnum()))


def table_of(codes: Array) -> Array:
    """From a character's code to its id."""
    table = np.full(0x10001, UNKNOWN, np.int32)
    table[codes] = np.arange(FIRST, FIRST + len(codes))
    table[[*range(9), *range(0x0B, 0x21), 0xA0, 0x3000]] = _SPACE
    table[0x30:0x3A] = _DIGITS
    table[[*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC0, 0x250)]] = _LATIN
    table[ord("\n")] = _LINE
    table[ord(MASK)] = _MASKED
    return table


def ids_of(text: str, table: Array) -> tuple[Array, Array]:
    """The ids of a folded text and where each stands; a row of digits, letters or spaces is one."""
    points = np.minimum(np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32), 0x10000)
    ids = table.take(points)
    kept = np.ones(len(ids), bool)
    kept[1:] = (ids[1:] != ids[:-1]) | (ids[1:] < _MASKED) | (ids[1:] > _LINE)
    places = kept.nonzero()[0]
    return ids[places], places


class Names:
    """`find` gives the names of a text and how close the best of what was left came to being one (0 to 1)."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        held = {name: np.ascontiguousarray(one, np.float32) for name, one in weights.items() if name != "codes"}
        self.table = table_of(weights["codes"])
        # The first layer of a character at each place of its window is kept for all characters: adding is all that is left.
        self.first = [held["table"] @ place for place in held["layer0"]]
        self.layers = [held[f"layer{at}"] for at in range(1, len(LAYERS))]
        self.biases = [held[f"bias{at}"] for at in range(len(LAYERS))]
        self.last, self.last_bias = held["last"], held["last_bias"]

    def scores(self, ids: Array) -> Array:
        """For each id, what speaks for being outside of a name, beginning one, or going on with one."""
        if len(ids) <= _PIECE:
            return self._scores(ids)
        pieces = []
        for at in range(0, len(ids), _PIECE):
            before = min(at, REACH)
            piece = self._scores(ids[at - before : at + _PIECE + REACH])
            pieces.append(piece[before : before + _PIECE])
        return np.concatenate(pieces)

    def _scores(self, ids: Array) -> Array:
        count = len(ids)
        # Products of at most _BLOCK rows: larger ones wake the threads of the BLAS, which costs more than it saves.
        block = min(count, _BLOCK)
        size = -(-count // block) * block
        beside = LAYERS[0][0] // 2
        padded = np.zeros(size + 2 * beside, np.int32)
        padded[beside : beside + count] = ids
        held = self.first[0].take(padded[:size], axis=0)
        for at in range(1, LAYERS[0][0]):
            held += self.first[at].take(padded[at : at + size], axis=0)
        held += self.biases[0]
        np.maximum(held, 0, out=held)
        held[count:] = 0
        width = held.shape[1]
        for (_, gap), layer, bias in zip(LAYERS[1:], self.layers, self.biases[1:], strict=True):
            wide = np.zeros((size + 2 * gap, width), np.float32)
            wide[gap : gap + size] = held
            new = wide[:size].reshape(-1, block, width) @ layer[0]
            new += wide[gap : gap + size].reshape(-1, block, width) @ layer[1]
            new += wide[2 * gap :].reshape(-1, block, width) @ layer[2]
            new += bias
            np.maximum(new, 0, out=new)
            held += new.reshape(size, width)
            held[count:] = 0
        found: Array = (held.reshape(-1, block, width) @ self.last).reshape(size, 3)[:count] + self.last_bias
        return found

    def find(self, text: str, record: bool = False) -> tuple[list[tuple[int, int]], float]:
        """`record`: the text is known to speak of somebody, so that less is asked of a name."""
        if not _HAN.search(text) or (len(text) < _SHORT and not record and not _possible(text)):
            return [], 0.0
        ids, places = ids_of(text, self.table)
        scores = self.scores(ids)
        inside = scores[:, 1:].max(axis=1) - scores[:, 0]
        hot = (inside >= _LOOK).nonzero()[0].tolist()
        if not hot:
            return [], 0.0
        # A share of one for the two ways to be in a name together.
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        name, begins = (1 - shares[:, 0]).tolist(), shares[:, 1].tolist()
        return self._spans(text, name, begins, places.tolist(), hot, record or bool(_RECORD.search(text)))

    def _spans(
        self, text: str, name: list[float], begins: list[float], places: list[int], hot: list[int], record: bool
    ) -> tuple[list[tuple[int, int]], float]:
        found, done = list[tuple[int, int, float]](), 0
        for at in hot:
            if at < done or not _HAN.match(text, places[at]):
                continue
            last = at + 1
            while (
                last < len(name)
                and places[last] == places[last - 1] + 1
                and begins[last] < 0.5
                and _INSIDE.match(text, places[last])
            ):
                if name[last] < (_ALONG if last - at < 2 else _LONGER):
                    break
                last += 1
            found.append((*_whole(text, places[at], places[last - 1] + 1), max(name[at:last])))
            done = last
        # Where one person is named for certain, others are likely.
        record = record or any(best >= 0.95 and _needed(text, start, end, False) <= 0.6 for start, end, best in found)
        out, nearest = list[tuple[int, int]](), 0.0
        for start, end, best in found:
            needed = _needed(text, start, end, record)
            if best >= needed:
                out.append((start, end))
            elif end - start > 1 and needed < _NEVER and not _everyday(text, start, end):
                nearest = max(nearest, best / needed)
        return out, nearest


_LOOK = -2.7  # the score from which a place is looked at, a share of about 0.06
_ALONG, _LONGER = 0.08, 0.1  # the share with which a name goes on, to two characters and beyond
_TITLE = re.compile(
    "医生|医师|大夫|主任|护士|先生|女士|小姐|教授|院长|阿姨|大爷|大妈|老师|药师|同志|奶奶|爷爷|叔叔|师傅|同学|警官|律师|经理|主治"
)
# What a surname alone may be followed by.
_CALLED = re.compile(
    f"{_TITLE.pattern}|叔|姐|哥|总|姨|婶|嫂|伯|老板|工|处长|科长|队长|会计|秘书|太太|某|氏|老|公|主管|技师|博士|院士|大姐|大哥"
    "|大娘|大叔|姥|医|护|副"
)
_BEFORE = "老小阿姓大"


def _whole(text: str, start: int, end: int) -> tuple[int, int]:
    """A surname alone with no title behind it goes on; what a surname stands before begins with it; a title is no part."""
    if start and not _surname(text, start):
        if _surname(text, start - 1) == 1:
            start -= 1
        elif start > 1 and _surname(text, start - 2) == 2:
            start -= 2
    for at in range(start + 1, end):
        if _TITLE.match(text, at):
            return start, at
    if end - start == 2 and text[end : end + 1] == "儿" and text[end : end + 2] not in _CHILD:
        end += 1
    if end - start == 1 and end < len(text) and _surname(text, start) and _HAN.match(text[end]):
        end += not (_CALLED.match(text, end) or (start and text[start - 1] in _BEFORE))
    return start, end


def _needed(text: str, start: int, end: int, record: bool) -> float:
    """How sure the network must be: less in a record, more for what is no surname or part of an ordinary word."""
    role = start > 1 and _ROLE.search(text, max(0, start - 4), start) is not None
    if _never(text, start) or _WITHIN.match(text[max(0, start - 1) : start + 1]):
        # 何时雨 stands alone between signs, 何时去 does not.
        alone = end - start == 3 and text[end : end + 1] in _SIGNS
        alone = alone and (text[max(0, start - 1) : start] in _SIGNS or text[max(0, start - 2) : start] in _PATIENT)
        if _never(text, start, 3):
            return _NEVER
        ends = text[end : end + 1] in _SIGNS  # also at the end of the text
        if (role and (ends or text[start - 1] not in ":：")) or _DOES.match(text, end):  # 高敏护士 is somebody, 高敏体质 is not
            return _WORDY
        return 0.9 if alone else _NEVER
    if not _surname(text, start):
        inner = any(_never(text, at) or _WITHIN.match(text[at - 1 : at + 1]) for at in range(start + 1, end))
        return _NEVER if inner else 0.6 if record else 0.85
    if text[start + 1 : start + 2] == "某":
        return _NEVER  # 郑某: somebody has been taken out already
    if end - start == 1 and not _CALLED.match(text, end):
        led = start and text[start - 1] in _BEFORE and not (start > 1 and _HAN.match(text[start - 2]))
        return 0.5 if led else 0.9
    if _NOT.match(text, start):
        return 0.97
    if text[start:end] in words():
        return (0.15 if role else 0.8 if record else 0.95) if end - start < 3 else 0.97
    if _SAYS.match(text, end) and not _cut(text, start, end):
        return 0.06
    if role:
        return 0.12
    if _cut(text, start, end):
        return 0.5 if record else 0.93
    return 0.2 if record else 0.5


_SIGNS = "，。：；、,:;（）() \n"
_PATIENT = frozenset(("患者", "病人", "患儿", "产妇", "家属", "死者", "伤者"))
_WORDY = 0.3
_NEVER = 2.0  # no network is as sure as that
# Who somebody is, said right before the name.
_ROLE = re.compile(
    "(?:姓名|[弟妹哥姐姑舅]{2}|姨妈|伯母|婶婶|丈夫|妻子|爱人|老公|老婆|儿子|女儿|同事|朋友|同学|护工|家属|邻居|保姆|男友|女友|助手|术者|一助|二助|陪护|访者|询者"
    "|申请人|投诉人|联系人|监护人|代理人|侄子|外甥|孙子|孙女|儿媳|女婿|母亲|父亲|妈妈|爸爸|奶奶|爷爷|外婆|外公|老师|叫|名叫|叫做|死者|伤者|房东|司机|工友|战友|室友|队友|[：:] ?)$"
)
# What persons do, said right behind the name.
_SAYS = re.compile("觉得|认为|说|表示|讲|反映|提到|问|告诉|要求|希望|担心|建议|反馈|来电|打来|诉|称")
_DOES = re.compile(rf"{_SAYS.pattern}|{_TITLE.pattern}|[，,（( ]?(?:男|女)[，,。 )）]|[，,（( ]?\d{{1,3}}岁")
_CHILD = frozenset(("儿子", "儿童", "儿科", "儿女", "儿媳", "儿时", "儿茶"))
# A week, a company, a speaker's own: the surname belongs to the character before it.
_WITHIN = re.compile(
    "[上下本每这那一二两三四五六七八九十几多双单半]周|[我贵公该]司|[分小一]时|[不未]曾|[同每]房|[医]师|[小厅]车|[过全日历工]程|[不]安|[可]能"
)


_SHORT = 60  # characters of a comment: in one, a cheap look may save the network


def _possible(text: str) -> bool:
    """Whether somebody may be named: a word of records, or a surname that belongs to no ordinary word."""
    if _RECORD.search(text):
        return True
    single, double = _surnames()
    known = words()
    for at in range(len(text) - 1):
        if text[at] in single or text[at : at + 2] in double:
            pair = text[at : at + 2] in known and (text[at + 1 : at + 3] in known or text[at + 2 : at + 3] < "\u3400")
            if not (text[at + 1] < "\u3400" or pair):
                return True
    return False


def _never(text: str, start: int, least: int = 2) -> bool:
    """Herbs, drugs, diseases and everyday words that begin with a surname: 葛根素, 马来酸, 高热, 尚未."""
    held = _blocked()
    return any(text[start : start + size] in held for size in range(least, min(4, len(text) - start) + 1))


@lru_cache(maxsize=1)
def _blocked() -> frozenset[str]:
    return frozenset(word for line in lists.lines("never_zh.txt") for word in line.split())


def _everyday(text: str, start: int, end: int) -> bool:
    """Whether this is, begins with or ends in a word that people use: no reason to hold a text back."""
    known = words()
    return any(text[start:last] in known for last in range(start + 2, end + 3)) or not _surname(text, start)


# Weekdays, wishes and towns that begin with a surname.
_NOT = re.compile(
    "周[一二三四五六日末]|祝[健您你早好平愉顺生一]|吉林|南京|宣武|温州|康复|安徽|江苏|江西|青海|云南|贵州|石家庄|常州|金华"
    "|陆军|连云港|安阳|小梁|张冠李戴"
)


def _cut(text: str, start: int, end: int) -> bool:
    """Is this the beginning of an ordinary word, or cut out of one?"""
    known = words()
    return (
        text[start : end + 1] in known
        or text[start : end + 2] in known
        or text[start : start + 2] in known
        or (start > 0 and text[start - 1 : start + 1] in known)
        or text[end - 1 : end + 1] in known
    )


def _surname(text: str, at: int) -> int:
    """How many characters of a surname stand here."""
    single, double = _surnames()
    return 2 if text[at : at + 2] in double else int(text[at : at + 1] in single)


@lru_cache(maxsize=1)
def _surnames() -> tuple[frozenset[str], frozenset[str]]:
    every = [*lists.lines("surnames_zh.txt"), *"阚楼逄亓衣郏缑苌琚隗鄂粘邴"]  # these too seldom to be learned from
    return frozenset(s for s in every if len(s) == 1), frozenset(s for s in every if len(s) == 2)


@lru_cache(maxsize=1)
def words() -> frozenset[str]:
    """Ordinary words that hold a surname: 高血压, 白芍, 张力, 方法."""
    return frozenset(lists.lines("words_zh.txt"))


# Words of records and letters about somebody; in such a text a name is likelier than in an article or an exam question.
_RECORD = re.compile(
    r"姓名|家属|[我他她]叫|叫做|名叫|本人|签名|签字|签署|\d床|床号|收件|收货|快递|地址|邮箱|户名|登记号|护照|来电|查房|值班|随访"
    r"|交班|转账|退款|参保|身份证|手机|电话|住院号|门诊号|病历号|病案号|挂号|的号|我(?:爱人|丈夫|妻子|外甥|同事)|护士|助手|执笔|伤者"
    r"|见证|\d{7}|[患病][者人][^的可应有在，,。]{2,3}[，,]|尊敬的|投诉|转告|陪同|先生|女士|@"
)
_HAN = re.compile(r"[\u3400-\u9fff]")
_INSIDE = re.compile(r"[\u3400-\u9fff·•]")


@lru_cache(maxsize=1)
def load() -> Names:
    with (lists.FOLDER / "hanzi.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        return Names({name: held[name] for name in held.files})
