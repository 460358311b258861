"""How somebody or some machine is reached: e-mail, web and network addresses, telephones, messengers."""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import re

from medloop.privacy.phi.patterns.pattern import by_first_letter, pattern

_USER, _HOST = r"[A-Za-z0-9][A-Za-z0-9._%+\-]{0,63}", r"[A-Za-z0-9][A-Za-z0-9\-]{0,62}"
_AT, _DOT = r" ?[\[(] ?at ?[\])] ?", r" ?[\[(] ?dot ?[\])] ?"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_DIGIT_GROUPS = r"\(?\+?\d{1,5}\)?(?:[ .\-]{1,2}\(?\d{2,8}\)?)"
_CALL = by_first_letter("call|phone|tel|telephone|fax|mobile|cell|reach|contact|dial|text|number|whatsapp|answering")
_LINES = ("office", "fax", "mobile", "cell", "home", "work", "phone")

# fmt: off
CONTACTS = (
    pattern("e-mail address", "EMAIL", "mail {a.b@clinic.example.org} please",
            r"[A-Za-z0-9][A-Za-z0-9._%+\-]{0,63} ?@ ?[A-Za-z0-9][A-Za-z0-9\-]{0,62}(?:\.[A-Za-z0-9\-]{1,62}){1,4}", hints=("@",)),
    pattern("e-mail address with spelled-out signs", "EMAIL", "mail {jane (at) clinic (dot) org}",
            rf"{_USER}(?:{_AT}{_HOST}(?:(?:{_DOT}|\.)[A-Za-z0-9\-]{{1,62}}){{1,3}}|@{_HOST}(?:{_DOT}[A-Za-z0-9\-]{{1,62}}){{1,3}})", hints=("dot", "(at", "( at", "[at", "[ at"), flags=re.I),
    pattern("web address", "URL", "see {https://example.org/p?id=7}",
            r"(?:https?://|ftp://|www\.)[^\s<>\"'，。；（）、]{2,500}", hints=("://", "www."), flags=re.I),
    pattern("MAC address", "MAC", "device {00:1B:44:11:3A:B7}",
            r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}[:\-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])", hints=(":", "-")),
    pattern("IPv4 address", "IP", "from {192.168.10.24}",
            rf"(?<![\d.])(?:{_BYTE}\.){{3}}{_BYTE}(?![\d.]\d)", digits=4, hints=(".",)),
    pattern("IPv6 address", "IP", "host {fe80:0:0:1ff:fe23:4567:890a}",
            r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![0-9A-Fa-f:])", hints=(":",)),
    pattern("shortened IPv6 address", "IP", "host {fe80::1ff:fe23:4567:890a}",
            r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,6}::(?:[0-9A-Fa-f]{1,4}:){0,6}[0-9A-Fa-f]{1,4}(?![0-9A-Fa-f:])", hints=("::",)),
    pattern("messenger account", "RECORD", "加我微信{wx_yantang}",
            r"(?:微信号?|[Ww]e[Cc]hat(?: ID)?|QQ号?|支付宝|抖音号?|薇信|威信|(?<![A-Za-z])(?:[VvWw][Xx]|[Vv]信))(?:是|为|同号)?[ :]{0,3}(?P<phi>[A-Za-z0-9_\-]{5,30})", hints=("微信", "wechat", "qq", "支付宝", "抖音", "wx", "vx", "v信", "薇信", "威信")),
    pattern("North American telephone", "PHONE", "reach me at {(212) 555-0123 x44}",
            r"(?<![\d-])(?:\+?1[ .\-]?|001[ .\-])?\(?\d{3}\)?[ .\-]?\d{3}[ .\-]\d{4}(?:,? ?(?:x|ext\.?) ?\d{1,6})?(?!\d)", digits=10, flags=re.I),
    pattern("Chinese landline with area code", "PHONE", "请打 {010-62345678}",
            r"(?<!\d)(?:\(0\d{2,3}\)|0\d{2,3})[ \-]?\d{4}[ \-]?\d{3,4}(?:-\d{1,5}| ?(?:转|ext\.?) ?\d{1,6})?(?!\d)", digits=10),
    pattern("Chinese mobile behind a zero", "PHONE", "就打{(0)13800138000}",
            r"(?<!\d)\(?0\)?[ \-]?1[3-9]\d[ \-]?\d{4}[ \-]?\d{4}(?!\d)", digits=12),
    pattern("second telephone", "PHONE", "ring 212 555 0184 or {555-0166}",
            r"(?<=\d\d\d\d)(?: or | and |, |/| / )(?P<phi>\d{3}[ .\-]\d{4})(?![\d\-])", digits=14),
    pattern("Chinese service number", "PHONE", "客服 {400-820-8820}",
            r"(?<!\d)(?:400|800)[ \-]?\d{3,4}[ \-]?\d{3,4}(?!\d)", digits=9),
    pattern("telephone with country code", "PHONE", "ring {+44 20 7946 0018}",
            r"(?<![\w.])\+\d{1,3}[ \-.(]{1,2}\d[\d \-.()]{5,18}\d", digits=3, hints=("+",)),
    pattern("number behind the word telephone", "PHONE", "家属电话：{6234 5678}",
            r"(?:电话|座机|传真|手机|联系方式|phone|tel|fax|mobile|cell)[ :是为.#]{0,4}(?P<phi>\+?\d[\d \-]{5,18}\d)", digits=2, hints=("电话", "座机", "传真", "手机", "联系方式", "phone", "tel", "fax", "mobile", "cell"), flags=re.I),
    pattern("groups of digits to be called", "PHONE", "call the ward at {555 0199}",
            rf"\b(?:{_CALL})\b[^\d\n]{{0,25}}(?P<phi>{_DIGIT_GROUPS}{{1,5}})(?!\d)", digits=5, flags=re.I),
    pattern("seven or eight digits to be called", "PHONE", "call me at {5550199}",
            rf"\b(?:{_CALL})\b[^\d\n]{{0,25}}(?P<phi>\d{{7,8}})(?!\d)", digits=7, flags=re.I),
    pattern("groups of digits before the kind of line", "PHONE", "{555 0199} (office)",
            rf"(?<![\d.,/])(?P<phi>{_DIGIT_GROUPS}{{1,4}})(?= ?[-(]? ?(?:{'|'.join(_LINES)})\b)", digits=5, hints=_LINES, flags=re.I),
    pattern("groups of digits that begin with a zero", "PHONE", "then {020 794 0018}",
            r"(?<![\d.,/+\-])(?:\(0?\d{1,4}\)|0\d{1,4})(?:[ \-]\d{2,4}){2,4}(?![\d.,]|\s?(?:mg|ml|%))", digits=5),
    pattern("area code with a zero and one group", "PHONE", "then {(030) 901820}",
            r"(?<![\d.,/+\-A-Za-z])(?:\(0?\d{1,4}\)|0\d{1,4})[ \-]?\d{5,8}(?![\d.,])", digits=6),
)
# fmt: on
