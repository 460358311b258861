"""Chinese names whose place gives them away, whatever word they are: 果果，你的B超; 主刀时光，一助…; 张.卫.东.

`FINDERS` are replaced. Where the place fits a person but the word is one of medicine, `may_name` only makes the text doubtful.
"""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
from collections.abc import Iterator
from functools import lru_cache

from medloop.privacy.phi import lists
from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.chinese.slots import first_character
from medloop.privacy.phi.chinese.words import (
    RARE_SURNAMES,
    WORD_SURNAMES,
    is_given,
    is_pair,
    ordinary_words,
    surname_length,
    surnames,
)
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import ORDINARY, medical_words, tier
from medloop.privacy.phi.rules import Finder, spans_where

_HAN = "\u4e00-\u9fff"
_SINGLE = "".join(name for name in lists.lines("surnames_zh.txt") if len(name) == 1) + RARE_SURNAMES
_START = r"(?:^|(?<=[。！？!?;\n:,、\s(（\"“@]))"
_NOTE = 150  # characters; in a longer text an ordinary word is hardly a name
_TITLE = "医生|医师|大夫|主任|护士长|护士|教授|院长|阿姨|大爷|大妈|大娘|大叔|大伯|阿婆|阿公|老师|药师|奶奶|爷爷|叔叔|师傅|老先生|老太太|老人家|老太|小朋友|同学"
# Characters before a title that are a function word, part of a longer title or of another word: 主任医师, 和大夫.
_NO_SURNAME = "任何责主保安单全方成向时于关管解包卫严常易文干师门代位平水元支和从对同有应如相能经都公那别双还通老小大后班"

# Characters in a row that are kept apart by the same sign, or of which only one is.
_APART = lazy_pattern(rf"(?P<name>[{_SINGLE}](?P<sign>[._~*|])[{_HAN}](?P=sign)[{_HAN}])(?!(?P=sign))")
_LABELLED_APART = lazy_pattern(
    rf"(?:姓名|名字|患者|病人|家属|转告|通知|联系|联系人)[:：]? {{0,4}}(?P<name>[{_SINGLE}](?: {{1,3}}[{_HAN}]){{1,2}})(?=[ ,。;、/]|$)"
)
_HALF_APART = lazy_pattern(
    rf"(?:{_START}|(?<=患者)|(?<=病人)|(?<=家属)|(?<=床))(?P<name>[{_SINGLE}] {{1,3}}[{_HAN}]{{2}})(?={_TITLE}|先生|女士|今[天日晨早]|昨[天晚日]|[,，] ?[男女]|[术产]后|\d{{1,3}}岁|[,，。]|$)"
)


def _double_apart() -> str:
    return "|".join(f"{name[0]} {{1,3}}{name[1]}" for name in sorted(surnames()[1]))


_DOUBLE_APART = lazy_pattern(
    rf"(?P<name>(?:{_double_apart()}) {{0,3}}[{_HAN}]{{1,2}}?)(?={_TITLE}|先生|女士|[,，。 的说]|今|昨|$)"
)

# A surname before a title inside a sentence: something that is done with persons stands before it.
_BEFORE_TITLED = "按|照|遵|是|找|由|请|问|给|经|跟|叫|让|听|见|与|及|还有|感谢|谢谢|多亏|通知|联系|转告|麻烦|辛苦|到|向|挂"
_TITLED = lazy_pattern(
    rf"{first_character(_BEFORE_TITLED)}(?:{_BEFORE_TITLED})(?P<name>[{_SINGLE}])(?=(?:{_TITLE})(?!员|证|室|台|节|们))"
)
_LATIN_TITLED = lazy_pattern(
    rf"(?<![A-Za-z])(?P<name>[A-Z][a-z]{{1,14}})(?= ?(?:{_TITLE}|先生|女士|小姐|太太|同学|[哥姐](?![{_HAN}]?[们])|总(?=[,。说来的])))"
)
# Everybody who is an old man or a child has a name before it: 陈皮大爷复诊.
_OLD_OR_YOUNG = lazy_pattern(
    rf"(?:^|(?<=[。！？!?;\n,、:@]))(?P<name>[{_HAN}]{{2,3}}?)(?=老先生|老太太|老人家|大爷|大妈|大娘|大叔|大伯|阿婆|阿公|小朋友|同志|师父|宝贝)"
)
_POLITE = lazy_pattern(rf"(?:您好|你好|尊敬的|感谢|转告|通知|联系|请)[,，]?(?P<name>[{_HAN}]{{2,3}}?)(?=女士|先生|小姐|同志)")
_ANYBODY = lazy_pattern(
    "[位名个些每各某该您你我他她们的其]|尊敬|亲爱|年轻|中年|老年|青年|[未已离]婚|隔壁|邻床|同房|楼[上下]|小区|门口|广大|退休|孕|产|患|病|家有|男|女|先生|外国|东北|四川|广东|社区|卖|开|扫|跳|遛|晨练"
)

# Two equal characters: a child, a pet name.
_TWICE = rf"(?P<name>(?P<one>[{_HAN}])(?P=one))"
_CALLED_TWICE = lazy_pattern(
    rf"(?:^|(?<=\n)|(?<=[好早安][呀啊])|(?<=早上好)|(?<=晚上好)|(?<=你好))[,，]?{_TWICE}(?=[早,，] ?(?:[你您咱今昨]|宝|明早|记得|把)|[早!！]|[他她]?[妈爸])"
)
_GIVEN_TWICE = lazy_pattern(
    rf"(?:给|喂|帮|带|陪|抱|麻烦|通知|告诉){_TWICE}(?=配|开|打|喂|吃|用|喝|做|买|约|拿|换|量|抽|推|输|洗|去|来|把|穿|贴|挂|看病|复查|吸|退|补|的(?:药|妈|爸|奶|疫苗|报告))"
)
_TWO_TWICE = lazy_pattern(rf"{_START}(?P<name>([{_HAN}])\2)[、和跟](?P<other>([{_HAN}])\4)(?=[,，。的两都]|双胎|双胞胎)")
_NO_PET = lazy_pattern(
    "[嗯哦呵哈嘿啊唉哎哼喔噢呃宝孩爸妈爷奶姐妹哥弟叔伯姑姨舅婶公婆常天刚慢往多少个看想问说试听谢好久仅渐默悄偷隐时每种样人家些痘疹疮斑泡疙瘩点条片块粒次年月日口步轻重大小早晚快深淡紧频连阵微稍略单双白红黄黑肚包狗猫虫揉按]"
)

# Two or more of those who operate are named.
_SURGEON = "主刀|[一二三]助|术者|器械|巡回|麻醉师?|洗手|配台"
_SURGEONS = lazy_pattern(
    rf"{first_character(_SURGEON)}(?P<role>{_SURGEON})(?:护士|医师|医生)?[:：]? {{0,2}}(?P<name>[{_HAN}]{{2,4}})(?=[,，。;；、/ ]|$)"
)
_NO_SURGEON = lazy_pattern(
    "[满意平稳成功顺利无误清点全局不未已的了后前中术用行生效医师护士方式完毕良好完成归准备药品剂针苗检查监评]"
)

# Who stands before the name: a person that the sentence is about, in words that `cues.ROLE` lacks.
_ROLE = (
    "发小|闺蜜|闺密|同桌|室友|丈母娘|老丈人|岳父|岳母|亲家母?|[表堂]?嫂子?|弟媳妇?|弟妹|继[父母]|后[妈爸]|养[父母]|干[妈爹爸]|保洁|月嫂|师[姐兄妹弟]|学[姐长弟妹]|徒弟|同乡|老乡|搭档|男朋友|女朋友|对象|女婿|儿媳|媳妇|外甥女?|侄女|侄子"
    "|(?<=我)[爸妈爹娘姐妹哥弟爷奶舅姨姑叔婶]|(?<=[他她我])[大二三四五小][舅姨姑叔婶伯爷哥姐弟妹]|俺[爹娘爸妈哥姐弟妹]|(?<=[他她])[爸妈爹娘]"
)
_BEHIND = "[,，。(（ ]|\\d|今|昨|前[天年]|去年|上周|最近|自从|打[了完针]|吃|喝|发[烧热]|咳|怀孕|产后|术后|得了?|有[点高糖哮癫过]|也|又|老是|老说|一到|一直|天天|常年|突然|刚|已经|七?[一二三四五六七八九十]{1,3}[多几]?岁?|的(?:化验|报告|病|血|尿|CT)|说|问|想|查|摔|住院|抽|肚|头|腿|腰|膝|胃|心|眼|牙|肺|血|尿"
_LED = lazy_pattern(rf"{first_character(_ROLE)}(?:{_ROLE})(?P<name>[{_HAN}]{{2,3}}?)(?={_BEHIND})")
_NO_LED = lazy_pattern(
    "[爸妈爷奶姐妹哥弟叔伯姑姨舅婶嫂夫妻儿女子孩的了是在有没不也都就还又很说问想要会能可吃喝买打去来到和与跟给把被让叫从对向得着过个们这那什怎哪年月日天周岁时分今昨明前后上下里外左右两一二三四五六七八九十几多半第做看查住患病发怀痛疼肿痒晕咳血尿便胃肝肾肺心头脚手腿腰颈膝肚眼耳鼻牙]"
)

# At the beginning of a note: a word, a colon or the genitive, and a finding.
_FINDING = "肌酐|肝功|肾功|甲功|血[压糖钾钠脂气常氧红]|尿[酸常蛋素]|体温|白细胞|血红|转氨酶|ALT|AST|CT|MRI|B超|彩超|胃镜|肠镜|病理|心电|心率|胸片|发热|咳嗽|呕吐|腹[痛泻]|头[晕痛]|夜间|今[天日晨早]|昨[天晚日夜]|术后|化疗|透析|血透|放疗|引流|伤口|切口|瘤标|糖化|过敏原|骨龄|电解质|凝血|起搏|大便|小便|未诉|主诉|诉"
_NOTE_OPENS = lazy_pattern(
    rf"(?:^|(?<=\n))(?P<name>[{_HAN}]{{2,3}}?)(?=[:：](?:{_FINDING})|的(?:{_FINDING}|报告|结果|检查|化验|片子|爸爸?|妈妈?|家[属长]|老伴|儿子|女儿))"
)
_SUBJECT = lazy_pattern(
    rf"(?:^|(?<=[。！？!?;\n]))(?P<name>[{_HAN}]{{2,3}}?)(?=化疗后|血透|透析[中后]|放疗后|夜间(?:未|入睡)|两点|[一三四五六七八九]点|\d{{1,2}}点|复诊|主诉|未诉|术后第?\d|术后并发|今晨|昨夜|昨晚|体温\d|血压\d|血糖\d|夜里|拒绝|要求出院)"
)
_HEADING = lazy_pattern(
    "[患病我你您他她它们这那谁什怎哪的了着过是不没无未否有就都很也又请让把被给对等或但若如果因所以及与药汤丸片素霉菌毒癌瘤炎症痛肿]|孩子|宝宝|小孩|老人|主诉|查体|体检|辅助|检查|诊断|处理|建议|方案|复查|复诊|入院|出院|目前|现在|今天|今日|昨日|昨天|上次|本次|之前|近期|术[后前中]|产[后前]|手术|化疗|放疗|透析|肝|肾|肺|胃|心|血|尿|便|脑|腹|胸|头|骨|腰|颈|膝|关节|皮肤|全身|局部|儿科|内科|外科|妇科|急诊|门诊|病房|护[士理]|医[生院师]|家[属长]|同[事学]|朋友|妈|爸|爷|奶|姐|妹|哥|弟|叔|姨|舅|姑|婶|嫂|老公|老婆|爱人|儿|女|男|年|月|日|周|时|次|每|各|总|[一二三四五六七八九十两几多双单左右上下内外前后大小高低轻重急慢新旧早晚]|正常|异常|阳性|阴性|一般|普通|最近|当时|平[时素]|夜[班间]|白[班天]|交班|注意|随访"
)


def _is_called(text: str, start: int, end: int) -> bool:
    return not _NO_PET.search(text[start:end])


def _is_word(text: str, start: int, end: int) -> bool:
    return (
        text[start:end] in ordinary_words()
        or is_term(text, (start, end, "NAME"))
        or any(is_pair(text, index) for index in range(start, end - 1))
    )


def _find_apart(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span("name") for match in _APART.finditer(text))
    if " " not in text:
        return
    for regex in (_LABELLED_APART, _HALF_APART, _DOUBLE_APART):
        for match in regex.finditer(text):
            joined = match["name"].replace(" ", "")
            if joined not in ordinary_words() and not is_pair(joined, 0, often=True):
                yield match.span("name")


def _find_titled(text: str) -> Iterator[tuple[int, int]]:
    yield from spans_where(_TITLED, text, lambda start, _: text[start] not in _NO_SURNAME)
    for match in _LATIN_TITLED.finditer(text):
        word = match["name"].lower()
        if word not in medical_words() and (tier(word) not in ORDINARY or lists.is_listed(word, lists.NAMES)):
            yield match.span("name")


def _find_old_or_young(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        named = surname_length(text, start) > 0 or is_given(text[start:end]) or text[start] == text[start + 1]
        return named and not _ANYBODY.search(text[start:end]) and not _HEADING.search(text[start:end])

    yield from spans_where(_OLD_OR_YOUNG, text, is_name)
    yield from spans_where(_POLITE, text, lambda start, end: not _ANYBODY.search(text[start:end]))


def _find_twice(text: str) -> Iterator[tuple[int, int]]:
    for regex in (_CALLED_TWICE, _GIVEN_TWICE):
        yield from spans_where(regex, text, lambda start, end: _is_called(text, start, end))
    for match in _TWO_TWICE.finditer(text):
        if _is_called(text, *match.span("name")) and _is_called(text, *match.span("other")):
            yield match.span("name")
            yield match.span("other")


def _find_surgeons(text: str) -> Iterator[tuple[int, int]]:
    spans = {match["role"]: match.span("name") for match in _SURGEONS.finditer(text) if not _NO_SURGEON.search(match["name"])}
    if len(spans) > 1:
        yield from spans.values()


def _find_led(text: str) -> Iterator[tuple[int, int]]:
    """No word, behind a person."""

    def is_name(start: int, end: int) -> bool:
        name = text[start:end]
        begins = surname_length(text, start) > 0 or is_given(name)
        return begins and not _NO_LED.search(name) and not _is_word(text, start, end)

    yield from (span for span in _led(text) if is_name(*span))


def _find_openings(text: str) -> Iterator[tuple[int, int]]:
    """No word, before a finding."""

    def is_name(start: int, end: int) -> bool:
        name = text[start:end]
        begins = surname_length(text, start) > 0 or name[0] in WORD_SURNAMES or is_given(name)
        return begins and not _HEADING.search(name) and not _is_word(text, start, end)

    yield from (span for span in _openings(text) if is_name(*span))


@lru_cache(maxsize=2)
def _led(text: str) -> tuple[tuple[int, int], ...]:
    """What stands behind a person; looked for once, for names and for doubt."""
    return tuple(match.span("name") for match in _LED.finditer(text))


@lru_cache(maxsize=2)
def _openings(text: str) -> tuple[tuple[int, int], ...]:
    """What a note or a sentence begins with, before a finding."""
    return tuple(match.span("name") for regex in (_NOTE_OPENS, _SUBJECT) for match in regex.finditer(text))


def may_name(text: str) -> bool:
    """Whether a word stands where a name does: 金银花的血常规, 我发小任性打完."""
    if len(text) > _NOTE:
        return False
    for start, end in _led(text):
        if surname_length(text, start) and not _NO_LED.search(text[start:end]) and not is_term(text, (start, end, "NAME")):
            return True
    for start, end in _openings(text):
        name = text[start:end]
        begins = surname_length(text, start) > 0 or is_given(name) or name[0] in WORD_SURNAMES
        if begins and not _HEADING.search(name):
            return True
    return any(not _NO_SURGEON.search(match["name"]) for match in _SURGEONS.finditer(text))


FINDERS = (
    Finder("characters kept apart", "NAME", ("{张.卫.东}，复诊", "姓名：{涂 志 明}  科室", "{滕 王阁}老先生", "{诸 葛明}今天放疗"), _find_apart),
    Finder("any surname before a title, or a foreign name", "NAME", ("感谢{厉}主任", "{Tony}老师下周来"), _find_titled),
    Finder("whoever is old or a child", "NAME", ("{陈皮}大爷复诊", "您好{和珅}先生"), _find_old_or_young),
    Finder("two equal characters", "NAME", ("{果果}，你的B超约好了", "给{安安}配的雾化"), _find_twice),
    Finder("who operates", "NAME", ("主刀{时光}，一助薄一飞",), _find_surgeons),
    Finder("behind a friend or a relative", "NAME", ("我妹{思琪}产后42天",), _find_led),
    Finder("at the beginning of a note, before a finding", "NAME", ("{练达}：肝功异常",), _find_openings),
)  # fmt: skip
