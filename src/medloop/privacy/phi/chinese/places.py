"""Chinese addresses, hospitals and towns: from their last word (路, 号, 医院) leftwards to a word that cannot be part of them."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
from collections.abc import Iterator

from medloop.privacy.phi import lists
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.rules import Finder
from medloop.privacy.phi.spans import Span

_HAN = "\u4e00-\u9fff"
_NUMERAL = "[一二三四五六七八九十]"

# Hospitals. Verbs, prepositions and other words that end before the name begins:
_BEFORE_HOSPITAL = lazy_pattern(
    r"入住|转至|转到|转往|转入|送至|送到|送往|来到|来自|前往|就诊于|住院于|收住|收入|就职于|毕业于|任职于|位于"
    r"|居住在|家住|现住|住在|住址|地址|户籍|籍贯"
    r"|工作于|曾在|均在|去过|去了|到了|看过|推荐|选择|建议|以及|或者|还是|可以|直接|及时|需要|应该|立即|尽快|然后"
    r"|现在|目前|当时|已经|昨天|今天|上周|去年|后来|于是"
    r"|患者|病人|医生|大夫|专家|主任|家属|我们|你们|他们|自己|孩子|父亲|母亲|检查|手术|治疗|复查|就诊|看病|住院"
    r"|出生|挂号|体检|确诊|会诊|咨询|预约|化验|拍片"
    r"|(?<![协康仁安呼])和(?!田)|来(?!宾)"
    r"|[在到去于由至往从住入经转是与及的了为找看查赴向给对把被让请叫这那某各每有没不等或但而则又再也就还并且因时后前，。；：、]"
)
# Before a name that begins with no listed town, only these count:
_LEADS_TO_HOSPITAL = lazy_pattern(
    "前来|来到|抄送[：:]?|前往|送到|赶到|到|去|回|来|往|入住|转至|转到|转往|转入|收住|就诊于|住院于|送至|送往|毕业于|任职于|由|在|于|至|经"
)
_TAILS = "医院|卫生院|卫生中心|保健院|卫生服务中心|疗养院|卫生所|诊所|医学中心"
_TAIL = lazy_pattern(_TAILS)
_HOSPITAL = lazy_pattern(rf"[{_HAN}A-Za-z0-9]{{2,22}}?(?:{_TAILS})")
_TOWN_FIRST = lazy_pattern(
    f"{'|'.join(lists.lines('towns_zh.txt'))}"
    f"|[{_HAN}]{{1,7}}?(?<![城都省地级县大各本全超])(?:市|县|区|自治州|旗|镇|乡)(?!级|里|上|内|立|区)"
)
_FAMOUS_NAMES = (
    "东方肝胆|积水潭|邵逸夫|协和|同济|湘雅|华西|瑞金|仁济|华山|齐鲁|西京|宣武|天坛|安贞|阜外|盛京|长海|唐都|珠江|友谊|仁和"
)
_FAMOUS = lazy_pattern(_FAMOUS_NAMES)
# What sort of hospital it is. What is left of a name without these words is its own.
_SORTS = lazy_pattern(
    f"第{_NUMERAL}|肝移植|肝胆|胃肠|肠胃|儿童|妇幼|妇产|妇女|人民|中西医结合|中医药?|中心|肿瘤|口腔|附属|骨科|骨伤|精神|传染|康复|眼科|肛肠|胸科|皮肤|心血管|心理|脑科|整形|美容"
    "|体检|国际|老年|护理|红十字|医科|大学|总|分|综合|专科|男科|妇科|不孕|生殖|结核|职业病|医学|健康|齿科|牙科|儿科|糖尿病|肝病|肾病|泌尿|癫痫|血液|耳鼻喉"
)
_SORT_BEHIND_NAME = lazy_pattern(
    f"(?:市|县)?(?:第{_NUMERAL}|{_FAMOUS_NAMES}|中$|中西|儿童|妇幼|省立|人民|妇产|中心|肿瘤|口腔|附属|骨科|精神|传染)"
)
_ANY_HOSPITAL = lazy_pattern("哪家|哪个|哪些|什么|怎么|多少|那家|最好|附近|几家|专业|正规|权威|好的|一家|各大|当地|本地")
_NOT_IN_NAME = lazy_pattern(
    "[的了是去到看这那某各每有没不个所等或但而则又再也就还并且因后我你他她它们您该谁哪专科级甲公私其另建议正规当附近社区基层定点患者病痛治疗检查住院手术]"
    "|综合|大型|较大|家$|本地|外地"
)
_ORDINARY = lazy_pattern(
    "[大小好坏新老近远别多少几两三二甲乙级省市县区乡镇村国军警队公私民营立某本外总分上下左右中内前后时间天日月年周住出回跑送开转陪带接搬进入离能会要想应可需必如若凡若再先才刚都只很太真最更]"
    "|同一|普通|院|医|诊|病|科|药|治|查|术|术|电话|手机|直接|尽快|马上|及时|附近|知名|著名|权威|有名|正式|指定|相关|合作|网络|互联网|在线|宠物|动物|兽|野战|方舱|黑|莆田系"
)


def _find_hospitals(folded: str) -> Iterator[tuple[int, int]]:
    if not any(word in folded for word in ("院", "诊所", "卫生", "医学中心")):
        return
    for match in _HOSPITAL.finditer(folded):
        tail = _TAIL.search(match[0])
        assert tail, "the pattern ends with one of the tails"
        tail_start = match.start() + tail.start()
        town = _TOWN_FIRST.search(folded, _behind_last_lead(folded, match.start(), tail_start), tail_start)
        if town:
            if not _ANY_HOSPITAL.search(folded, town.start(), tail_start):
                yield town.start(), match.end()
        else:
            start = _unlisted_start(folded, match.start(), tail_start)
            if start is not None:
                yield start, match.end()


def _behind_last_lead(folded: str, start: int, tail_start: int) -> int:
    """Where the name can begin: behind the last leading word."""
    for lead in _BEFORE_HOSPITAL.finditer(folded, start, max(start, tail_start)):
        start = lead.end()
    return start


def _unlisted_start(folded: str, start: int, tail_start: int) -> int | None:
    """Where the name of a hospital begins that starts with no listed town; None if these words name no particular hospital."""
    lead = None
    for lead in _LEADS_TO_HOSPITAL.finditer(folded, start, tail_start):  # noqa: B007  the last one counts
        pass
    if lead:
        start = lead.end()
    elif start and folded[start - 1] not in "，。：:;；、 \n(（":
        return None
    name = folded[start:tail_start]
    if _ANY_HOSPITAL.search(name):
        return None
    return start if _has_own_name(name, lead is not None) or _has_sort_behind_name(name) else None


def _has_own_name(name: str, led: bool) -> bool:
    """Two to four characters that only this hospital has stand before its sort: 青山湖(医院), 湘雅三(医院)."""
    own = _SORTS.sub("", name)
    if led and name.endswith(("二", "三", "一")) and _FAMOUS.match(name):
        own = name
    return 2 <= len(own) <= 4 and name.startswith(own) and not _NOT_IN_NAME.search(own) and not _ORDINARY.search(own)


def _has_sort_behind_name(name: str) -> bool:
    """A famous name, or two to four characters before the sort: 协和, 香山县人民(医院)."""
    sort = _SORT_BEHIND_NAME.search(name)
    if not sort or not (_FAMOUS.match(name) or 2 <= sort.start() <= 4):
        return False
    return not _NOT_IN_NAME.search(name[: sort.start()])


_STREET = "路|街|大道|巷|弄|胡同|小区|花园|公寓|家园|新村"
_REGION_FIRST = lazy_pattern(
    rf"(?:[{_HAN}]{{1,10}}(?:省|自治区|特别行政区|市|自治州|州|盟|县|区|旗|镇|乡|街道|村|社区)[ ,]?){{1,5}}"
    rf"(?:[{_HAN}A-Za-z0-9]{{1,12}}?(?:{_STREET}|广场|大厦|苑)){{0,2}}"
    r"(?:[A-Za-z0-9一二三四五六七八九十\-]{1,6}(?:号院?|弄|组|队|栋|幢|座|楼|单元|室|层|户|院)){0,5}(?:\d{1,4}(?:[\-#]\d{1,4}){1,3}|(?<=[栋幢座楼元层])\d{2,4})?"
)
_STREET_FIRST = lazy_pattern(
    rf"[{_HAN}]{{2,8}}(?:{_STREET}|大厦|苑|名邸|家苑|山庄|公馆|华庭)[ ]?"
    r"(?:(?:[A-Za-z0-9一二三四五六七八九十\-]{1,6}(?:号院?|弄|组|栋|幢|座|楼|单元|室|层)){1,5}(?:(?<=[栋幢座楼元层])\d{2,4})?|\d{1,4}(?:[\-#]\d{1,4}){1,3})"
)
_DETAIL = lazy_pattern(rf"(?:名邸|山庄|公馆|华庭|{_STREET}|广场|大厦|苑|\d号|镇|乡|村|座|栋|室)")
_HOUSE_NUMBER = lazy_pattern(
    r"[\dA-Za-z一二三四五六七八九十](?:号|弄|组|栋|幢|座|楼|单元|室|层|院)|[^0-9][0-9]{1,4}[-#][0-9]{1,4}"
)
_REGION = lazy_pattern("省|自治区|市|县|区|州|盟|旗|镇|乡|村")
_NOT_REGION = lazy_pattern(
    "镇静|镇痛|镇定|镇咳|室性|室上|心室|脑室|病室|社区|地区|城区|市场|都市|区别|区域|病区|院区|山区|农村|乡村|城市|县城|区分|疫区|腹区|心前区|胸前区|肝区|肾区"
    "|胃区|全市|全省|区内|骶区|肺区"
)
_BEFORE_ADDRESS = lazy_pattern(
    r"家住|现住|住在|住址|地址|户籍|籍贯|居住在|位于|来自|送至|寄到|寄至|在|到|于|至|从|去|往|[，。；：、 ]"
)


def _find_addresses(folded: str) -> Iterator[tuple[int, int]]:
    if not _DETAIL.search(folded):
        return
    for regex in (_REGION_FIRST, _STREET_FIRST):
        for match in regex.finditer(folded):
            start, end = match.span()
            for lead in _BEFORE_ADDRESS.finditer(folded, start, min(end, start + 8)):
                start = lead.end()
            if _is_exact(_NOT_REGION.sub("", folded[start:end])):
                yield start, end


def _is_exact(address: str) -> bool:
    """A street with a house number, a street in two regions, or three regions: less is where many people live."""
    regions = len(_REGION.findall(address))
    if len(address) < 5:
        return False
    return regions >= 3 or (bool(_DETAIL.search(address)) and (regions >= 2 or bool(_HOUSE_NUMBER.search(address))))


_HOME_TOWN = lazy_pattern(
    rf"(?:家在|老家|来自|籍贯|出生地|户籍地?|现居|定居)(?:是|在|于|为)?[ :：]?(?P<town>[{_HAN}]{{2,9}}?(?:省|市|县|区|镇|乡|村|州))"
)


def _find_home_towns(folded: str) -> Iterator[tuple[int, int]]:
    for match in _HOME_TOWN.finditer(folded):
        yield match.span("town")


FINDERS = (
    Finder(
        "hospital that begins with a town, or with a name of its own",
        "ORG",
        ("于{西安市第一人民医院}就诊", "请到{青山湖医院}取报告", "随后去{湘雅三医院}复查", "昨天到{清河县人民医院}看了"),
        _find_hospitals,
    ),
    Finder(
        "address in regions, or a street with a house number",
        "ADDRESS",
        ("寄到{浙江省杭州市西湖区文三路8号}", "{听雨家苑3-2-501}有人摔倒"),
        _find_addresses,
    ),
    Finder("town where somebody lives or comes from", "PLACE", ("老家在{清河县}，",), _find_home_towns),
)


def find(folded: str) -> Iterator[Span]:
    """For text that is not ASCII."""
    for finder in FINDERS:
        for start, end in finder.find(folded):
            yield start, end, finder.kind
