r"""Identifiers by their form, as regular expressions over folded text; group `x`, where there is one, is what is taken out.

Every repetition has a bound and a first character of its own, so that long hostile text costs no more than plain text.
"""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
from __future__ import annotations

import re
from typing import NamedTuple


class Form(NamedTuple):
    """A pattern and what a text must at least hold for it to match: most texts are spared most patterns by that look."""

    kind: str
    pattern: re.Pattern[str]
    digits: int
    """The fewest digits a match can have."""
    signs: tuple[str, ...]
    """One of these must be in the text, in lower case."""
    group: int | str
    """The part that is taken out."""
    code: bool
    """A match holds three letters or digits in a row (`CODE`), one of them a digit."""
    month: bool
    """A match holds the name of a month (`MONTH`)."""


CODE = re.compile(r"\d[A-Za-z0-9_\-/]{2}|[A-Za-z0-9_\-/]\d[A-Za-z0-9_\-/]|[A-Za-z0-9_\-/]{2}\d")


MONTH = re.compile(r"(?<![A-Za-z])(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}(?![A-Za-z])", re.I)


def _form(kind: str, digits: int, pattern: str, *signs: str, flags: int = 0, code: bool = False, month: bool = False) -> Form:
    compiled = re.compile(pattern, flags)
    return Form(kind, compiled, digits, signs, "x" if "x" in compiled.groupindex else 0, code, month)


def _by_letter(words: str) -> str:
    """The same alternatives, those with the same first letter together: at most places one look at a letter is enough."""
    letters: dict[str, list[str]] = {}
    for word in words.split("|"):
        letters.setdefault(word[0].lower(), []).append(word[1:])
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in letters.items())


_ID = r"[A-Za-z0-9][A-Za-z0-9_\-/]{2,29}"
_WITH_DIGIT = r"(?=[A-Za-z_\-/]{0,12}\d)"
_NO = r"(?:number|num|no\.?|id|code|#)"
_NUMBERED = (  # things that have a number of their own; the word for it follows
    "patient|chart|record|member|health plan|insurance|licen[cs]e|serial|lot|implant|pacemaker|claim|case"
    "|encounter|visit|specimen|order"
    "|referral|invoice|group|beneficiary|subscriber|certificate|badge|employee|student|hospital|device|file"
    "|reference|confirmation|prescription|rx"
)
_ALONE = (  # these need no such word
    "MRN|med(?:ical)?\\.? rec(?:ord)?|account|acct\\.?|policy|NPI|DEA|passport|S/N|IMEI|UDI|plate|SSN|social security|tax id"
    "|driver'?s licen[cs]e"
    "|accession|fingerprint|voiceprint|retinal? scan|biometric|VIN|medicare|medicaid|HIC|NHS|device serial|licen[cs]e plate"
)
_LABELS_EN = rf"(?:{_by_letter(_NUMBERED)}) {_NO}|(?:{_by_letter(_ALONE)})(?: {_NO})?"
_LABELS_ZH = (
    "病历号|病案号|住院号|门诊号|就诊号|就诊卡号?|登记号|检查号|影像号|标本号|条码号|医保(?:卡|账)?号|医保卡"
    "|医疗保险号|社会保障号|参保号|个人编号|社保卡?号|保单号|保险单号"
    "|护照号?码?|军官证号?|工号|执业证(?:书)?(?:编)?号|车牌号?|银行卡号?|卡号|账号|体检号|样本号|报告单?号|急诊号"
    "|港澳通行证号?|通行证号?|台胞证号?|驾驶证号?|驾照号?|车架号|发动机号"
    "|处方号|订单号|快递单号|运单号|发票号码?|流水号|条形码|准考证号?|学籍号|单号|票号|编号|残疾证号?|献血证号?|预约号|缴费单号|序号|就诊码|健康码"
    "|指纹编号|声纹编号|档案号|健康卡号|电子健康卡|登记证号|学号|身份证(?:号码?)?|证件号码?|病员号|ID号?|设备(?:序列)?号|序列号"
)
_CUES = (  # whatever has a number of its own, said before that number
    "MRN|CSN|FIN|HAR|EMR|EHR|UHID|MPI|med(?:ical)? rec(?:ord)?|chart|claim|case|accession|path(?:ology)?|surgical|cytology|histology|reference|ref"
    "|policy|member(?:ship)?|order|ticket|encounter|visit|specimen|sample|requisition|req|referral|auth(?:orization)?|prior auth(?:orization)?"
    "|approval|confirmation|complaint|incident|report|request|tracking|invoice|receipt|account|acct|file|record|folder|dossier|barcode|wristband"
    "|subscriber|beneficiary|group|certificate|permit|plan|insurance|insured|hospital|patient|pt|study|exam|imaging|radiology|lab|badge|employee|staff"
    "|appointment|booking|reservation|docket|matter|grievance|appeal|enrollment|registration|admission|discharge|transaction|payment|bill(?:ing)?"
    "|statement|script|prescription|rx|serial|device|implant|lot|licen[cs]e|NPI|DEA|passport|ID|identifier"
)
_RANGE = r"(?!\d{1,4}[\-/]\d{1,4}(?![\w\-/])|(?:19|20)\d{2}(?![\w\-/]))"  # 135-145, 120/80: values, not numbers of something
_NO_UNIT = r"(?![A-Za-z0-9%]|[.,]\d| ?(?:mg|mcg|ml|mL|g|kg|units?|IU|U|mmol|patients|cases|copies|cells|steps|calories|kcal|dollars|people|women|men|years|bpm|participants|children|adults|samples)\b)"
_ZH_GAP = r"(?:我记得|应该|好像|大概|可能|写的|写着|显示|查到了?|是|为|系|:|#|No\.?|NO\.?|no\.?|[ =\-(\[【\"“\n]){0,5}"
_ZH_CODE = r"(?:[A-Za-z]{1,6}[ \-]?)?(?=(?:[A-Za-z_\-/]{0,4}\d){3})[A-Za-z0-9]+(?:[_\-/][A-Za-z0-9]+){0,5}"
_THINGS_ZH = (
    "住院|门诊|急诊|病案|病历|病理|标本|样本|检验|检查|影像|内镜|超声|核磁|放射|医保|社保|保单|报案|案件|理赔|工单|订单|处方|票据|发票|挂号|就诊|登记"
    "|受理|投诉|档案|体检|单据|条码|申请单?|报告单|缴费单|收据|送检单|报销单|会诊单|随访卡|登记证|流水|单子上是|系统里查"
)
_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_YEAR, _M, _D = r"(?:19|20)\d{2}", r"(?:1[0-2]|0?[1-9])", r"(?:3[01]|[12]\d|0?[1-9])"
_TH, _CLOCK = r"(?:st|nd|rd|th)?", r"(?:[T ]\d{1,2}:\d{2}(?::\d{2})?)?"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ROADS = r"(?:Street|St|Avenue|Ave|Road|Rd|Drive|Dr|Lane|Ln|Boulevard|Blvd|Court|Ct|Way|Place|Pl|Square|Terrace|Parkway|Circle)"
_STREETS = tuple(_ROADS.lower().strip("()?:").split("|"))
_WAYS = ("street", "avenue", "ave", "road", "rd", "lane", "ln", "boulevard", "blvd")
_PROPER = r"[A-Z][A-Za-z'\-]{1,20}"
_GROUPS = r"\(?\+?\d{1,5}\)?(?:[ .\-]{1,2}\(?\d{2,8}\)?)"
_HOME = "家住|现住|住址|家庭住址|地址|户籍地址|居住于|居住在|住在"
_DAYS = "on|since|until|till|by|from|dated?|of|seen|admitted|discharged|visit(?:ed)?|scheduled|called|died|through|to|before|after|and|for|around|next|last|this|appointment|due|began|started"
_LONG_MONTH = "(?:January|February|April|June|July|August|September|October|November|December)"
_ZH_M, _ZH_D = (
    "(?:十[一二]?|[一二三四五六七八九])月",
    "(?:三十一?|[一二]?十[一二三四五六七八九]?|廿[一二三四五六七八九]?|[一二三四五六七八九])[日号]",
)
_OLD = r"(?:9\d|1[0-2]\d)(?!\d)"
_OLD_WORDS = r"(?:ninety(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?|(?:a|one) hundred(?: and)?(?: ?-?(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve))?)"
_ELDER = "(?:grand|great-grand)?(?:mother|father|ma|pa)|mom|mum|dad|patient|pt|resident|husband|wife|aunt|uncle|nana|granny|sister|brother|man|woman|lady|gentleman|veteran|widow|widower"
_CALL = "call|phone|tel|telephone|fax|mobile|cell|reach|contact|dial|text|number|whatsapp|answering"
_LINES = ("office", "fax", "mobile", "cell", "home", "work", "phone")

_USER, _HOST = r"[A-Za-z0-9][A-Za-z0-9._%+\-]{0,63}", r"[A-Za-z0-9][A-Za-z0-9\-]{0,62}"
_AT, _DOT = r" ?[\[(] ?at ?[\])] ?", r" ?[\[(] ?dot ?[\])] ?"

PATTERNS: tuple[Form, ...] = (
    _form(
        "EMAIL", 0, r"[A-Za-z0-9][A-Za-z0-9._%+\-]{0,63} ?@ ?[A-Za-z0-9][A-Za-z0-9\-]{0,62}(?:\.[A-Za-z0-9\-]{1,62}){1,4}", "@"
    ),
    _form(
        "EMAIL",
        0,
        rf"{_USER}(?:{_AT}{_HOST}(?:(?:{_DOT}|\.)[A-Za-z0-9\-]{{1,62}}){{1,3}}|@{_HOST}(?:{_DOT}[A-Za-z0-9\-]{{1,62}}){{1,3}})",
        "dot",
        "(at",
        "( at",
        "[at",
        "[ at",
        flags=re.I,
    ),
    _form("URL", 0, r"(?:https?://|ftp://|www\.)[^\s<>\"'，。；（）、]{2,500}", "://", "www.", flags=re.I),
    _form("MAC", 0, r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}[:\-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])", ":", "-"),
    _form("IP", 4, rf"(?<![\d.])(?:{_BYTE}\.){{3}}{_BYTE}(?![\d.]\d)", "."),
    _form("IP", 0, r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![0-9A-Fa-f:])", ":"),
    _form("SSN", 9, r"(?<!\d)\d{3}[- ]\d{2}[- ]\d{4}(?!\d)"),
    _form(
        "RECORD",
        1,
        rf"\b(?:{_LABELS_EN})\s{{0,2}}(?:is\s)?[:#=]{{0,2}}\s{{0,2}}#?(?P<x>{_WITH_DIGIT}{_ID})",
        flags=re.I,
        code=True,
    ),
    _form(
        "RECORD",
        1,
        rf"(?:{_LABELS_ZH})(?:是|为)?[ :#]{{0,3}}(?P<x>{_WITH_DIGIT}{_ID})",
        "号",
        "证",
        "卡",
        "照",
        "码",
        "id",
        code=True,
    ),
    _form(
        "RECORD",
        0,
        r"(?:微信号?|[Ww]e[Cc]hat(?: ID)?|QQ号?|支付宝|抖音号?|(?<![A-Za-z])(?:[VvWw][Xx]|V信))(?:是|为|同号)?[ :]{0,3}(?P<x>[A-Za-z0-9_\-]{5,30})",
        "微信",
        "wechat",
        "qq",
        "支付宝",
        "抖音",
        "wx",
        "vx",
        "v信",
    ),
    _form("VEHICLE", 1, r"(?<![A-Za-z0-9])(?=[A-Z]{0,16}\d)(?=[0-9]{0,16}[A-Z])[A-HJ-NPR-Z0-9]{17}(?![A-Za-z0-9])", code=True),
    _form(
        "PHOTO",
        0,
        r"(?<![\w./])[\w\-]{1,60}\.(?:jpe?g|png|heic|dcm|bmp|tiff?)\b",
        ".jp",
        ".png",
        ".heic",
        ".dcm",
        ".bmp",
        ".tif",
        flags=re.I,
    ),
    _form("PLATE", 0, rf"[{_PROVINCES}][A-HJ-NP-Z][· ]?[A-HJ-NP-Z0-9]{{5,6}}(?![A-Za-z0-9])", *_PROVINCES),
    _form("CARD", 15, r"(?<![\d.,/])\d{4}(?:[ \-]\d{4}){3}(?:[ \-]?\d{1,4})?(?!\d)|(?<!\d)3\d{3}[ \-]\d{6}[ \-]\d{5}(?!\d)"),
    _form("ID", 17, r"(?<!\d)\d{6}[ \-](?:\d{8}|\d{4}[ \-]\d{4})[ \-]\d{3}[\dXx](?![\dA-Za-z])"),
    _form(
        "RECORD",
        3,
        r"\b(?:SSN|social security|account|acct|card)[a-z ]{0,20}end(?:s|ing)(?: in| with)? (?P<x>\d{3,4})\b",
        "end",
        flags=re.I,
    ),
    _form(
        "RECORD",
        3,
        r"\b(?i:rx|claim|serial|member|chart|order|invoice|badge|employee|accession|specimen|ref(?:erence)?|confirmation|certificate"
        r"|licen[cs]e|beneficiary|plan|insurance|subscriber|pager|beeper|ext(?:ension|n)?|locker|id)\b\.?(?: (?:is|no\.?|number))?[ :#=]{1,3}"
        rf"(?P<x>{_RANGE}(?=(?:[A-Z\-/]{{0,12}}\d){{3}})[A-Z0-9][A-Z0-9\-/]{{3,24}}){_NO_UNIT}",
        code=True,
    ),
    # A cue and its number, with a few words between only where a sign or "is" leads up to the number.
    _form(
        "RECORD",
        4,
        rf"\b(?i:{_by_letter(_CUES)})\b\.?(?:(?: [a-z]{{1,12}}){{0,3}}(?: is| was|:| #| no\.?)|(?i:[ :#=]{{1,3}}(?:{_NO}|is|was|of))?)[ :#=\-]{{1,3}}"
        rf"(?P<x>{_RANGE}(?:[A-Z]{{1,5}}[ \-/]?)?(?=(?:[A-Z\-/_]{{0,3}}\d){{4}})[A-Z0-9]+(?:[\-/_][A-Z0-9]+){{0,5}}){_NO_UNIT}",
        code=True,
    ),
    _form(
        "RECORD",
        5,
        rf"\b(?i:MRN|medical record|chart|record)(?i: {_NO}| is|:){{0,2}} (?P<x>\d{{2,4}}(?: \d{{2,4}}){{1,3}})(?![\d.]){_NO_UNIT}",
        code=False,
    ),
    _form(
        "RECORD",
        5,
        rf"(?<![A-Za-z0-9&])(?:#|№|No\.) ?(?P<x>(?=(?:[A-Z\-/]{{0,3}}\d){{5}})[A-Z0-9]+(?:[\-/][A-Z0-9]+){{0,4}}){_NO_UNIT}",
        "#",
        "№",
        "no.",
        code=True,
    ),
    _form("RECORD", 6, r"(?<![A-Za-z0-9\-/.])[A-Z]{1,4}-?\d{2,4}-\d{4,8}(?![A-Za-z0-9.])", "-", code=True),
    # Anything called a 号 in Chinese, except beds, models and signs; and things that have one without saying the word.
    _form(
        "RECORD",
        4,
        rf"(?<![床型批信括符逗问引冒分句文楼房挡0-9一二三四五六七八九十])(?:号码?|编码|证号|ID)(?:[（(][^）()]{{1,8}}[）)])?{_ZH_GAP}(?P<x>{_ZH_CODE})",
        "号",
        "编码",
        "id",
        code=True,
    ),
    _form(
        "RECORD",
        5,
        rf"(?:{_THINGS_ZH})[ :#]{{0,3}}(?:[Nn][Oo][.:]? ?)?(?P<x>(?=(?:[A-Za-z\-/]{{0,3}}\d){{5}}){_ZH_CODE})(?![例人份个元次年月万%])",
        code=True,
    ),
    _form("RECORD", 3, r"(?:尾号|后[三四五六3-6]位)(?:数字?)?[是为 :]{0,3}(?P<x>\d{3,6})(?!\d)", "尾号", "位"),
    _form("RECORD", 5, r"[\u4e00-\u9fff]字第(?P<x>\d{5,9})号", "字第"),
    _form("RECORD", 6, r"(?<![A-Za-z0-9])(?P<x>[A-Z]{1,4}\d{6,14})号", "号"),
    _form("ADDRESS", 6, r"(?:邮编|邮政编码)[ :是为]{0,3}(?P<x>\d{6})(?!\d)", "邮"),
    _form(
        "ADDRESS",
        5,
        r"\b(?:zip|postal)(?: ?code)?(?: is| of)?[ :#]{1,3}(?P<x>\d{5}(?:-\d{4})?)(?!\d)",
        "zip",
        "postal",
        flags=re.I,
    ),
    _form("ADDRESS", 8, r"(?<![\d.])-?\d{1,3}\.\d{3,8}°?[ ,NS]{1,4}-?\d{1,3}\.\d{3,8}(?![\d.])", "."),
    _form(
        "IP",
        0,
        r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,6}::(?:[0-9A-Fa-f]{1,4}:){0,6}[0-9A-Fa-f]{1,4}(?![0-9A-Fa-f:])",
        "::",
    ),
    _form(
        "IBAN",
        2,
        r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])",
        flags=re.I,
        code=True,
    ),
    _form("DATE", 6, rf"(?<!\d){_YEAR} ?(?:[-/.]|年) ?{_M} ?(?:[-/.]|月) ?{_D}(?!\d)(?: ?(?:日|号))?{_CLOCK}"),
    _form("DATE", 2, rf"(?<!\d)(?:\d{{2}} ?年 ?)?{_M} ?月 ?{_D} ?(?:日|号)", "月"),
    _form("DATE", 8, rf"(?<![\dA-Za-z\-]){_YEAR}(?:1[0-2]|0[1-9])(?:3[01]|[12]\d|0[1-9])(?![\dA-Za-z\-])"),
    _form("DATE", 4, rf"(?<![\d/.\-])[0-3]\d([/\-]){_M}\1{_D}(?![\d/.\-])"),
    _form("DATE", 4, rf"(?<![\d/.\-A-Za-z])[0-3]\d\.{_M}\.{_D}(?=[\u4e00-\u9fff，。；、])(?![项条例])", "."),
    _form(
        "DATE",
        2,
        rf"(?<![\d/.])(?P<x>{_M}[./]{_D})(?=日|号?[日晚早上下]?[午]?(?:入院|出院|住院|手术|复查|复诊|就诊|来院|转入|转出|门诊|查房))",
        ".",
        "/",
    ),
    _form(
        "DATE",
        0,
        r"(?:[一二]?[〇零○一二三四五六七八九]{2}年)?(?:正|腊|冬|闰?(?:十[一二]?|[一二三四五六七八九]))月(?:初[一二三四五六七八九十]|三十|[一二]?十[一二三四五六七八九]?|廿[一二三四五六七八九]?)(?!个|天|余|多|[几年例一二三四五六七八九十]|分|次)(?:日|号)?",
        "月",
    ),
    _form(
        "DATE",
        1,
        rf"\b(?:{_by_letter(_DAYS)}) (?:the )?(?P<x>{_MONTH} {_D}{_TH})(?![\d.]| ?(?:mg|patients|cases|%|of ))",
        flags=re.I,
        month=True,
    ),
    _form("DATE", 1, rf"\b{_LONG_MONTH} {_D}{_TH}(?![\d.]| ?(?:mg|patients|cases|%|of ))", month=True),
    _form("DATE", 1, rf"(?<![\d.]){_D}{_TH}(?: of)? {_MONTH}(?:,? {_YEAR})?(?![A-Za-z\d])", month=True),
    _form("DATE", 3, rf"(?<![\d.\-]){_D}([ \-/.]?){_MONTH}\1(?:19|20)?\d{{2}}(?!\d)", flags=re.I, month=True),
    _form("DATE", 6, rf"(?<![\d.]){_D}\.{_M}\.{_YEAR}(?![\d]|\.\d)"),
    _form(
        "DATE", 2, rf"\b(?:{_by_letter(_DAYS)}) (?P<x>{_M}/{_D})(?![\d/]|\.\d| ?(?:mg|tab|of|dose|pain|cup|%))", "/", flags=re.I
    ),
    _form("DATE", 0, rf"[一二][〇零○OoQ一二三四五六七八九]{{3}}年{_ZH_M}(?:{_ZH_D})?", "月"),
    _form("DATE", 0, rf"{_ZH_M}{_ZH_D}", "月"),
    _form("DATE", 2, rf"(?<!\d){_M}月{_D}(?=[，。,;；、 ]|$|晚|早|上午|下午|凌晨|来|入|出|因|就|住)", "月"),
    _form("DATE", 4, rf"(?<![\d/]){_M}([/\-]){_D}\1(?:19|20)?\d{{2}}(?![\d/]){_CLOCK}"),
    _form("DATE", 6, rf"(?<![\d/]){_D}([/\-]){_M}\1{_YEAR}(?![\d/]){_CLOCK}"),
    _form("DATE", 5, rf"\b{_MONTH} {_D}{_TH}(?:, ?| ){_YEAR}\b", flags=re.I, month=True),
    _form("DATE", 5, rf"(?<!\d){_D}{_TH} {_MONTH},? {_YEAR}\b", flags=re.I, month=True),
    _form("DATE", 4, r"(?:出生日期|出生于|生日|生于)[ :是为]{0,3}(?P<x>\d{4}(?:年|[-/.])?\d{0,2}(?:月|[-/.])?\d{0,2}日?)"),
    _form(
        "DATE",
        1,
        r"\b(?:DOB|date of birth|born(?: on)?)[ :]{0,3}(?P<x>[A-Za-z0-9][A-Za-z0-9,/.\- ]{3,20}\d)",
        "dob",
        "birth",
        "born",
        flags=re.I,
    ),
    _form(
        "AGE",
        2,
        rf"(?<![\d.]){_OLD}(?= ?(?:[多来余]|几)?(?:周岁|虚岁|高?岁|高龄|高寿|华诞|寿辰|大寿)|[- ]?(?:years?|yrs?\.?)[- ]?(?:old|of age|young)|[- ]?(?:y[./-]?o\b|y\. ?o\.))",
        "岁",
        "高",
        "寿",
        "诞",
        "y",
        flags=re.I,
    ),
    _form("AGE", 2, rf"\b(?:aged?|ages|age of|age is|age was|age)[: =]{{1,3}}(?P<x>{_OLD})(?!\d|[.%/]\d|%)", "age", flags=re.I),
    _form(
        "AGE",
        2,
        rf"\b(?:turn(?:s|ed|ing)|will be|now|at the ripe old age of)(?: just| already)? (?P<x>{_OLD})(?=[,.;!?]?(?: (?:and|in|on|this|next|last|but|years?|today|yesterday|soon)\b|\s*$|[.!]))(?! ?%)",
        "turn",
        "will be",
        "now",
        flags=re.I,
    ),
    _form(
        "AGE",
        2,
        rf"\b(?:she|he|who|{_ELDER})(?:['’]s| is| was|, now|, just turned| would be| had been)(?: now| already| almost| nearly| about| over| only| just| some)? (?P<x>{_OLD})(?![\d.%/]\d|%|/| ?(?:mg|kg|lb|lbs|bpm|mm|percent|beats|degrees|pounds|cm|minutes|days|hours)\b)",
        "is",
        "was",
        "s",
        ",",
        flags=re.I,
    ),
    _form(
        "AGE",
        2,
        rf"(?:[A-Z][a-z]{{2,20}}|\b(?:{_ELDER})),? \(?(?P<x>{_OLD})(?=\)|, (?:was|is|has|had|who|lives|presents|presented|came|fell|of|from|a|an|with|admitted|died|reports|reported|takes|needs|complains|still|f|m|F|M|female|male)\b)",
    ),
    _form(
        "AGE",
        2,
        rf"(?:^|[.;:\n] ?|\b(?:[Pp]t|[Pp]atient|[Tt]his|[Aa]n?|is) )(?P<x>{_OLD}) ?/?(?=(?:[MF]|[Mm]ale|[Ff]emale|[Ww]oman|[Mm]an|[Ll]ady|[Gg]entleman)\b(?:[ ,]|$))",
    ),
    _form("AGE", 2, rf"(?<![\d.]){_OLD}(?=(?:th|st|nd|rd) (?:birthday|year)\b)", "th", "st", "nd", "rd"),
    _form(
        "AGE",
        2,
        rf"\b(?:I am|I['’]m|s?he['’]ll be|(?:is|was) also)(?: now| already)? (?P<x>{_OLD})"
        r"(?=[,.;!?]?(?: (?:and|in|on|this|next|but|with|years?|so|now)\b|\s*$)|[.,!?] )",
        " am ",
        "'m",
        "’m",
        "ll be",
        "also",
        flags=re.I,
    ),
    _form("AGE", 2, rf"\b(?:wom[ae]n|m[ae]n|lady|gentleman|veteran|widow|widower) of (?P<x>{_OLD})\b(?! ?%)", " of "),
    _form("AGE", 2, rf"\b[Aa]t (?P<x>{_OLD})(?=,? (?:she|he|I|my|they)\b)", "t 9", "t 1"),
    _form(
        "AGE",
        2,
        rf"(?:爷|奶|外公|外婆|姥姥|姥爷|父亲|母亲|爸|妈|老人|老伴|患者)(?:家|今年|已经|都|快|现在){{0,2}}(?P<x>{_OLD})(?=了|[,，。])",
        "了",
        "，",
        ",",
        "。",
    ),
    _form("AGE", 2, rf"(?<![\d.]){_OLD}(?=[- ](?:years?|yrs?)\b,? ?(?:[,.;)]|\b(?:f|m|female|male|woman|man|F|M)\b))", "y"),
    _form(
        "AGE",
        0,
        r"九十[一二三四五六七八九]?(?=[多来余几]?[周虚高]?[岁龄寿])|一百[零〇一二三四五六七八九十]{0,3}(?=[多来余]?[周虚高]?岁)|百岁(?=老|高|寿|诞)|(?<=[逾过近届])(?:九旬|百岁)|九旬(?=老|高|的?[母父奶爷祖外婆])",
        "岁",
        "旬",
        "九十",
    ),
    _form(
        "AGE", 0, rf"\b{_OLD_WORDS}(?=[- ](?:years?|yrs?)[- ](?:old|of age|young)|[- ]?y/?o\b)", "ninety", "hundred", flags=re.I
    ),
    _form(
        "AGE",
        0,
        rf"\b(?:aged?|age of|turn(?:s|ed|ing)|is|was|she['’]s|he['’]s|will be|now|at)(?: now| almost| nearly| about| already)? (?P<x>{_OLD_WORDS})(?! ?(?:percent|%|days|minutes|milligrams|mg|degrees|hours|dollars|patients|pounds|seconds|per|beats|over))\b",
        "ninety",
        "hundred and",
        flags=re.I,
    ),
    _form(
        "AGE",
        0,
        r"\b(?:ninet(?:ieth|y-(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth))|(?:one )?hundred(?:th| and \w{3,9}th))(?= birthday)",
        "birthday",
        flags=re.I,
    ),
    _form("AGE", 0, r"(?:年龄|虚岁|今年|已经?|年纪|都|快)(?P<x>九十[一二三四五六七八九]?)(?=了|[,，。、；;]|$)", "九十"),
    _form(
        "AGE",
        2,
        rf"(?:年龄|年纪|高龄|虚岁|周岁|享年|终年|今年|已经|快|都)[ :是为已有]{{0,2}}(?P<x>{_OLD})(?=了|岁|周岁|高龄|[,，。、；;！!？? ]|$)(?![ ]?(?:mm|次|%|kg|斤|分|元))",
        "年",
        "龄",
        "岁",
        "已经",
        "快",
        "都",
    ),
    _form(
        "AGE",
        2,
        r"(?<=\bis )(?:9\d|1[0-2]\d)(?= and (?:lives|well|still|very|frail|has|in|active|otherwise)\b| years)",
        "is 9",
        "is 1",
    ),
    _form(
        "PHONE",
        10,
        r"(?<![\d-])(?:\+?1[ .\-]?|001[ .\-])?\(?\d{3}\)?[ .\-]?\d{3}[ .\-]\d{4}(?:,? ?(?:x|ext\.?) ?\d{1,6})?(?!\d)",
        flags=re.I,
    ),
    _form("PHONE", 10, r"(?<!\d)(?:\(0\d{2,3}\)|0\d{2,3})[ \-]?\d{4}[ \-]?\d{3,4}(?:-\d{1,5}| ?(?:转|ext\.?) ?\d{1,6})?(?!\d)"),
    _form("PHONE", 9, r"(?<!\d)(?:400|800)[ \-]?\d{3,4}[ \-]?\d{3,4}(?!\d)"),
    _form("PHONE", 3, r"(?<![\w.])\+\d{1,3}[ \-.(]{1,2}\d[\d \-.()]{5,18}\d", "+"),
    _form(
        "PHONE",
        2,
        r"(?:电话|座机|传真|手机|联系方式|phone|tel|fax|mobile|cell)[ :是为.#]{0,4}(?P<x>\+?\d[\d \-]{5,18}\d)",
        "电话",
        "座机",
        "传真",
        "手机",
        "联系方式",
        "phone",
        "tel",
        "fax",
        "mobile",
        "cell",
        flags=re.I,
    ),
    _form("PHONE", 5, rf"\b(?:{_by_letter(_CALL)})\b[^\d\n]{{0,25}}(?P<x>{_GROUPS}{{1,5}})(?!\d)", flags=re.I),
    _form("PHONE", 7, rf"\b(?:{_by_letter(_CALL)})\b[^\d\n]{{0,25}}(?P<x>\d{{7,8}})(?!\d)", flags=re.I),
    _form("PHONE", 5, rf"(?<![\d.,/])(?P<x>{_GROUPS}{{1,4}})(?= ?[-(]? ?(?:{'|'.join(_LINES)})\b)", *_LINES, flags=re.I),
    _form("PHONE", 5, r"(?<![\d.,/+\-])(?:\(0?\d{1,4}\)|0\d{1,4})(?:[ \-]\d{2,4}){2,4}(?![\d.,]|\s?(?:mg|ml|%))"),
    _form("PHONE", 6, r"(?<![\d.,/+\-A-Za-z])(?:\(0?\d{1,4}\)|0\d{1,4})[ \-]?\d{5,8}(?![\d.,])"),
    _form(
        "ADDRESS",
        0,
        rf"(?:{_HOME})(?:是|为"
        rf"|在)?[ :]{{0,3}}(?P<x>(?=[^\s，。；,;]{{0,40}}[省市县区镇乡村路街巷弄号座栋室])[^\s，。；,;！？!?]{{4,60}})",
        "住",
        "址",
    ),
    _form(
        "ADDRESS",
        6,
        rf"\b\d{{1,6}} (?:{_PROPER} ){{1,4}}(?:{_ROADS}|[A-Z][a-z]{{2,12}})\b\.?(?:,? (?:Apt|Suite|Unit)\.? ?\w{{1,6}})?"
        rf"(?:,? {_PROPER}){{1,3}},? [A-Z]{{2}} \d{{5}}(?:-\d{{4}})?",
    ),
    _form(
        "ADDRESS",
        1,
        r"\b(?:[Ll]ives|[Ll]iving|[Rr]esides|[Aa]ddress)(?: is| at|:){1,2} (?P<x>(?=[^.;\n]{0,40}\d)[^.;\n]{5,80})",
        "lives",
        "living",
        "resides",
        "address",
    ),
    _form(
        "ADDRESS",
        1,
        rf"(?<![\d.,/])\d{{1,6}}[A-Z]? (?:(?:[NSEW]{{1,2}}\.?|North|South|East|West) )?(?:{_PROPER} |\d{{1,3}}(?:st|nd|rd|th) ){{1,3}}{_ROADS}\b\.?"
        rf"(?:,? (?:(?:Apt|Suite|Ste|Unit|Room|Rm|Fl)\.? ?#?|#)\w{{1,6}})?(?:, {_PROPER}(?: {_PROPER}){{0,2}}|(?=,? [A-Z]{{2}}\b))?(?:,? [A-Z]{{2}}\b)?(?:,? \d{{5}}(?:-\d{{4}})?)?",
        *_STREETS,
    ),
    _form("ADDRESS", 1, r"\bP\.? ?O\.? [Bb]ox \d{1,6}", " box "),
    _form("ADDRESS", 1, rf"\b\d{{1,6}} (?:{_PROPER} ){{1,3}}(?:Street|Avenue|Ave|Road|Rd|Lane|Ln|Boulevard|Blvd)\b\.?", *_WAYS),
)

# What must not be left after scrubbing, in looser terms than above.
_APART = re.compile(r"(?<!\d)\d(?:[^\w\n]{1,4}\d(?!\d)){9}")  # digits kept apart one by one
_SPELLED = re.compile(r"[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖]{7}")
_MAIL = re.compile(r"[A-Za-z0-9._\-]{1,64}[ \[(]{0,2}@[ \])]{0,2}[A-Za-z0-9\-]{2,63}[ \[(]{0,2}\.[ \])]{0,2}[A-Za-z]{2}")
_NAMED = re.compile(r"(?:身份证|SSN|social security)[^\d\n]{0,12}\d{4}")


def left_over(folded: str) -> bool:
    """Whether a scrubbed text still holds what looks like an identifier."""
    if "@" in folded and _MAIL.search(folded):
        return True
    if not folded.isascii() and _SPELLED.search(folded):
        return True
    return bool(_APART.search(folded) or _NAMED.search(folded)) if _SOME.search(folded) else False


_SOME = re.compile(r"\d[^\d]{0,4}\d")
