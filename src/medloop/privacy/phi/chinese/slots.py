"""Chinese names by where they stand and how they are written: with a dot, with spaces, in pinyin, behind a label or a relation."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Iterator
from functools import lru_cache

from medloop.privacy.phi import lists
from medloop.privacy.phi.chinese.pinyin import PINYIN_SURNAMES, count_syllables
from medloop.privacy.phi.chinese.words import is_given, is_pair, is_seen, ordinary_words, surname_length
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.normalize import MASK
from medloop.privacy.phi.rules import Finder, spans_where

_HAN = "\u4e00-\u9fff"
_DOT = "·•・‧∙⋅"
_SURNAMES = lists.lines("surnames_zh.txt")
_FREQUENT = "王李张刘陈杨赵黄周吴徐孙胡朱林何郭罗梁宋郑谢韩唐冯董程曹袁邓许"
_SINGLE = "".join(name for name in _SURNAMES if len(name) == 1)
# Characters that write foreign names.
_SOUNDS = (
    "阿埃艾爱安昂奥澳巴芭白柏拜班邦包保鲍贝本比彼毕宾波伯勃博布查楚茨次达大戴丹当道得德登邓狄迪蒂丁东都杜顿多朵额恩尔法范方菲费芬弗佛福夫甫盖甘冈高戈哥格葛根贡古顾瓜圭哈海汉豪赫黑亨洪侯胡华怀惠霍"
    "基吉季加贾简江姜杰捷金津居卡凯坎康考科可克肯孔库夸奎拉莱赖兰郎朗劳勒雷蕾黎里李理丽利莉力立连廉良列林琳伶龙隆卢鲁路露伦罗洛吕马玛买迈麦曼芒茂梅美门蒙孟米密敏明摩莫默姆木穆娜纳乃奈南内尼妮年宁牛纽努诺"
    "欧帕潘庞培佩彭皮平珀普奇齐契恰强乔切钦琴青丘屈热仁日荣茹瑞若萨塞赛三桑森莎沙山尚绍舍申生圣师施什史士书舒丝斯松苏素孙索塔泰谭坦汤唐陶特滕提田铁廷通图吐托脱瓦万旺威韦维卫魏温文翁沃乌吾伍西希锡夏香肖晓谢"
    "辛欣星雄休许雪逊雅亚延扬杨耶叶伊依易意因英永尤于雨约赞泽曾扎詹张珍芝治朱珠祖佐卓孜肉肯别翰瑟玉地帝图努合布外麦旦依波喀哈汗沙罕亚历蒂茨穆施密特魏舒尔茨伊万诺维奇娃谢盖奥塔"
)
_TERM_BEHIND = "(?!综合征|综合症|氏|病|征|试验|现象|反应|法|手术)"
_SOUND = rf"(?:[{_SOUNDS}]|不(?=[都力拉]))"
_DOTTED = lazy_pattern(rf"{_SOUND}{{1,8}}(?:[{_DOT}]{_SOUND}{{1,10}}){{1,3}}{_TERM_BEHIND}")
_SPACED = lazy_pattern(
    rf"(?<![{_HAN}] )(?P<name>[{_SINGLE}](?P<gap> {{1,3}})[{_HAN}](?P=gap)[{_HAN}])(?! {{1,3}}[{_HAN}](?: |$))"
)

_KIN = (
    "舅妈|姐夫|妹夫|嫂子|岳父|岳母|公公|婆婆|爸爸?+|妈妈?+|父亲|母亲|爷爷|奶奶|外公|外婆|姥姥|姥爷|[大二三四五小表堂]?(?:哥哥?+|弟弟?+|姐姐?+|妹妹?+)|[大二三四五小]?(?:舅舅?+|姨妈?+|姑妈|姑姑?+|叔叔?+|伯伯?+|婶婶?+)|丈夫|妻子|太太|爱人|老公|老婆|老伴"
    "|儿子|女儿|闺女|孙子|孙女|外孙女?+|外甥女?+|侄子|侄女|男朋友|女朋友|男友|女友|未婚[夫妻]|表[哥弟姐妹]|堂[哥弟姐妹]"
)
_STAFF = "随访|护工|护理员|保姆|村医|家庭医生|社区医生|主管护师|护师|护士长|护士|医师|会诊医师|教授|陪护|同事|同学|邻居|朋友|室友|工友|房东|司机"
_PATIENTS = "患者|病人|患儿|产妇|孕妇|伤者|死者|新生儿|受检者|被检者|留学生|投诉人|投诉者|随访对象|家属|亲属|代理人|联系人|监护人"
ANY_PERSON = lazy_pattern(f"{_KIN}|{_STAFF}|{_PATIENTS}")
_NAMED = "(?>名叫|叫做|大名|小名|乳名|学名|全名|真名|曾用名|(?<![象种症病物法俗又都学称就为会乱惊喊])叫)"
_LABELS = (
    "姓名|名字|签名|签字|代签人?|记录人?者?|审核人?|复核|执笔|会诊医师|会诊医生|会诊|经治医师|主治医师|主管医师|责任护士|主管护师|术者|主刀|[一二三]助|助手|麻醉|器械|巡回|执行人?|核对人?|报告人|送检人|申请人|监护人|联系人|紧急联系人|家属|患者家属|家属签[名字]|患者|病人"
    "|收件人|户名|陪护|投诉人|投诉者|新收病人|新收|转入|转出|抢救记录|死亡记录|交班|晚班交接|夜班交接|交接|代诉人|患者姓名|就诊人|预约人|挂号人"
)
_END = rf"(?=[,。;、/()\s{_DOT}]|$)"


def first_character(words: str) -> str:
    """A look at one character before the alternatives: most positions fail there."""
    characters = sorted(set(re.findall(f"[{_HAN}]", words)))
    return f"(?=[{''.join(characters)}])"


_LABELLED = lazy_pattern(rf"{first_character(_LABELS)}(?:{_LABELS}): {{0,3}}(?P<name>[{_HAN}]{{2,4}}){_END}")
_WITHOUT_COLON = lazy_pattern(
    rf"{first_character(_LABELS + _NAMED + '写随投')}(?:{_LABELS}|{_NAMED}|名字(?:是|写成了?|写的是?)|写的是?|随访|投诉[人者])[ (]?(?P<name>[{_HAN}]{{2,4}}?){_END}"
)
_RELATED = lazy_pattern(
    rf"{first_character(_PATIENTS + _STAFF + _KIN)}(?:{_PATIENTS}|{_STAFF}|{_KIN})[ (]?(?P<name>[{_HAN}]{{2,4}}?)(?:{_END}|(?=[有也又今昨前上最得做因自已说诉近曾突在是刚让]|反映|来|觉得|建议|认为))"
)
_TWICE = lazy_pattern(
    rf"{first_character(_PATIENTS + _KIN + _NAMED + '请')}(?:{_PATIENTS}|{_KIN}|{_NAMED}|请)[ :(]?(?P<name>(?P<one>[{_HAN}])(?P=one))(?![{_HAN}]?(?:科|房|病))"
)
_TO_ROOM = lazy_pattern(
    rf"(?:^|[,。;!?:\s])请(?P<name>[{_HAN}]{{2,4}}?)(?:先生|女士|小朋友|同学)?(?:到|来|至|前往)(?=[\d一二三四五六七八九十{_HAN}]{{0,6}}(?:诊室|窗口|楼|病房|科|处|就诊|取药|抽血|采血))"
)
_OWNER = lazy_pattern(
    rf"(?:^|[,。;!?:\s])(?P<name>[{_HAN}]{{2,4}})的(?=肝功|肾功|甲功|血糖|血压|报告|片子|化验|检查|结果|CT|B超|病历|病情|家属|丈夫|妻子|儿子|女儿|父亲|母亲|爸爸|妈妈)"
)
_POLITE = lazy_pattern(rf"(?:^|[,。;!?:\s]|您好|你好|请)(?P<name>[{_HAN}]{{2,4}}?)(?=女士|先生|小朋友|小姐|同志)")
_POLITE_TITLE = lazy_pattern("女士|先生|小朋友|小姐|同志")
_ANYBODY = lazy_pattern(
    "只有|我是|我叫|这位|那位|各位|[一两几每某]位|尊敬|亲爱|年轻|中年|老年|青年|[未已]婚|某|该|您|你|的|家有|那些|这些|有些"
)
_ONLY_SURNAME = lazy_pattern(rf"(?:患者|病人|家属|他|她|我|本人|病友)姓(?!名)(?P<name>[{_HAN}])(?=[,。;、 ]|$)")
_NOT_NAMES = lazy_pattern(
    "[爸妈爷奶姐妹哥弟叔伯姑姨舅婶嫂夫妻没买吃喝药癌炎针某]|[无不未否待已有是的了患病者老幼孕产科室院楼床男女岁个这那我你他她它们谁吗呢吧啊么什怎哪很都就还要会能可说去来到在和与及或但因为从被把给对向等]|麻醉|拒绝|陪同|本人|签字|知情|主诉|现病|救护|同上|不详|代表|全麻|局麻|夫妻|父母|母女|父子|爸爸|妈妈|宝宝|妹妹|弟弟|哥哥|姐姐|爷爷|奶奶|叔叔|阿姨|舅舅|姑姑|公公|婆婆|天天|常常|往往|刚刚|时时|看看|问问|慢慢"
)


_ANY_HAN = lazy_pattern(f"[{_HAN}]")
_SURNAME_CUT = lazy_pattern(f"{MASK}[老小大阿][{_HAN}]")
_SLOTS = ((_WITHOUT_COLON, ""), (_TO_ROOM, "请"), (_OWNER, "的"))  # with a character that every match has


def _is_free(text: str, start: int, end: int) -> bool:
    """No word of everyday or of medicine: no pair of characters in it stands side by side in many texts."""
    name = text[start:end]
    return not (
        _NOT_NAMES.search(name) or name in ordinary_words() or any(is_pair(name, index) for index in range(len(name) - 1))
    )


def _find_dotted(text: str) -> Iterator[tuple[int, int]]:
    if any(dot in text for dot in _DOT):
        yield from (match.span() for match in _DOTTED.finditer(text) if len(match[0]) > 3)


_SPACED_PAIR = lazy_pattern(rf"(?:{_PATIENTS}|{_STAFF}|{_KIN}|{_NAMED}|床|姓名:?) ?(?P<name>[{_SINGLE}] {{1,3}}[{_HAN}])(?! )")


def _find_spaced(text: str) -> Iterator[tuple[int, int]]:
    for match in _SPACED.finditer(text) if " " in text else ():
        if not _is_free(match["name"].replace(" ", ""), 0, 3) or text[match.end() : match.end() + 1] == " ":
            continue
        yield match.span("name")
    for match in _SPACED_PAIR.finditer(text) if " " in text else ():
        if _is_free(match["name"].replace(" ", ""), 0, 2):
            yield match.span("name")


def _find_labelled(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        has_surname = surname_length(text, start) > 0 and not _NOT_NAMES.search(text[start:end]) and not is_pair(text, start)
        return has_surname or _is_free(text, start, end)

    yield from spans_where(_LABELLED, text, is_name)


def _find_behind_relation(text: str) -> Iterator[tuple[int, int]]:
    yield from (span for span in _slots(text) if _is_free(text, *span) and _can_name(text, *span))
    yield from (span for span in _related(text) if _begins_like_name(text, *span))


@lru_cache(maxsize=2)
def _related(text: str) -> tuple[tuple[int, int], ...]:
    """No word, right behind a patient, a relative or a colleague."""
    spans = (match.span("name") for match in _RELATED.finditer(text))
    return tuple((start, end) for start, end in spans if _is_free(text, start, end) and not _is_seen_word(text, start, end))


def _is_seen_word(text: str, start: int, end: int) -> bool:
    """Without a surname, characters that stand side by side in medical texts, or that the next one belongs to: 举报, (买回)来."""
    has_surname = surname_length(text, start) > 0
    return (not has_surname and any(is_seen(text, index) for index in range(start, end - 1))) or is_pair(
        text, end - 1, often=True
    )


def _can_name(text: str, start: int, end: int) -> bool:
    """With a surname, or characters that stand side by side nowhere: not 使患者(受益)."""
    return surname_length(text, start) > 0 or is_given(text[start:end]) or not _is_seen_word(text, start, end)


def _begins_like_name(text: str, start: int, end: int) -> bool:
    return surname_length(text, start) > 0 and (end - start > 2 or text[start] in _FREQUENT)


@lru_cache(maxsize=2)
def _slots(text: str) -> tuple[tuple[int, int], ...]:
    """Where a name is expected."""
    regexes = [regex for regex, hint in _SLOTS if hint in text]
    return tuple(match.span("name") for regex in regexes for match in regex.finditer(text))


def _find_polite(text: str) -> Iterator[tuple[int, int]]:
    if _POLITE_TITLE.search(text):
        yield from spans_where(_POLITE, text, lambda start, end: not _ANYBODY.search(text[start:end]))


# Somebody is called so: even a herb is a name there. Not what somebody cries or calls for: 孩子叫疼, 我叫救护车.
_CALLED = lazy_pattern(
    rf"(?:我|本人|[他她]|孩子|小孩|宝宝|宝贝|{_PATIENTS}|{_KIN})(?:的?(?:大名|小名|名字)[是叫]|名?叫做?|名叫)(?P<name>[{_HAN}]{{2,3}}?)(?=[,。;、/()!\s]|$|今年|\d)"
)
CRIES = lazy_pattern(
    "[痛疼晕痒胀酸麻累肿烧咳吐苦饿冷热哭闹喊车外停醒救命急饭餐滴声嚷唤单号]|难受|医生|护士|大夫|家属|保安|警|快递"
)


def doubtful(text: str) -> bool:
    """Whether an ordinary word that is rare in medicine stands where a name is expected: 名字是平安, 请欢喜到3号诊室.

    Also where a relative's name was replaced and 老六 or 小三 is left of it, and characters that are no word behind a patient."""
    if not _ANY_HAN.search(text):
        return False
    if _SURNAME_CUT.search(text):
        return True
    if any(not _begins_like_name(text, *span) for span in _related(text)):
        return True
    called = _CALLED.finditer(text) if "叫" in text or "名" in text else ()
    if any(not _NOT_NAMES.search(match["name"]) and not CRIES.search(match["name"]) for match in called):
        return True
    words = {text[start:end] for start, end in _slots(text)}
    return any(word in ordinary_words() and not _NOT_NAMES.search(word) and not is_pair(word, 0) for word in words)


def _find_twice(text: str) -> Iterator[tuple[int, int]]:
    yield from spans_where(_TWICE, text, lambda start, end: not _NOT_NAMES.search(text[start:end]) and not is_pair(text, start))


def _find_only_surname(text: str) -> Iterator[tuple[int, int]]:
    if "姓" in text:
        yield from (match.span("name") for match in _ONLY_SURNAME.finditer(text))


_PINYIN = lazy_pattern(r"(?<![A-Za-z])(?P<surname>[A-Za-z]{2,8}) (?P<given>[A-Za-z]{2,12}(?: [A-Za-z]{2,6})?)(?![A-Za-z])")
_PINYIN_CUE = lazy_pattern(rf"(?:叫|是|人|名|者|姓名|医生|jiao|shi|[:(]|{_PATIENTS}|{_STAFF}|{_KIN})[ ]?$")


def _find_pinyin(text: str) -> Iterator[tuple[int, int]]:
    """In a text with Chinese characters: capitals, or small letters behind a cue."""
    for match in _PINYIN.finditer(text):
        surname, given = match["surname"], match["given"].split()
        if surname.lower() not in PINYIN_SURNAMES or not 1 <= sum(map(count_syllables, map(str.lower, given))) <= 2:
            continue
        if not all(count_syllables(part.lower()) for part in given):
            given, end = given[:1], match.start("given") + len(given[0])
        else:
            end = match.end()
        capital = surname[0].isupper() and given[0][0].isupper()
        if capital or _PINYIN_CUE.search(text, max(0, match.start() - 6), match.start()):
            yield match.start(), end


FINDERS = (
    Finder("foreign name with a dot", "NAME", ("患者{阿依古丽·买买提}来诊", "家属{约翰·史密斯}同意"), _find_dotted),
    Finder("characters kept apart by spaces", "NAME", ("5床{周 晓 萍}拔管", "我爷爷{蒋 欢}得了戊肝"), _find_spaced),
    Finder("behind a label with a colon", "NAME", ("审核：{钭志明}",), _find_labelled),
    Finder("behind a patient, relative or colleague, or called to a room", "NAME", ("我侄女{苗小芸}，咳嗽", "请{钭芸}到3号诊室"), _find_behind_relation),
    Finder("before a polite title", "NAME", ("您好，{温暖}女士有约",), _find_polite),
    Finder("pet name", "NAME", ("患儿{蛋蛋}发热",), _find_twice),
    Finder("surname alone", "NAME", ("患者姓{钭}，名不详",), _find_only_surname),
    Finder("pinyin", "NAME", ("患者{Zhang Weimin}来诊", "我叫{wang xiao li}，"), _find_pinyin),
)  # fmt: skip
