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
_LABELS_EN = rf"(?:{_NUMBERED}) {_NO}|(?:{_ALONE})(?: {_NO})?"
_LABELS_ZH = (
    "病历号|病案号|住院号|门诊号|就诊号|就诊卡号?|登记号|检查号|影像号|标本号|条码号|医保(?:卡|账)?号|医保卡"
    "|医疗保险号|社会保障号|参保号|个人编号|社保卡?号|保单号|保险单号"
    "|护照号?码?|军官证号?|工号|执业证(?:书)?(?:编)?号|车牌号?|银行卡号?|卡号|账号|体检号|样本号|报告单?号|急诊号"
    "|港澳通行证号?|通行证号?|台胞证号?|驾驶证号?|驾照号?|车架号|发动机号"
    "|处方号|订单号|快递单号|运单号|发票号码?|流水号|条形码|准考证号?|学籍号|单号|票号|编号|残疾证号?|献血证号?|预约号|缴费单号|序号|就诊码|健康码"
    "|指纹编号|声纹编号|档案号|健康卡号|电子健康卡|登记证号|学号|身份证(?:号码?)?|证件号码?|病员号|ID号?|设备(?:序列)?号|序列号"
)
_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_YEAR, _M, _D = r"(?:19|20)\d{2}", r"(?:1[0-2]|0?[1-9])", r"(?:3[01]|[12]\d|0?[1-9])"
_TH, _CLOCK = r"(?:st|nd|rd|th)?", r"(?:[T ]\d{1,2}:\d{2}(?::\d{2})?)?"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ROADS = r"(?:Street|St|Avenue|Ave|Road|Rd|Drive|Dr|Lane|Ln|Boulevard|Blvd|Court|Ct|Way|Place|Pl|Square|Terrace|Parkway|Circle)"
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
        r"(?P<x>(?=(?:[A-Z\-/]{0,12}\d){3})[A-Z0-9][A-Z0-9\-/]{3,24})(?![A-Za-z0-9.%])",
        code=True,
    ),
    _form("RECORD", 5, r"[\u4e00-\u9fff]字第(?P<x>\d{5,9})号", "字第"),
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
    _form("DATE", 2, rf"(?<!\d){_M}月{_D}(?:日|号)", "月"),
    _form(
        "DATE",
        1,
        rf"\b(?:{_DAYS}) (?:the )?(?P<x>{_MONTH} {_D}{_TH})(?![\d.]| ?(?:mg|patients|cases|%|of ))",
        flags=re.I,
        month=True,
    ),
    _form("DATE", 1, rf"\b{_LONG_MONTH} {_D}{_TH}(?![\d.]| ?(?:mg|patients|cases|%|of ))", month=True),
    _form("DATE", 1, rf"(?<![\d.]){_D}{_TH}(?: of)? {_MONTH}(?:,? {_YEAR})?(?![A-Za-z\d])", month=True),
    _form("DATE", 3, rf"(?<![\d.\-]){_D}([ \-/.]?){_MONTH}\1(?:19|20)?\d{{2}}(?!\d)", flags=re.I, month=True),
    _form("DATE", 6, rf"(?<![\d.]){_D}\.{_M}\.{_YEAR}(?![\d]|\.\d)"),
    _form("DATE", 2, rf"\b(?:{_DAYS}) (?P<x>{_M}/{_D})(?![\d/]|\.\d| ?(?:mg|tab|of|dose|pain|cup|%))", "/", flags=re.I),
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
    _form("AGE", 2, r"(?<!\d)(?:9\d|1[0-3]\d)(?= ?(?:岁|周岁|-?years?[- ]old|y/?o\b))", "岁", "year", "yo", "y/o", flags=re.I),
    _form("AGE", 2, r"\b(?:aged?|age of)[: ]{1,3}(?P<x>9\d|1[0-3]\d)(?!\d|[.%/])", "age", flags=re.I),
    _form("AGE", 2, r"(?<![\d.])(?:9\d|1[0-3]\d)(?= ?y\.? ?o\.)|(?<=\bturned )(?:9\d|1[0-3]\d)\b", "y", "turned", flags=re.I),
    _form(
        "AGE", 0, r"九十[一二三四五六七八九]?(?=[多来余]?[周高]?岁)|一百[零〇一二三四五六七八九十]{0,3}(?=岁)|百岁(?=老|高)", "岁"
    ),
    _form(
        "AGE",
        0,
        r"\b(?:ninety(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?|a hundred)(?=[- ]years?[- ]old)",
        "year",
        flags=re.I,
    ),
    _form("AGE", 2, r"年龄[ :]{0,2}(?P<x>9\d|1[0-3]\d)(?!\d)", "年龄"),
    _form("AGE", 2, r"(?<=\bis )(?:9\d|1[0-2]\d)(?= and\b|[,.;]| years)", "is 9", "is 1"),
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
    _form("PHONE", 5, rf"\b(?:{_CALL})\b[^\d\n]{{0,25}}(?P<x>{_GROUPS}{{1,5}})(?!\d)", flags=re.I),
    _form("PHONE", 7, rf"\b(?:{_CALL})\b[^\d\n]{{0,25}}(?P<x>\d{{7,8}})(?!\d)", flags=re.I),
    _form("PHONE", 5, rf"(?<![\d.,/])(?P<x>{_GROUPS}{{1,4}})(?= ?[-(]? ?(?:{'|'.join(_LINES)})\b)", *_LINES, flags=re.I),
    _form("PHONE", 5, r"(?<![\d.,/+\-])(?:\(0?\d{1,4}\)|0\d{1,4})(?:[ \-]\d{2,4}){2,4}(?![\d.,]|\s?(?:mg|ml|%))"),
    _form("PHONE", 6, r"(?<![\d.,/+\-])(?:\(0?\d{1,4}\)|0\d{1,4})[ \-]?\d{5,8}(?![\d.,])"),
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
