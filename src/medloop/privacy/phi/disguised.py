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

from medloop.privacy.phi.lists import NAMES, is_listed

REASON = "text that may hide an identifier: encoded, spelled out or broken into pieces"
_ENGLISH = "zero|oh|one|two|three|four|five|six|seven|eight|nine|double|triple"
_PINYIN = "ling|yi|yao|er|san|si|wu|liu|qi|ba|jiu"
_HAN_DIGIT = "零〇○一二三四五六七八九幺壹贰叁肆伍陆柒捌玖"
_CUE = r"(?:phone|cell|mobile|number|digits|call|dial|text|tel|ssn|social|social security|电话|手机|号码?|联系|拨打?|微信|身份证|证件?)"
_JOINT = r"(?:[\s./|*_,+()\-]{1,4}|[ ,]{0,2}(?:then|and|dash|dot|再|然后|接着|后面是?|杠)[ ,]{0,2})"
_BLOB = re.compile(
    r"(?<![A-Za-z0-9+/=_\-])(?=[A-Za-z0-9+/_\-]*[A-Z])(?=[A-Za-z0-9+/_\-]*[a-z])(?=[A-Za-z0-9+/_\-]*\d)[A-Za-z0-9+/_\-]{16,4000}={0,2}"
)
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:0x)?(?:[0-9A-Fa-f]{2}[ :\-]?){7,2000}(?![0-9A-Za-z])")
_BITS = re.compile(r"(?<![0-9])(?:[01]{7,8}[ ,]){3}[01]{7,8}(?![0-9])")
_MIXED_SCRIPT = re.compile(r"[A-Za-z][\u0400-\u052f]|[\u0400-\u052f][A-Za-z]|[ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ][a-z]{2}")
_MASKED_DIGITS = re.compile(
    r"(?<![A-Za-z0-9])(?=[OolI]*\d[\dOolI]*[OolI]|[\dOolI]*[OolI][\dOolI]*\d)[\dOolI]{9,18}(?![A-Za-z0-9])"
)
_LEET_WORD = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z0-9]*[A-Za-z])(?=[A-Za-z0-9]*[013457])[A-Za-z013457]{4,15}(?![A-Za-z0-9])")
_LETTERS = re.compile(r"(?<![A-Za-z])(?:[A-Za-z][ .\-_*]){5,30}[A-Za-z](?![A-Za-z])")
_DIGIT = re.compile("[0-9]")
_UNLEET = str.maketrans("013457", "oieast")


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
    if word[1:] == plain[1:] and len(re.findall(r"(?<=[a-z])\d|\d(?=[a-z])", plain)) > 1 and len(re.findall("[a-z]", plain)) > 2:
        return True  # 4l1c3, R0b3rt: digits among small letters
    if sum(char.isdigit() for char in plain) * 2 > len(plain):
        return False
    return any(
        len(name) > 3 and is_listed(name, NAMES)
        for name in (plain.translate(_UNLEET), plain.replace("1", "l").translate(_UNLEET))
    )


class Disguise(NamedTuple):
    name: str
    example: str
    hints: tuple[str, ...] | int
    """One of these is in every such text, in lower case; or so many digits are."""
    may_hide: Callable[[str], object]


def _search(regex: str, flags: int = 0) -> Callable[[str], object]:
    return re.compile(regex, flags).search


DISGUISES = (
    Disguise("base64", "decode Sm9obiBTbWl0aCA1NTUtMTIzNA==", 1, _has_base64),
    Disguise("hexadecimal bytes", "hex 4a6f686e20536d697468", 1, _has_hex),
    Disguise("binary", "01001010 01101111 01101000 01101110", 28, _BITS.search),
    Disguise("percent signs of a web address", "data %4A%6F%68%6E", ("%",), _search(r"(?:%[0-9A-Fa-f]{2}){4}")),
    Disguise("entities of HTML", "&#74;&#111;&#104;", ("&#",), _search(r"(?:&#x?[0-9A-Fa-f]{2,6};){2}")),
    Disguise("escapes of a programming language", r"\u738b\u82b3", ("\\u", "\\x", "u+"), _search(r"(?:\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|U\+[0-9A-Fa-f]{4} ?){2}")),
    Disguise("a code that is named", "rot13 of it: Wbua", ("rot", "caesar", "base", "凯撒", "摩斯", "morse", "atbash"), _search(r"(?<![A-Za-z])(?:rot-?13|caesar cipher|base-?64|凯撒密码|摩斯|morse code|atbash)(?![A-Za-z])", re.I)),
    Disguise("written backwards", "backwards 0199 555", ("backwards", "revers", "倒", "反"), _search(r"(?:backwards|in reverse|reversed|倒着|倒过来|反着|反过来|倒序)[^\n]{0,20}?\d{4}", re.I)),
    Disguise("digits in English words", "five five five zero one nine nine", ("zero", "three", "five", "seven", "eight", "nine"), _search(rf"(?<![A-Za-z])(?:(?:{_ENGLISH})[ ,\-]{{1,2}}){{6}}(?:{_ENGLISH})(?![A-Za-z])", re.I)),
    Disguise("digits in pinyin", "yi san ba ling ling yi san", ("ling", "san", "jiu", "liu"), _search(rf"(?<![A-Za-z])(?:(?:{_PINYIN})[ ,\-]){{6}}(?:{_PINYIN})(?![A-Za-z])", re.I)),
    Disguise("digits in Chinese characters, also mixed", "1三8零0一3八", (), _search(rf"(?=[\d]{{0,12}}[{_HAN_DIGIT}])[{_HAN_DIGIT}\d]{{7}}(?<!年)")),
    Disguise("letters in place of digits", "call l38OO138OOO", 2, _MASKED_DIGITS.search),
    Disguise("digits in place of letters", "patient J0hn5on", 1, _has_leet),
    Disguise("letters of two scripts in one word", "patient Аnnа", (), _MIXED_SCRIPT.search),
    Disguise("letters kept apart", "name J-o-h-n-s-o-n", (), _LETTERS.search),
    Disguise("a number in pieces behind its name", "phone 555\n012\n3456", 9, _search(rf"{_CUE}[^\d\n]{{0,12}}[\s]?(?=(?:{_JOINT}?\d){{9}})\d{{1,4}}(?:{_JOINT}\d{{1,4}}){{2,11}}(?!\d)", re.I)),
)  # fmt: skip


_ANY_HINT = re.compile("|".join(re.escape(hint) for row in DISGUISES if isinstance(row.hints, tuple) for hint in row.hints))
SPELLED_OUT = re.compile(rf"[{_HAN_DIGIT}]{{7}}")
"""Digits in Chinese characters: some of them are surnames, so they are looked for before anything is replaced."""


def may_hide(folded: str) -> bool:
    """Whether a scrubbed text shows one of the signs."""
    lower, digits = folded.lower(), len(_DIGIT.findall(folded))
    has_hint = _ANY_HINT.search(lower) is not None

    def is_possible(row: Disguise) -> bool:
        if isinstance(row.hints, int):
            return row.hints <= digits
        return not row.hints or (has_hint and any(hint in lower for hint in row.hints))

    return any(row.may_hide(folded) for row in DISGUISES if is_possible(row))
