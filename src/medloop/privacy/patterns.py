"""Identifiers by their form, as regular expressions over folded text: (kind, pattern); group `x` is what is taken out.

Every repetition has a bound and a first character of its own, so that long hostile text costs no more than plain text.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Form(NamedTuple):
    """A pattern and what a text must at least hold for it to match: most texts are spared most patterns by that look."""

    kind: str
    pattern: re.Pattern[str]
    digits: int
    signs: tuple[str, ...]


_ID = r"[A-Za-z0-9][A-Za-z0-9_\-/]{2,29}"
_WITH_DIGIT = r"(?=[A-Za-z_\-/]{0,12}\d)"
_NO = r"(?:number|no\.?|id)"
_LABELS_EN = (
    rf"MRN|medical record(?: {_NO})?|patient {_NO}|chart {_NO}|record {_NO}|account(?: {_NO})?|acct\.?|member {_NO}"
    rf"|policy(?: {_NO})?|health plan {_NO}|insurance {_NO}|licen[cs]e {_NO}|NPI|DEA|passport(?: {_NO})?"
    rf"|serial {_NO}|device (?:id|serial)|plate(?: {_NO})?|SSN|social security(?: {_NO})?"
)
_LABELS_ZH = (
    r"病历号|病案号|住院号|门诊号|就诊号|就诊卡号?|登记号|检查号|影像号|标本号|条码号|医保(?:卡|账)?号|医保卡"
    r"|社保卡?号|保单号|护照号?码?|军官证号?|工号|执业证(?:书)?(?:编)?号|车牌号?|银行卡号?|卡号|账号"
    r"|身份证(?:号码?)?|证件号码?|病员号|ID号?|设备(?:序列)?号|序列号"
)
_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_YEAR, _M, _D = r"(?:19|20)\d{2}", r"(?:1[0-2]|0?[1-9])", r"(?:3[01]|[12]\d|0?[1-9])"
_TH = r"(?:st|nd|rd|th)?"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_ROADS = r"(?:Street|St|Avenue|Ave|Road|Rd|Drive|Dr|Lane|Ln|Boulevard|Blvd|Court|Ct|Way|Place|Pl|Square|Terrace|Parkway|Circle)"
_PROPER = r"[A-Z][A-Za-z'\-]{1,20}"

_TABLE: tuple[tuple[str, str, int], ...] = (
    ("EMAIL", r"[A-Za-z0-9][A-Za-z0-9._%+\-]{0,63} ?@ ?[A-Za-z0-9][A-Za-z0-9\-]{0,62}(?:\.[A-Za-z0-9\-]{1,62}){1,4}", 0),
    ("URL", r"(?:https?://|ftp://|www\.)[^\s<>\"'，。；（）、]{2,500}", re.I),
    ("MAC", r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}[:\-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])", 0),
    ("IP", rf"(?<![\d.])(?:{_BYTE}\.){{3}}{_BYTE}(?![\d.]\d)", 0),
    ("IP", r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![0-9A-Fa-f:])", 0),
    ("SSN", r"(?<!\d)\d{3}[- ]\d{2}[- ]\d{4}(?!\d)", 0),
    ("RECORD", rf"\b(?:{_LABELS_EN})\s{{0,2}}(?:is\s)?[:#=]{{0,2}}\s{{0,2}}#?(?P<x>{_WITH_DIGIT}{_ID})", re.I),
    ("RECORD", rf"(?:{_LABELS_ZH})(?:是|为)?[ :#]{{0,3}}(?P<x>{_WITH_DIGIT}{_ID})", 0),
    ("RECORD", r"(?:微信号?|[Ww]e[Cc]hat|QQ号?|支付宝)(?:是|为)?[ :]{0,3}(?P<x>[A-Za-z0-9_\-]{5,30})", 0),
    ("PLATE", rf"[{_PROVINCES}][A-HJ-NP-Z][· ]?[A-HJ-NP-Z0-9]{{5,6}}(?![A-Za-z0-9])", 0),
    ("DATE", rf"(?<!\d){_YEAR} ?(?:[-/.]|年) ?{_M} ?(?:[-/.]|月) ?{_D}(?!\d) ?(?:日|号)?", 0),
    ("DATE", rf"(?<![\d/]){_M}([/\-]){_D}\1(?:19|20)?\d{{2}}(?![\d/])", 0),
    ("DATE", rf"(?<![\d/]){_D}([/\-]){_M}\1{_YEAR}(?![\d/])", 0),
    ("DATE", rf"\b{_MONTH} {_D}{_TH}(?:, ?| ){_YEAR}\b", re.I),
    ("DATE", rf"(?<!\d){_D}{_TH} {_MONTH},? {_YEAR}\b", re.I),
    ("DATE", r"(?:出生日期|出生于|生日|生于)[ :是为]{0,3}(?P<x>\d{4}(?:年|[-/.])?\d{0,2}(?:月|[-/.])?\d{0,2}日?)", 0),
    ("DATE", r"\b(?:DOB|date of birth|born(?: on)?)[ :]{0,3}(?P<x>[A-Za-z0-9][A-Za-z0-9,/.\- ]{3,20}\d)", re.I),
    ("AGE", r"(?<!\d)(?:9\d|1[0-3]\d)(?= ?(?:岁|周岁|-?years?[- ]old|y/?o\b))", re.I),
    ("AGE", r"(?<=\bis )(?:9\d|1[0-2]\d)(?= and\b|[,.;]| years)", 0),
    (
        "PHONE",
        r"(?<![\d-])(?:\+?1[ .\-]?|001[ .\-])?\(?\d{3}\)?[ .\-]?\d{3}[ .\-]\d{4}(?:,? ?(?:x|ext\.?) ?\d{1,6})?(?!\d)",
        re.I,
    ),
    ("PHONE", r"(?<!\d)(?:\(0\d{2,3}\)|0\d{2,3})[ \-]?\d{7,8}(?:-\d{1,5})?(?!\d)", 0),
    ("PHONE", r"(?<!\d)(?:400|800)[ \-]?\d{3,4}[ \-]?\d{3,4}(?!\d)", 0),
    ("PHONE", r"(?<![\w.])\+\d{1,3}[ \-.(]{1,2}\d[\d \-.()]{5,18}\d", 0),
    ("PHONE", r"(?:电话|座机|传真|手机|联系方式|phone|tel|fax|mobile|cell)[ :是为.#]{0,4}(?P<x>\+?\d[\d \-]{5,18}\d)", re.I),
    ("ADDRESS", r"(?:家住|现住|住址|地址|户籍|居住于|住在)(?:是|为)?[ :]{0,3}(?P<x>[^\s，。；,;！？!?]{5,60})", 0),
    (
        "ADDRESS",
        r"[\u4e00-\u9fff]{2,12}(?:省|自治区|市|县|区)[\u4e00-\u9fffA-Za-z]{1,16}(?:路|街|大道|巷|村|小区)"
        r"[\u4e00-\u9fffA-Za-z]{0,6}\d{0,5}(?:号|座|栋|室|单元)?\d{0,5}(?:室|号)?",
        0,
    ),
    (
        "ADDRESS",
        rf"\b\d{{1,6}} (?:{_PROPER} ){{1,4}}(?:{_ROADS}|[A-Z][a-z]{{2,12}})\b\.?(?:,? (?:Apt|Suite|Unit)\.? ?\w{{1,6}})?"
        rf"(?:,? {_PROPER}){{1,3}},? [A-Z]{{2}} \d{{5}}(?:-\d{{4}})?",
        0,
    ),
    ("ADDRESS", r"\b(?:[Ll]ives|[Ll]iving|[Rr]esides|[Aa]ddress)(?: is| at|:){1,2} (?P<x>(?=[^.;\n]{0,40}\d)[^.;\n]{5,80})", 0),
    ("ADDRESS", rf"\b\d{{1,6}} (?:{_PROPER} ){{1,3}}(?:Street|Avenue|Ave|Road|Rd|Lane|Ln|Boulevard|Blvd)\b\.?", 0),
)
_NEEDS: tuple[tuple[int, tuple[str, ...]], ...] = (
    # In the order of the table: the fewest digits a match can have, and signs (in lower case) of which one must be there.
    (0, ("@",)),  # EMAIL
    (0, ("://", "www.")),  # URL
    (0, (":", "-")),  # MAC
    (4, (".",)),  # IP
    (0, (":",)),  # IP
    (9, ()),  # SSN
    (1, ()),  # RECORD
    (1, ()),  # RECORD
    (0, ("微信", "wechat", "qq", "支付宝")),  # RECORD
    (0, ()),  # PLATE
    (6, ()),  # DATE
    (4, ()),  # DATE
    (6, ()),  # DATE
    (5, ()),  # DATE
    (5, ()),  # DATE
    (4, ()),  # DATE
    (1, ()),  # DATE
    (2, ()),  # AGE
    (2, ()),  # AGE
    (10, ()),  # PHONE
    (10, ()),  # PHONE
    (9, ()),  # PHONE
    (3, ("+",)),  # PHONE
    (2, ()),  # PHONE
    (0, ("住", "址", "户籍")),  # ADDRESS
    (0, ("路", "街", "大道", "巷", "村", "小区")),  # ADDRESS
    (6, ()),  # ADDRESS
    (1, ()),  # ADDRESS
    (1, ()),  # ADDRESS
)
PATTERNS: tuple[Form, ...] = tuple(
    Form(kind, re.compile(pattern, flags), digits, signs)
    for (kind, pattern, flags), (digits, signs) in zip(_TABLE, _NEEDS, strict=True)
)

_AT, _DOT = r"[ \[(]{0,2}(?:@|\(at\)|\[at\])[ \])]{0,2}", r"[ \[(]{0,2}(?:\.|\(dot\)|\[dot\])[ \])]{0,2}"
# What must not be left after scrubbing, in looser terms than above.
LEFT_OVER = re.compile(
    r"\d(?:[^\w\n]{0,3}\d){9,}"  # digits kept apart by more than one sign
    r"|[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖]{7,}"
    rf"|[A-Za-z0-9._\-]{{1,64}}{_AT}[A-Za-z0-9\-]{{2,63}}{_DOT}[A-Za-z]{{2,}}"
    r"|(?:身份证|SSN|social security)[^\d\n]{0,12}\d{4,}"
)
