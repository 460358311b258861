"""Chinese names that a title or a form gives away; `slots.py` and `names.py` find the others."""

# ruff: noqa: E501  patterns in long lines are easier to read than in pieces
import re
from collections.abc import Iterator
from functools import partial

from medloop.privacy.phi import lists
from medloop.privacy.phi.chinese import placed_names, slots, unusual
from medloop.privacy.phi.chinese.second_opinion import WORD, SecondOpinion, chance_around
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.rules import Finder, spans_where
from medloop.privacy.phi.spans import Span

_SURNAMES = lists.lines("surnames_zh.txt")
_SINGLE = "".join(name for name in _SURNAMES if len(name) == 1)
_DOUBLE = "|".join(name for name in _SURNAMES if len(name) == 2)
_FREQUENT = "王李张刘陈杨赵黄周吴徐孙胡朱林何郭罗梁宋郑谢韩唐冯董程曹袁邓许"
_TITLE = "(?:医生|医师|大夫|主任|护士长|护士|先生|女士|小姐|教授|院长|阿姨|大爷|大妈|老师|药师|同志|奶奶|爷爷|叔叔|师傅)(?!员|证|室|台|节)"
# "主任医师", "保安老师", "何大夫?" (which doctor): here the character before the title is not a surname.
_NOT_SURNAMES = "任何责主保安单全方成向时于关管解包卫严常易文干师门代位平水元支"
_FORM = lazy_pattern(
    r"(?:^|(?<=[\n。；;：:，, ]))(?P<before_sex>[\u4e00-\u9fff]{2,4})(?=[，,、 ] ?(?:[男女](?:性)?(?:[，,、 ]|\d)|\d{1,3}岁))"
    r"|(?:姓名|术者|主刀|[一二三]助|助手|联系人|签名|签字|经治医师|主治医师|主管医师|责任护士|记录者?|开嘱|执行人?|核对人?|审核人?|报告人|送检人|申请人|监护人|家属|收件人|户名|陪护)[：:] ?"
    r"(?P<labelled>[\u4e00-\u9fff]{2,3})(?=[；;，,。、\n ]|$)"
)
# Right at the beginning, before sex and age, nearly every word is a name: 时间，男，5岁.
_FIRST = lazy_pattern(
    r"(?:^|\n)(?P<name>[\u4e00-\u9fff]{2,4})[,、 ]{1,2}[男女](?:性|孩|童|婴)?[,、 ]{0,2}(?:\d{1,3}|[一二两三四五六七八九十]{1,3})(?:岁|个?月|天|周)"
)
_NOBODY_FIRST = lazy_pattern(
    "患[者儿]|病[人例史]|[产孕]妇|老[人年]|小儿|青年|中年|姓名|性别|本人|家属|孩子|宝宝|儿子|女儿|[爸妈父母]|新生儿|婴儿|某|您好|你好|医生|主诉|基本|情况|资料|信息"
)
# Answers of a form that are not a name: 无, 同上, 拒绝.
_NOT_NAMES = lazy_pattern(
    "性别|一般|通常|来说|而言|请问|想问|咨询|医生|大夫|[我你他她母父亲妇无不详同见未否待全局已有是阴阳正可的了患病者方老幼青中年入初复例儿孩宝您好女男]|麻|拒绝|陪同|本人|签字|知情|主诉|现病"
)


def _find_surnames(regex: re.Pattern[str], folded: str) -> Iterator[tuple[int, int]]:
    for match in regex.finditer(folded):
        if match["surname"] not in _NOT_SURNAMES:
            yield match.span("surname")


def _find_in_form(folded: str) -> Iterator[tuple[int, int]]:
    for match in _FORM.finditer(folded):
        group = "before_sex" if match["before_sex"] else "labelled"
        if not _NOT_NAMES.search(match[group]):
            yield match.span(group)


def _surname(name: str, example: str, regex: str) -> Finder:
    return Finder(name, "NAME", (example,), partial(_find_surnames, lazy_pattern(regex)))


FINDERS = (
    _surname(
        "any surname behind a sign and before a title",
        "请问，{穆}医生在吗",
        rf"(?<![\u4e00-\u9fff])(?P<surname>[{_SINGLE}]|{_DOUBLE})(?={_TITLE})",
    ),
    _surname(
        "frequent surname before a title",
        "今天找{王}主任看病",
        rf"(?<![谢感多致酬任])(?P<surname>[{_FREQUENT}]|{_DOUBLE})(?={_TITLE})",
    ),
    _surname(
        "frequent surname behind 老 or 小",
        "老{张}来复查",
        rf"(?<![\u4e00-\u9fff])[老小](?P<surname>[{_FREQUENT}])(?=[,。;、\s说来去，；]|$)",
    ),
    Finder(
        "first word before sex and age",
        "NAME",
        ("{于是},女,29岁",),
        lambda text: spans_where(_FIRST, text, lambda start, end: not _NOBODY_FIRST.search(text[start:end])),
    ),
    Finder(
        "name in a form, before the sex or behind a label",
        "NAME",
        ("{苏平凡}，女，45岁", "术者：林一凡；一助：{和雨田}；"),
        _find_in_form,
    ),
)


# Forms that words have, too: what the second network takes for a word is left there.
_MOST_ASKED = 20
_WORD_FORMS = frozenset(
    ("pet name", "pet name at home", "nickname", "two equal characters", "surname of two characters, or of Japan or Vietnam")
)


_ALL = tuple(
    (finder, finder.name in _WORD_FORMS) for finder in (*FINDERS, *slots.FINDERS, *unusual.FINDERS, *placed_names.FINDERS)
)


def find(folded: str, opinion: SecondOpinion | None = None) -> Iterator[Span]:
    for finder, may_be_word in _ALL:
        for asked, (start, end) in enumerate(finder.find(folded)):
            if not may_be_word or not _is_word(folded, start, end, opinion, asked):
                yield start, end, finder.kind


def _is_word(folded: str, start: int, end: int, opinion: SecondOpinion | None, asked: int) -> bool:
    """What the second network says; of a long text it reads what is around, and no more than some places."""
    if opinion is not None:
        return opinion.is_word(start, end)
    return asked < _MOST_ASKED and chance_around(folded, start, end) < WORD
