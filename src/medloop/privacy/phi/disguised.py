"""Signs that a text hides an identifier: encoded, spelled out, spread over lines or letters. Such a text is held, not cleaned.

`DISGUISES` is the table, with one example each.
"""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import base64
import binascii
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ahocorasick_rs import AhoCorasick

from medloop.privacy.phi.chinese import places as chinese_places
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import NAMES, is_listed, lines
from medloop.privacy.phi.normalize import MASK

REASON = "text that may hide an identifier: encoded, spelled out or broken into pieces"
_ENGLISH = "zero|oh|one|two|three|four|five|six|seven|eight|nine|double|triple"
_PINYIN = "ling|yi|yao|er|san|si|wu|liu|qi|ba|jiu"
_HAN_DIGIT = "零〇○一二三四五六七八九幺壹贰叁肆伍陆柒捌玖"
_CUE = r"(?:phone|cell|mobile|number|digits|call|dial|text|tel|ssn|social|social security|电话|手机|号码?|联系|拨打?|微信|身份证|证件?)"
_JOINT = r"(?:[\s./|*_,+()\-]{1,4}|[ ,]{0,2}(?:then|and|dash|dot|再|然后|接着|后面是?|杠)[ ,]{0,2})"
_PUBLIC = r"(?:911|999|000|11[0-9]|12[02]|988)\b"  # numbers of ambulances and crisis lines, one after the other
_SURNAMES = "".join(name for name in lines("surnames_zh.txt")[:220] if len(name) == 1)
_BLOB = lazy_pattern(
    r"(?<![A-Za-z0-9+/=_\-])(?=[A-Za-z0-9+/_\-]*[A-Z])(?=[A-Za-z0-9+/_\-]*[a-z])(?=[A-Za-z0-9+/_\-]*\d)[A-Za-z0-9+/_\-]{16,4000}={0,2}"
    r"|(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{10,15}={1,2}(?![A-Za-z0-9=])"
)
_HEX = lazy_pattern(r"(?<![0-9A-Za-z])(?:0x)?(?:[0-9A-Fa-f]{2}[ :\-]?){7,2000}(?![0-9A-Za-z])")
_BITS = lazy_pattern(r"(?<![0-9])(?:[01]{7,8}[ ,]){3}[01]{7,8}(?![0-9])")
_MIXED_SCRIPT = lazy_pattern(r"[A-Za-z][\u0400-\u052f]|[\u0400-\u052f][A-Za-z]|[ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ][a-z]{2}")
_MASKED_DIGITS = lazy_pattern(
    r"(?<![A-Za-z0-9])(?=[\dOolI]{9,18}(?![A-Za-z0-9]))(?=[OolI]*\d[\dOolI]*[OolI]|[\dOolI]*[OolI][\dOolI]*\d)[\dOolI]{9,18}"
)
_LEET_WORD = lazy_pattern(
    r"(?<![A-Za-z0-9])(?=[A-Za-z0-9@$!]{0,40}[A-Za-z])(?=[A-Za-z0-9@$!]{0,40}[013457@$!])[A-Za-z013457@$!]{3,14}[A-Za-z013457](?![A-Za-z0-9@])"
)
_ACCOUNT = lazy_pattern(r"(?<![A-Za-z0-9])(?=[a-z]{2})(?=[a-z._\-]{2,60}\d)[a-z]{2,15}[_.\-#]{1,2}[a-z0-9]{1,12}(?![A-Za-z0-9])")
_LAST_HAN = lazy_pattern(r".*[\u4e00-\u9fff]", re.S)
_LETTERS = lazy_pattern(r"(?<![A-Za-z])(?:[A-Za-z](?:[ .\-_*]|\. )){5,30}[A-Za-z](?![A-Za-z])")
_DIGIT = lazy_pattern("[0-9]")
_UNLEET = str.maketrans("013457@$!", "oieastasi")


def _is_readable(data: bytes) -> bool:
    """Whether these bytes are text with letters or digits in it, and not noise."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return len(text) > 3 and all(char.isprintable() or char in "\n\t" for char in text) and any(char.isalnum() for char in text)


def _has_base64(text: str) -> bool:
    for match in _BLOB.finditer(text):
        blob = match[0].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            if _is_readable(base64.b64decode(blob + "=" * (-len(blob) % 4), validate=True)):
                return True
        except (binascii.Error, ValueError):
            continue
    return False


def _has_hex(text: str) -> bool:
    for match in _HEX.finditer(text):
        plain = re.sub(r"[^0-9A-Fa-f]", "", match[0].removeprefix("0x"))
        if len(plain) % 2 == 0 and not plain.isdigit() and _is_readable(bytes.fromhex(plain)):
            return True
    return False


def _has_leet(text: str) -> bool:
    return any(_is_leet_name(match[0]) for match in _LEET_WORD.finditer(text))


@lru_cache(maxsize=4096)
def _is_leet_name(word: str) -> bool:
    plain = word.lower()
    mixed = re.findall(r"(?<=[a-z])[\d@$!]|[\d@$!](?=[a-z])", plain)
    if word[1:] == plain[1:] and len(mixed) > 1 and len(re.findall("[a-z]", plain)) > 2 and re.search(r"\d|[@$]", plain):
        return True  # 4l1c3, R0b3rt: digits among small letters
    if sum(char.isdigit() for char in plain) * 2 > len(plain):
        return False
    return any(
        len(name) > 3 and is_listed(name, NAMES)
        for name in (plain.translate(_UNLEET), plain.replace("1", "l").translate(_UNLEET))
    )


def _has_account(text: str) -> bool:
    """Whether something like an account stands before a Chinese character of the same line; each line is read once."""
    for line in () if text.isascii() else text.split("\n"):
        if (last := _LAST_HAN.match(line)) and _ACCOUNT.search(line, 0, last.end()):
            return True
    return False


_GAP = lazy_pattern(r"(?<=[\u4e00-\u9fff\d])[ ,、/·\-|]+(?=[\u4e00-\u9fff\d])")


def _is_spaced_address(text: str) -> bool:
    """Whether an address appears once the gaps are taken out."""
    joined = _GAP.sub("", text)
    return joined != text and any(kind == "ADDRESS" for _, _, kind in chinese_places.find(joined))


class Disguise(NamedTuple):
    name: str
    example: str
    hints: tuple[str, ...] | int
    """One of these is in every such text, in lower case; or so many digits are."""
    may_hide: Callable[[str], object]
    in_ascii: bool = True
    """False: every such text has a character that is neither ASCII nor a mask."""


def _search(regex: str, flags: int = 0) -> Callable[[str], object]:
    return _searching(lazy_pattern(regex, flags))


def _searching(expression: re.Pattern[str]) -> Callable[[str], object]:
    """Its search, looked up at each use: the expression is compiled at the first one."""
    return lambda text: expression.search(text)


DISGUISES = (
    Disguise("base64", "decode Sm9obiBTbWl0aCA1NTUtMTIzNA==", 1, _has_base64),
    Disguise("hexadecimal bytes", "hex 4a6f686e20536d697468", 1, _has_hex),
    Disguise("binary", "01001010 01101111 01101000 01101110", 28, _searching(_BITS)),
    Disguise("percent signs of a web address", "data %4A%6F%68%6E", ("%",), _search(r"(?:%[0-9A-Fa-f]{2}){4}")),
    Disguise("entities of HTML", "&#74;&#111;&#104;", ("&#",), _search(r"(?:&#x?[0-9A-Fa-f]{2,6};){2}")),
    Disguise("escapes of a programming language", r"\u738b\u82b3", ("\\u", "\\x", "u+"), _search(r"(?:\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|U\+[0-9A-Fa-f]{4} ?){2}")),
    Disguise("a code that is named", "rot13 of it: Wbua", ("rot", "caesar", "base", "凯撒", "摩斯", "morse", "atbash"), _search(r"(?<![A-Za-z])(?:rot-?13|caesar cipher|base-?64|凯撒密码|摩斯|morse code|atbash)(?![A-Za-z])", re.I)),
    Disguise("written backwards", "backwards 0199 555", ("backwards", "revers", "倒", "反"), _search(r"(?:backwards|in reverse|reversed|倒着|倒过来|反着|反过来|倒序)[^\n]{0,20}?\d{4}", re.I)),
    Disguise("digits in English words", "five five five zero one nine nine", ("zero", "three", "five", "seven", "eight", "nine"), _search(rf"(?<![A-Za-z])(?:(?:{_ENGLISH})[ ,\-]{{1,2}}){{6}}(?:{_ENGLISH})(?![A-Za-z])", re.I)),
    Disguise("digits in pinyin", "yi san ba ling ling yi san", ("ling", "san", "jiu", "liu"), _search(rf"(?<![A-Za-z])(?:(?:{_PINYIN})[ ,\-]){{6}}(?:{_PINYIN})(?![A-Za-z])", re.I)),
    Disguise("digits in Chinese characters, also mixed", "1三8零0一3八", (), _search(rf"(?=[\d]{{0,12}}[{_HAN_DIGIT}])[{_HAN_DIGIT}\d]{{7}}(?<!年)"), False),
    Disguise("letters in place of digits", "call l38OO138OOO", 2, _searching(_MASKED_DIGITS)),
    Disguise("letters in place of digits, in groups", "call 2l2-555-Ol9O", 4, _search(r"(?<![\w\-])(?=[\d\-. ]{0,11}[OolI])[\dOolI]{3}([\-. ])[\dOolI]{3,4}\1[\dOolI]{2,6}(?![\w\-])")),
    Disguise("an e-mail address kept apart", "a n n a @ m a i l . c o m", ("@",), _search(r"(?<!\w)(?:[\w.] ){2,40}@ (?:[\w.] ){2,40}\w(?!\w)")),
    Disguise("digits in place of letters", "patient J0hn5on", 1, _has_leet),
    Disguise("signs in place of letters", "for M@ry Sm!th", ("@", "$", "!"), _has_leet),
    Disguise("letters of two scripts in one word", "patient Аnnа", (), _searching(_MIXED_SCRIPT), False),
    Disguise("letters kept apart", "name J-o-h-n-s-o-n", (), _searching(_LETTERS)),
    Disguise("letters with signs between them", "姓w.a.n.g", (".", "*", "_", "-", "|", "/"), _search(r"(?<![A-Za-z])(?:[A-Za-z][.*_|/]){3,30}[A-Za-z](?![A-Za-z.])")),
    Disguise("Chinese characters with signs between them", "住朝*阳*区*望*京", ("*", "＊", "|", "_", "~", "^", "+", "/", "."), _search(r"(?:[\u4e00-\u9fff][*|_~^+/.]){3,60}[\u4e00-\u9fff]"), False),
    Disguise("signs within a name", "患者王_芳", ("_", "*", "|", "~", "/", ".", "-", "+"), _search(r"(?:患者|病人|患儿|姓名:?|我?叫|我是|家属|联系人|本人|姓)[ ]?[\u4e00-\u9fff][_*|~/.+\-]{1,2}[\u4e00-\u9fff]"), False),
    Disguise("a character taken apart", "弓长，叫小明", (), _search("弓长|木子(?!李)|立早(?:章)?|耳东|口天|双木林?|言午|古月(?!胡)|三横王|禾呈|走肖|文刀|草头黄|双口吕|十八子|拆字|偏旁|部首"), False),
    Disguise("an address with spelled-out signs", "li66艾特163点com", ("艾特", "圈a", " at ", "(a)", "[a]", "点com", "点cn", " dot ", "(dot", "小老鼠", "爱特"), _search(r"[\w.\-]{2,30} ?(?:(?:艾特|爱特|圈a|小老鼠|\(a\)|\[a\]|\(at\)) ?[\w\-]{2,30} ?(?:点|dot|,|\.|。|\(dot\))| at [\w\-]{2,30} ?(?:点|dot)) ?[a-z]{2,7}", re.I)),
    Disguise("a web address that is defused", "hxxps://blog[.]example", ("hxxp", "[.]", "(.)", "[dot]", "点com", "点cn"), _search(r"hxxps?|\w(?:\[\.\]|\(\.\)|\[dot\])\w|\w点(?:com|cn|net)", re.I)),
    Disguise("a messenger by another name", "加我薇信 abc丨12", ("薇", "威信", "微", "卫星", "v信", "扣扣", "企鹅", "加v", "vx", "绿泡泡"), _search(r"(?:薇信?|威信|微.{1,2}信|卫星号?|[vV]信|扣扣|企鹅号?|加[vV]|绿泡泡)[号是为: ]{0,4}(?=\S{0,20}[A-Za-z0-9])\S{4,30}")),
    Disguise("digits as they are spoken", "京 A 幺 二 洞 拐 八", ("幺", "洞", "拐", "勾"), _search(r"(?=(?:[零〇一二两三四五六七八九十幺洞拐勾A-Za-z\d][ ,、.\-]?){0,12}[幺洞拐勾])(?:[零〇一二两三四五六七八九幺洞拐勾\d][ ,、.\-]?){4,20}")),
    Disguise("Chinese digits with signs between them", "一、三、八、零、五、六", (), _search(rf"(?:[{_HAN_DIGIT}\d][ ,、.\-/·]{{1,2}}){{5,20}}(?<![\d][ ,、.\-/·])[{_HAN_DIGIT}]"), False),
    Disguise("a date in Chinese digits", "二零零八/零三/一九出生", (), _search(rf"[{_HAN_DIGIT}]{{4}} ?[/.\-年、] ?[{_HAN_DIGIT}十]{{1,3}} ?[/.\-月、] ?[{_HAN_DIGIT}十]{{1,3}}"), False),
    Disguise("the alphabet of the radio", "Golf Romeo Alpha Hotel", ("alpha", "bravo", "romeo", "tango", "sierra", "hotel", "oscar", "kilo", "lima"), _search(r"(?:\b(?:alpha|alfa|bravo|charlie|delta|echo|foxtrot|golf|hotel|india|juliett?|kilo|lima|mike|november|oscar|papa|quebec|romeo|sierra|tango|uniform|victor|whiskey|x-?ray|yankee|zulu)\b[ ,\-]{1,3}){3}", re.I)),
    Disguise("letters and digits of a code in words", "C A one one, eight Z Z", ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "zero"), _search(rf"(?:\b[A-Z][ ,]+){{1,3}}(?:{_ENGLISH})[ ,]+(?:(?:{_ENGLISH})\b|[A-Z]\b)")),
    Disguise("an encoded word of a mail", "=?UTF-8?B?QW5uYQ==?=", ("=?",), _search(r"=\?[\w\-]{3,20}\?[bBqQ]\?")),
    Disguise("groups of digits with unusual signs", "4929|1837|4402", 9, _search(r"(?<!\d)\d{3,4}(?: ?[|_~*^+\\;] ?\d{3,4}){2,4}(?!\d)")),
    Disguise("Morse code", ".--- --- .... -.", ("--", "..", "·−", "—"), _search(r"(?:(?<![\w.\-])[.\-·−–—]{1,5}[ /]){3,}[.\-·−–—]{1,5}(?![\w.])")),
    Disguise("pinyin with tones", "患者wang2 fang1", 2, _search(r"(?<![A-Za-z])(?!(?:sp|ph|hb|vit|wk|day|bed|rm|no|ft)\d)[bpmfdtnlgkhjqxrzcsyw]h?[aeiouv]{1,3}n?g?[1-4][ ]?(?:[bpmfdtnlgkhjqxrzcsyw]h?[aeiouv]{1,3}n?g?[1-4])")),
    Disguise("something said to be hidden", "首字母 WXM，名字倒着念", ("首字母", "谐音", "化名", "暗号", "解码", "加密", "编码后", "倒", "反", "从右往左", "缩写是", "backwards", "anagram", "cipher", "encoded", "initials", "spelled", "spelt", "mirror"), _search(r"首字母|谐音|化名|暗号|解码|加密|编码后|[倒反]着?(?:过来)?[读念写看]|从右往左|姓名?缩写|(?:read|written|spelled|spelt|typed|name) (?:it )?backwards|\banagram\b|\bcipher\b|\b(?:en|de)coded? (?:name|id|phone|text|it)\b|\bmy initials\b|\binitials (?:are|is)\b|\b(?:spelled|spelt) [A-Za-z](?:[ \-.][A-Za-z])+", re.I)),
    Disguise("pictures between letters or digits", "call 138🍎0013🍎8000", (), _search(r"[A-Za-z0-9][\u2580-\u27bf\U0001f000-\U0001faff]{1,4}[A-Za-z0-9]"), False),
    Disguise("pictures within a name", "患者张□□芳", (), _search(r"[\u4e00-\u9fff][\u2580-\u25ff]{1,8}[\u4e00-\u9fff]?"), False),
    Disguise("numbers in English words", "nineteen forty-two, oh seven, eleven", ("teen", "ty", "oh ", "hundred", "double", "zero"), _search(rf"(?<![A-Za-z])(?:(?:{_ENGLISH}|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|dash|hyphen|slash|point|plus)[ ,\-]{{1,2}}){{5}}", re.I)),
    Disguise("a date in English words", "the nineteenth of february two thousand three", ("nineteen", "twenty", "two thousand"), _search(r"\b(?:(?:(?:twenty|thirty)[- ])?(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth)|tenth|eleventh|twelfth|\w{4,6}teenth|twentieth|thirtieth|(?:twenty|thirty)?-?(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w{3,5}teen|twenty|thirty)) (?:of )?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*,? (?:of )?(?:nineteen|twenty|two thousand)", re.I)),
    Disguise("letters in place of the digits of a date", "dob O3-Feb-l997", ("-", "/", "."), _search(r"(?<![A-Za-z0-9])(?=[\dOoIl]{1,2}[\-/.][A-Za-z\d]{2,3}[\-/.][\dOoIl]{2,4}(?![A-Za-z0-9]))(?=[^\s]*\d)(?:[\dOoIl]*[OoIl][\dOoIl]*[\-/.](?:[A-Z][a-z]{2}|[\dOoIl]{1,2})[\-/.][\dOoIl]{2,4}|[\dOoIl]{1,2}[\-/.](?:[A-Z][a-z]{2}|[\dOoIl]{1,2})[\-/.][\dOoIl]*[OoIl][\dOoIl]*)")),
    Disguise("digits and letters kept apart one by one", "2 O 7 - 9 4 6 O I 8 2", 4, _search(r"(?<!\w)[\dOoIl](?:[^\w\n]{1,4}[\dOoIl](?!\w)){7}")),
    Disguise("single digits with words between them", "4 8 then 2 1 and 7 7 3 5 9", 8, _search(r"(?<!\w)\d(?: (?:[a-z]{2,6} ){0,2}\d(?!\w)){6}")),
    Disguise("signs of an account in words", "dee dee underscore 88", ("underscore", "at sign", "no spaces", "one word", "lowercase", "lower case", "下划线", "下横线", "中划线", "全小写"), _search(r"\bunderscore\b|\bat sign\b|\bno spaces\b|\ball (?:one word|lower ?case)\b|下划线|下横线|中划线|全小写", re.I)),
    Disguise("an account in a Chinese text", "我的号 lin_xia.88 哦", 1, _has_account, False),
    Disguise("an e-mail address with other signs", "a.b@qq。com", ("@",), _search(r"[\w.\-]{2,40} ?@ ?[\w\-]{2,30} ?[。．｡,，、 ·] ?(?:com|cn|net|org|edu|gov|co)", re.I)),
    Disguise("Chinese digits in groups", "一三八、零零一三、八零零零", (), _search(rf"(?:[{_HAN_DIGIT}]{{2,4}}[^\w\n]{{1,3}}){{2}}[{_HAN_DIGIT}]{{2,4}}"), False),
    Disguise("many digits in groups", "110102 (前面) 19751106 后四位 0023", 14, _search(rf"(?<![\d.])(?!{_PUBLIC}, {_PUBLIC})\d{{2,8}}(?:[\s()（）,，、:：]{{0,2}}[\u4e00-\u9fff]{{0,4}}[\s()（）,，、:：]{{0,2}}\d{{3,8}}(?![\d.%])){{2,6}}")),
    Disguise("signs between a surname and a name", ",王**芳,咳嗽", ("*", "#", "/", "|", "~", "^", "=", "&", "+", "!", "(", "-", "_"), _search(rf"(?:^|[,。;、:\s])[({{\[]?[{_SURNAMES}][*#/|~^=&+!()\-_]{{1,3}}[\u4e00-\u9fff](?![\u4e00-\u9fff]{{3}})"), False),
    Disguise("an address kept apart by spaces", "住 朝阳区 望京 西园 四区 4号楼", ("区", "路", "街", "弄", "楼", "村", "镇"), _is_spaced_address, False),
    Disguise("how a character is written", "“伟大”的伟,痛风", ("的", "单名", "偏旁", "一个"), _search(r"([\u4e00-\u9fff])[\u4e00-\u9fff]{1,3}[”\"』」']?的[“\"「]?\1(?=[字,。、;”\"」)\s]|$)|[\u4e00-\u9fff]{1,3}([\u4e00-\u9fff])[”\"』」']?的[“\"「]?\2(?=[字,。、;”\"」)\s]|$)|单名|名字?(?:里)?(?:就)?一个[“\"「]?.[”\"」]?(?:字|[,。])|(?:加|带|去掉?)(?:个|一个)?[^,。]{1,2}(?:字旁|字头|旁|部首)"), False),
    Disguise("letters and digits kept apart", "v：a b c 1 3 5 7 9", 3, _search(r"(?<![A-Za-z0-9.])(?=(?:[A-Za-z0-9][ .\-_*]){0,12}[A-Za-z])(?=(?:[A-Za-z0-9][ .\-_*]){2,12}\d)(?:[A-Za-z0-9][ .\-_*]){6,30}[A-Za-z0-9](?![A-Za-z0-9])")),
    Disguise("a number in parts with their places", "139开头，中间0271，最后8834", 6, _search(r"(?:\d{3,4}(?:开头|打头|起头)|(?:[前后末中]|开头|中间|最后|结尾)[几一二三四五六七八\d]?位?(?:数字?)?(?:是|为|:)? ?\d{2,4})[^\n]{0,12}?(?:[前后末中]|开头|中间|最后|结尾)[几一二三四五六七八\d]?位?(?:数字?)?(?:是|为|:)? ?\d{2,4}|(?:starts?|begins?|ends?|ending|first|last|middle)[a-z ]{0,20}\d{3,4}[^\n]{0,24}(?:ends?|ending|last|middle|then)[a-z ]{0,16}\d{2,4}", re.I)),
    Disguise("a telephone number with letters", "617-555-CALL", 6, _search(r"(?<![\w\-])(?:\d-)?\d{3}[ \-.]\d{3}[ \-.][A-Z]{4}(?![A-Za-z])|(?<![\w\-])1-8\d\d-[A-Z]{4,7}(?![a-z])")),
    Disguise("a letter that is said to be a digit", "the O is zero", (" is zero", " is one", " is a ", "letter", "字母", "not zero", "not o"), _search(r"\b(?:the )?[\"']?[A-Za-z][\"']? (?:is|means|=) (?:zero|one|five|a number|a digit)\b|\bletter [\"']?[A-Za-z][\"']?(?: |,|\.|$|\))|\bnot (?:zero|the letter)\b|字母[A-Za-z]|[A-Za-z]是(?:字母|零|一|数字)", re.I)),
    Disguise("digits beside words for digits", "call (617) five55-oh143", 3, _search(rf"(?<![A-Za-z])(?:{_ENGLISH})[ \-]?\d{{2}}[ \-]?(?:{_ENGLISH}|\d)|\d{{2}}[ \-]?(?:{_ENGLISH})[ \-]?\d", re.I)),
    Disguise("a number in pieces behind its name", "phone 555\n012\n3456", 9, _search(rf"{_CUE}[^\d\n]{{0,12}}[\s]?(?!{_PUBLIC}, {_PUBLIC})(?=(?:{_JOINT}?\d){{9}})\d{{1,4}}(?:{_JOINT}\d{{1,4}}){{2,11}}(?!\d)", re.I)),
)  # fmt: skip


_HINTS = sorted({hint for row in DISGUISES if isinstance(row.hints, tuple) for hint in row.hints})
_FIND_HINTS = AhoCorasick(_HINTS)
_HINTED = [(frozenset(row.hints), row) for row in DISGUISES if isinstance(row.hints, tuple) and row.hints]
_COUNTED = sorted(((row.hints, row) for row in DISGUISES if isinstance(row.hints, int)), key=lambda counted: counted[0])
_ALWAYS = [row for row in DISGUISES if row.hints == ()]
SPELLED_OUT = lazy_pattern(rf"[{_HAN_DIGIT}]{{7}}")
"""Digits in Chinese characters: some of them are surnames, so they are looked for before anything is replaced."""


def may_hide(folded: str) -> bool:
    """Whether a text shows one of the signs."""
    lower, digits, is_ascii = folded.lower(), len(_DIGIT.findall(folded)), folded.replace(MASK, "").isascii()
    for row in _ALWAYS:
        if (row.in_ascii or not is_ascii) and row.may_hide(folded):
            return True
    if present := set(_FIND_HINTS.find_matches_as_strings(lower, overlapping=True)):
        for hints, row in _HINTED:
            if not hints.isdisjoint(present) and (row.in_ascii or not is_ascii) and row.may_hide(folded):
                return True
    for least, row in _COUNTED:
        if least > digits:
            break
        if (row.in_ascii or not is_ascii) and row.may_hide(folded):
            return True
    return False
