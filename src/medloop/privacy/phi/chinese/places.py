"""Chinese addresses, hospitals and towns: from their last word (路, 号, 医院) leftwards to a word that cannot be part of it."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from medloop.privacy.phi import lists

_HAN = "\u4e00-\u9fff"
# Ends of what came before: verbs and prepositions that lead up to a place.
_LEADS = re.compile(
    r"入住|转至|转到|转往|转入|送至|送到|送往|来到|来自|前往|就诊于|住院于|收住|收入|就职于|毕业于|任职于|位于"
    r"|居住在|家住|现住|住在|住址|地址|户籍|籍贯"
    r"|工作于|曾在|均在|去过|去了|到了|看过|推荐|选择|建议|以及|或者|还是|可以|直接|及时|需要|应该|立即|尽快|然后"
    r"|现在|目前|当时|已经|昨天|今天|上周|去年|后来|于是"
    r"|患者|病人|医生|大夫|专家|主任|家属|我们|你们|他们|自己|孩子|父亲|母亲|检查|手术|治疗|复查|就诊|看病|住院"
    r"|出生|挂号|体检|确诊|会诊|咨询|预约|化验|拍片"
    r"|(?<![协康仁安呼])和(?!田)|来(?!宾)"
    r"|[在到去于由至往从住入经转是与及的了为找看查赴向给对把被让请叫这那某各每有没不等或但而则又再也就还并且因时后前，。；：、]"
)
# What a hospital's own name begins with: towns and provinces (closed lists), armies, universities.
_TOWNS = lists.lines("towns_zh.txt")
_HOUSES = "东方肝胆|积水潭|邵逸夫|协和|同济|湘雅|华西|瑞金|仁济|华山|齐鲁|西京|宣武|天坛|安贞|阜外|盛京|长海|唐都|珠江|友谊|仁和"
_OWN = re.compile(
    f"{'|'.join(_TOWNS)}|[\u4e00-\u9fff]{{1,7}}?(?<![城都省地级县大各本全超])(?:市|县|区|自治州|旗|镇|乡)(?!级|里"
    f"|上|内|立|区)|第[一二三四五六七八九十0-9]{1, 3}"
)
_EMPTY = re.compile("哪家|哪个|哪些|什么|怎么|多少|那家|最好|附近|几家|专业|正规|权威|好的|一家|各大|当地|本地")
_TAILS = "医院|卫生院|卫生中心|保健院|卫生服务中心|疗养院|卫生所|诊所|医学中心"
_TAIL = re.compile(_TAILS)
_HOSPITAL = re.compile(rf"[{_HAN}A-Za-z0-9]{{2,22}}?(?:{_TAILS})")
_ROAD = re.compile(
    rf"(?:[{_HAN}]{{1,10}}(?:省|自治区|特别行政区|市|自治州|州|盟|县|区|旗|镇|乡|街道|村|社区)[ ,]?){{1,5}}"
    rf"(?:[{_HAN}A-Za-z0-9]{{1,12}}?(?:路|街|大道|巷|弄|胡同|小区|花园|公寓|家园|新村|广场|大厦|苑)){{0,2}}"
    r"(?:[A-Za-z0-9一二三四五六七八九十\-]{1,6}(?:号|弄|组|队|栋|幢|座|楼|单元|室|层|户|院)){0,5}(?:\d{1,4}(?:[\-#]\d{1,4}){1,3})?"
)
_NUMBERED = re.compile(
    rf"[{_HAN}]{{2,8}}(?:路|街|大道|巷|弄|胡同|小区|花园|公寓|家园|新村|大厦|苑|名邸|家苑|山庄|公馆|华庭)[ ]?"
    r"(?:(?:[A-Za-z0-9一二三四五六七八九十\-]{1,6}(?:号|弄|组|栋|幢|座|楼|单元|室|层)){1,5}|\d{1,4}(?:[\-#]\d{1,4}){1,3})"
)
_TOWN = re.compile(
    rf"(?:家在|老家|来自|籍贯|出生地|户籍地?|现居|定居)(?:是|在|于|为)?[ :：]?(?P<x>[{_HAN}]{{2,9}}?(?:省|市|县|区|镇|乡|村|州))"
)
_DETAIL = re.compile(
    r"(?:名邸|山庄|公馆|华庭|路|街|大道|巷|弄|胡同|小区|花园|公寓|家园|新村|广场|大厦|苑|\d号|镇|乡|村|座|栋|室)"
)
_UNIT = re.compile("省|自治区|市|县|区|州|盟|旗|镇|乡|村")
_NOT_UNIT = re.compile(
    "社区|地区|城区|市场|都市|区别|区域|病区|院区|山区|农村|乡村|城市|县城|区分|疫区|腹区|心前区|胸前区|肝区|肾区"
    "|胃区|全市|全省|区内|骶区|肺区"
)
Span = tuple[int, int, str]


_MIXED = re.compile(r"[a-z] [A-Z]|[a-z]{2}, [A-Z]|\n[A-Z]")
_WORD = r"(?:[A-Z][a-z]{1,15}(?:['’]s)?|[A-Z][a-z]{1,3}[A-Z][a-z]{2,12})"
_HOUSE = (
    "Hospitals?|Medical Cent(?:er|re)|Med(?:ical)? Ctr|Clinics?|Health Cent(?:er|re)|Health System|Healthcare|Urgent Care|Infirmary|Hospice|Nursing Home|Surgery Center"
    "|Surgical Center|Cancer Center|Care Center|Family Practice|Family Medicine|Medical Group|Rehab(?:ilitation)?(?: Center| Hospital)?|Imaging|Dialysis|Pediatrics|Dental"
    "|Senior Living|Assisted Living|Birth Center|Walk-In|Orthopedics|Cardiology Associates|Associates|Pharmacy|Wellness Center|Manor"
)
_SORTS = (
    "Family|Community|General|Regional|Memorial|Children['’]?s|Women['’]?s|University|County|City|Veterans|VA|Medical|Health|Surgical|Dental|Eye|Heart|Cancer|Pain|Sleep|Kidney"
    "|Specialty|District|National|Methodist|Baptist|Lutheran|Presbyterian|Catholic|Jewish|Adventist|Internal Medicine|Primary Care|Pediatric|Physical Therapy"
)
# A name of its own, perhaps what sort it is, and what it is.
_HOSPITAL_EN = re.compile(
    rf"(?P<x>(?:(?:St\.?|Saint|Mount|Mt\.?|San|Santa|Our Lady of|Holy|Good) )?(?P<own>{_WORD}(?:(?: |-)(?!(?:{_HOUSE})\b){_WORD}){{0,3}}) (?:(?:{_SORTS}) ){{0,2}}(?:{_HOUSE}))(?![A-Za-z])"
)
_SHORT_EN = re.compile(
    rf"(?:\b(?:at|to|from|of|in|by|near|via|left|leaving|visited)(?: the)? |(?:MD|RN|DO|NP|PA), |(?:^|\n))"
    rf"(?P<x>(?:(?:St\.?|Saint|Mount|Mt\.?) )?(?P<own>{_WORD}(?: {_WORD})?) (?:General|Regional|Memorial|Children['’]s|Methodist|Baptist|Presbyterian|Mercy))(?=[.,;:!?)\n]|$| (?:and|for|with|on|after|in|where|who|last|this|ER|ED|ICU|by|to)\b)"
)
_SAINT = re.compile(
    r"\b(?P<x>(?:St\.?|Saint|Mount|Mt\.?) [A-Z][a-z]{2,14}['’]s(?: (?:Hospital|General|Regional))?)(?! [Ww]ort)|\b(?:at|to|from|of|in) (?P<y>(?:Mount|Mt\.?|Saint|St\.) [A-Z][a-z]{2,14}(?:['’]s)?)(?! (?:[Ww]ort|[a-z]{4,12}itis|virus))"
)
_CITY = re.compile(
    r"\b(?:[Mm]an|[Ww]oman|[Mm]ale|[Ff]emale|[Ll]ady|[Gg]entleman|[Bb]oy|[Gg]irl|[Rr]esident|[Nn]ative|[Vv]eteran|[Ff]armer|[Tt]eacher|[Ss]tudent|[Vv]isitor|[Rr]etiree|[Vv]isiting|[Tt]ransferred|[Hh]ails) (?:from|of) (?P<x>[A-Z][a-z]{2,14}(?: [A-Z][a-z]{2,14})?)"
    r"|\b(?:him|her|them|me|us|lives?|living|lived|moved|moving|born|raised|grew up|stayed|staying|relatives|family|sister|brother|son|daughter|mother|father|parents|home|house|apartment|office|vacation|trip|flight|flew|drove|driving|drive|travel(?:ed|ing)?|returned|works?|working|worked|job) (?:back )?(?:in|to|from|near|outside) (?P<y>[A-Z][a-z]{2,14}(?: [A-Z][a-z]{2,14})?)"
)
_NO_CITY = frozenset(
    "January February March April May June July August September October November December Monday Tuesday Wednesday Thursday Friday Saturday Sunday Christmas Easter Thanksgiving English Spanish French German Chinese Room Bed Unit Ward Building Suite The This That Hospice Hospital Emergency Clinic Rehab Radiology Cardiology Oncology Triage Surgery Recovery Medicaid Medicare Part".split()
)
_GENERAL = frozenset(
    "The A An This That Our Your My His Her Their Local Nearest New Same Other Another Every Any Each Emergency Outpatient Inpatient Teaching Private Public Rural Urban Academic Tertiary Acute Mental Behavioral Home Hospital Clinic In At To From For And Or If When After Before Please Call Visit Go Children Pain Memory Anticoagulation Sleep Travel Flu Fertility Wound Diabetes Heart Stroke Cancer Eye Dental Women Men Family Community General Regional Memorial University County City Medical Health Primary Secondary Special Specialty Physical Occupational Speech Cardiac Pulmonary Renal National International State Federal World Global Infusion Coumadin Warfarin Walk Urgent Day Night Free Mobile Virtual Online Ask Manager Internal Medicine Student Department Services Pediatric Adult Senior Military Patient Care Multidisciplinary Methadone".split()
)


def _english(folded: str) -> Iterator[Span]:
    """Hospitals ("Willow Creek Urgent Care", "St. Brigid's") and towns by what stands before or behind them."""
    for pattern in (_HOSPITAL_EN, _SHORT_EN):
        for match in pattern.finditer(folded):
            start = match.start("x")
            words = match["own"].split()
            while words and words[0] in _GENERAL:  # "Please call Willow Creek Urgent Care"
                start += len(words.pop(0)) + 1
            if words and not all(_sort_of(word) for word in words):
                yield start, match.end("x"), "ORG"
    for match in _SAINT.finditer(folded):
        group = "x" if match["x"] else "y"
        yield match.start(group), match.end(group), "ORG"
    for match in _CITY.finditer(folded):
        group = "x" if match["x"] else "y"
        first = match[group].split()[0]
        if first not in _NO_CITY and not set(lists.marks().get(first.lower(), "")) & set("KNDQ"):
            yield match.start(group), match.end(group), "PLACE"


_HOUSE_WORDS = frozenset(re.findall("[A-Z][a-z]+", f"{_HOUSE} {_SORTS}")) | {
    "Department",
    "Services",
    "Center",
    "Unit",
    "Office",
    "Room",
    "Desk",
}


def nobodys(words: Iterable[str]) -> bool:
    """Whether a department or a sort of clinic is named and no house of its own: "Internal Medicine Clinic"."""
    return all(word in _HOUSE_WORDS or not word[0].isupper() or _sort_of(word) for word in words)


def _sort_of(word: str) -> bool:
    """A word that says what sort of clinic it is: a department, an illness."""
    return word in _GENERAL or bool(
        re.search("(?:ology|ologic|iatric|iatrics|ics|ical|tion|ment|ing|gery|ancy|ity|emia|osis|itis|therapy|al|ic|ive)$", word)
    )


def find(folded: str) -> Iterator[Span]:
    """Spans of addresses ("ADDRESS"), hospitals ("ORG") and towns where somebody lives ("PLACE")."""
    if _MIXED.search(folded):
        yield from _english(folded)
    if folded.isascii():
        return
    if "院" in folded or "诊所" in folded or "卫生" in folded or "医学中心" in folded:
        yield from _hospitals(folded)
    if _DETAIL.search(folded):
        yield from _addresses(folded)
    for match in _TOWN.finditer(folded):
        yield match.start("x"), match.end("x"), "PLACE"


_LED = re.compile(
    "前来|来到|抄送[：:]?|前往|送到|赶到|到|去|回|来|往|入住|转至|转到|转往|转入|收住|就诊于|住院于|送至|送往|毕业于|任职于|由|在|于|至|经"
)
_SORT = re.compile(
    f"(?:市|县)?(?:第[一二三四五六七八九十]|{_HOUSES}|中$|中西|儿童|妇幼|省立|人民|妇产|中心|肿瘤|口腔|附属|骨科|精神|传染)"
)
# What sort of hospital it is; what is left of the name without that is its own.
_KINDS = re.compile(
    "第[一二三四五六七八九十]|儿童|妇幼|妇产|妇女|人民|中西医结合|中医药?|中心|肿瘤|口腔|附属|骨科|骨伤|精神|传染|康复|眼科|肛肠|胸科|皮肤|心血管|心理|脑科|整形|美容"
    "|体检|国际|老年|护理|红十字|医科|大学|总|分|综合|专科|男科|妇科|不孕|生殖|结核|职业病|医学|健康|齿科|牙科|儿科|糖尿病|肝病|肾病|泌尿|癫痫|血液|耳鼻喉"
)
_ORDINARY = re.compile(
    "[大小好坏新老近远别多少几两三二甲乙级省市县区乡镇村国军警队公私民营立某本外总分上下左右中内前后时间天日月年周住出回跑送开转陪带接搬进入离能会要想应可需必如若凡若再先才刚都只很太真最更]"
    "|同一|普通|院|医|诊|病|科|药|治|查|术|术|电话|手机|直接|尽快|马上|及时|附近|知名|著名|权威|有名|正式|指定|相关|合作|网络|互联网|在线|宠物|动物|兽|野战|方舱|黑|莆田系"
)
_COMMON = re.compile(
    "[的了是去到看这那某各每有没不个所等或但而则又再也就还并且因后我你他她它们您该谁哪专科级甲公私其另建议正规当附近社区基层定点患者病痛治疗检查住院手术]"
    "|综合|大型|较大|家$|本地|外地"
)


def _cut(folded: str, start: int, end: int) -> int:
    """Where the place itself begins: behind the last leading word before its final one."""
    last = start
    for lead in _LEADS.finditer(folded, start, max(start, end - 2)):
        last = lead.end()
    return last


def _hospitals(folded: str) -> Iterator[Span]:
    for match in _HOSPITAL.finditer(folded):
        tail = _TAIL.search(match[0])
        assert tail, "the pattern ends with one of the tails"
        until = match.start() + tail.start()
        own = _OWN.search(folded, _cut(folded, match.start(), until + 2), until)
        if own and not _EMPTY.search(folded, own.start(), until):
            yield own.start(), match.end(), "ORG"
        elif not own:
            yield from _unlisted(folded, match.start(), until, match.end())


def _unlisted(folded: str, start: int, until: int, end: int) -> Iterator[Span]:
    """A hospital of a town no list holds: behind a word that leads up to it, and more than its sort ("儿童", "中") alone."""
    led = None
    for led in _LED.finditer(folded, start, until):  # noqa: B007  the last one counts
        pass
    begins = led.end() if led else start
    if not led and start and folded[start - 1] not in "，。：:;；、 \n(（":
        return
    name = folded[begins:until]
    own = _KINDS.sub("", name)
    if led and name.endswith(("二", "三", "一")) and re.match(_HOUSES, name):
        own = name
    if (
        2 <= len(own) <= 4
        and name.startswith(own)
        and not _COMMON.search(own)
        and not _EMPTY.search(name)
        and not _ORDINARY.search(own)
    ):
        yield begins, end, "ORG"
        return
    sort = _SORT.search(name)
    house = sort and re.match(_HOUSES, name)
    if sort and (house or 2 <= sort.start() <= 4) and not _COMMON.search(name[: sort.start()]) and not _EMPTY.search(name):
        yield begins, end, "ORG"


def _addresses(folded: str) -> Iterator[Span]:
    for pattern in (_ROAD, _NUMBERED):
        for match in pattern.finditer(folded):
            start = _lead_of(folded, match.start(), match.end())
            piece = _NOT_UNIT.sub("", folded[start : match.end()])
            numbered = re.search(
                r"[\dA-Za-z一二三四五六七八九十](?:号|弄|组|栋|幢|座|楼|单元|室|层|院)|[^0-9][0-9]{1,4}[-#][0-9]{1,4}", piece
            )
            units = len(_UNIT.findall(piece))
            if len(piece) >= 5 and ((_DETAIL.search(piece) and numbered) or (units >= 2 and _DETAIL.search(piece)) or units >= 3):
                yield start, match.end(), "ADDRESS"


_STRONG = re.compile(r"家住|现住|住在|住址|地址|户籍|籍贯|居住在|位于|来自|送至|寄到|寄至|在|到|于|至|从|去|往|[，。；：、 ]")


def _lead_of(folded: str, start: int, end: int) -> int:
    last = start
    for lead in _STRONG.finditer(folded, start, min(end, start + 8)):
        last = lead.end()
    return last
