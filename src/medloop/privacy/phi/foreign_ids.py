"""Numbers that states, health services and banks give to a person, outside mainland China: by form and check digit, or by their name.

`FOREIGN_IDS` is the table. A number whose form says little has a check digit; one without is only found behind its name.
"""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.numbers import is_day, luhn
from medloop.privacy.phi.spans import Span

_START, _END = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"
_TW_LETTERS = "ABCDEFGHJKLMNPQRSTUVXYWZIO"
_VERHOEFF = ("0123456789", "1234067895", "2340178956", "3401289567", "4012395678", "5987604321", "6598710432", "7659821043", "8765932104", "9876543210")  # fmt: skip
_SHUFFLE = ("0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258")


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _weighted(digits: str, weights: range | tuple[int, ...]) -> int:
    return sum(int(digit) * weight for digit, weight in zip(digits, weights, strict=False))


def is_hong_kong_id(text: str) -> bool:
    """One or two letters, six digits, and a check digit in brackets."""
    plain = re.sub(r"[^A-Z0-9]", "", text.upper())
    letters, number, check = plain[:-7], plain[-7:-1], plain[-1]
    values = [36, ord(letters) - 55] if len(letters) == 1 else [ord(letter) - 55 for letter in letters]
    total = values[0] * 9 + values[1] * 8 + _weighted(number, range(7, 1, -1))
    return (10 if check == "A" else int(check)) == -total % 11


def is_taiwan_id(text: str) -> bool:
    value = 10 + _TW_LETTERS.index(text[0].upper())
    return (value // 10 + value % 10 * 9 + _weighted(text[1:9], range(8, 0, -1)) + int(text[9])) % 10 == 0


def is_nric(text: str) -> bool:
    """Singapore: a letter, seven digits and a check letter."""
    total = _weighted(text[1:8], (2, 7, 6, 5, 4, 3, 2)) + (4 if text[0].upper() in "TG" else 3 if text[0].upper() == "M" else 0)
    table = "JZIHGFEDCBA" if text[0].upper() in "ST" else "XWUTRQPNMLK" if text[0].upper() in "FG" else "KLJNPQRTUWX"
    return table[total % 11 if text[0].upper() != "M" else 10 - total % 11] == text[8].upper()


def is_nhs(text: str) -> bool:
    digits = _digits(text)
    check = -_weighted(digits[:9], range(10, 1, -1)) % 11
    return check == int(digits[9]) and len(set(digits)) > 1


def is_spanish_id(text: str) -> bool:
    number = text.upper().replace("X", "0", 1).replace("Y", "1", 1).replace("Z", "2", 1) if text[0].isalpha() else text.upper()
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(number[:8]) % 23] == number[8]


def is_french_id(text: str) -> bool:
    digits = _digits(text)
    return 97 - int(digits[:13]) % 97 == int(digits[13:])


def is_korean_id(text: str) -> bool:
    return is_day("19" + text[:6]) or is_day("20" + text[:6])


def is_aadhaar(text: str) -> bool:
    """India: Verhoeff's check."""
    check = "0"
    for place, digit in enumerate(reversed(_digits(text))):
        check = _VERHOEFF[int(check)][int(_SHUFFLE[place % 8][int(digit)])]
    return check == "0"


def is_dea(text: str) -> bool:
    """A US prescriber's number."""
    number = text[2:]
    return (sum(map(int, number[:6:2])) + 2 * sum(map(int, number[1:6:2]))) % 10 == int(number[6])


def is_swedish_id(text: str) -> bool:
    digits = _digits(text)[-10:]
    return luhn(digits) and is_day("19" + digits[:6])


def is_npi(text: str) -> bool:
    return luhn("80840" + text)


def _always(_text: str) -> bool:
    return True


class ForeignId(NamedTuple):
    name: str
    example: str
    regex: re.Pattern[str]
    is_valid: Callable[[str], bool]
    min_digits: int
    """The fewest digits it can have."""


def _id(name: str, example: str, regex: str, is_valid: Callable[[str], bool] = _always, digits: int = 7) -> ForeignId:
    return ForeignId(name, example, lazy_pattern(regex), is_valid, digits)


_NAMES = (
    "HKID(?: card)?|Hong Kong ID(?: card)?|NRIC|FIN number|DNI|NIE|CPF|CNPJ|PAN(?: card)?|SIN|TFN|RRN|EIN|DL|MBI|NINO?|UTR|PPSN?|BSN|Aadhaar|AHV|NIF|RUT|CURP|RFC|personnummer|personal number"
    "|codice fiscale|Steuer-?ID|My Number|National Insurance|NI number|national id|resident permit|residence permit|driver'?s? licen[cs]e|driving licen[cs]e|travel document|passport|Medicare|Medicaid|Medi-?care card"
    "|health card|health insurance|social security|social insurance|social|SSN|NPI|DEA|NHS|CHI number|H&C number|num[ée]ro de s[ée]cu(?:rit[ée] sociale)?|IBAN|BIC|sort code|Taiwan ID|ROC ID|HK ID|permit"
    "|OHIP|HC|health number|IHI|PPS|A-number|alien number|visa|green card|EHIC|GHIC|tax file|voter id|PESEL|CNP|personnr|kennitala|cedula|CUIL|SVNR|NISS|kimlik|Emirates ID|Iqama|civil id|CNIC|NIC|PhilHealth|UMID|MyKad|NIK|BPJS|student id|military id|VA number|DoD ID|Blue Cross|Aetna|Cigna|Kaiser"
    "|hosp(?:ital)?(?: no)?|unit no|reg(?:istration)?(?: no|\\.)|serial(?: no)?|acct|BIR|sample|specimen|lab no|accession|episode|ABHA|UHID|IPD?(?: no)|OPD?(?: no)|CR no|Macau ID|TX|barcode|sort code and acct"
)
_NAMES_ZH = (
    "香港(?:居民)?身份证|澳门(?:居民)?身份证|身[份分]证(?:字号)?|身分证|港澳居民来往内地通行证|回乡证|通行证|台胞证|台湾居民来往大陆通行证|居留证|居住证|绿卡|护照|军官证|士兵证|警官证|社安号|社会安全号|社保号|外国人登录证?号?|登录证|个人番号|マイナンバー|永久居留证"
    "|NRIC|CPF|SSN|NHS|IBAN|学生证|工作证|海员证|船员证|退役军人证|优待证|老年证|残疾人?证|低保证|出生医学证明|出生证|接种证|疫苗本|暂住证|居留许可|签证|永居证|士官证|健保卡?号?|健康卡|社会保障卡|电子凭证|快递|运单|军人保障卡|税号|医保卡?|驾照|驾驶证|银行账[号户]|账[号户]|卡号|登记号|机身号|序列号|设备号|条形?码号?|标本号|样本号|检验号|病理号|影像号|放射号|申请单号?|条码|证件|医保号|新农合证?|农合证|合作医疗证|打款到|退款到|汇款到|转账到"
)
_VALUE = r"(?P<phi>(?=[A-Za-z0-9 .\-/()*_]{0,40}\d)(?:[A-Z]{1,6}[ \-/]?){0,3}\(?\d[A-Z0-9]{0,29}(?:[ .\-/*_(]{1,2}[A-Z0-9]{1,8}\)?){0,9})"
FOREIGN_IDS = (
    _id("Hong Kong identity card", "card {A123456(3)} seen", rf"{_START}[A-Z]{{1,2}}\d{{6}} ?\([0-9A]\)", is_hong_kong_id, digits=6),
    _id("Hong Kong identity card behind a word for it", "身份證號碼{K482916(3)}", r"(?i:身[份分]?[证證]\S{0,4}|HKID|HK ID|ID card|identity card)[ :：#]{0,3}(?P<phi>[A-Z]{1,2} ?\d{3} ?\d{3} ?\([0-9A]\))", digits=6),
    _id("Macau identity card with strokes", "BIR {1/274419/8}", rf"{_START}[157]/\d{{6}}/\d{_END}"),
    _id("Macau identity card", "澳门 {1234567(8)} 登记", rf"{_START}[157]\d{{6}} ?\(\d\)"),
    _id("Taiwan identity card", "ID {A123456789}", rf"{_START}[A-Z][1289]\d{{8}}{_END}", is_taiwan_id),
    _id("permit for Hong Kong and Macau residents", "证件{H12345678}", rf"{_START}(?<!准字)[HM]\d{{8}}(?:\d{{2}})?{_END}"),
    _id("Chinese passport", "持{E12345678}入境", rf"{_START}(?:[EGDSPK]\d{{8}}|E[A-HJ-NP-Z]\d{{7}}){_END}"),
    _id("Singapore identity card", "holds {S1234567D}", rf"{_START}[STFGM]\d{{7}}[A-Z]{_END}", is_nric),
    _id("NHS number", "patient {943 476 5919}", rf"{_START}\d{{3}}[ \-]\d{{3}}[ \-]\d{{4}}{_END}", is_nhs),
    _id("British national insurance number", "for {AB 12 34 56 C}", rf"{_START}[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{{2}} ?\d{{2}} ?\d{{2}} ?[A-D]{_END}", digits=6),
    _id("Spanish identity card", "con {12345678Z}", rf"{_START}(?:\d{{8}}|[XYZ]\d{{7}})[A-Z]{_END}", is_spanish_id),
    _id("French social security number", "numéro {1 84 12 76 451 089 46}", rf"{_START}[12] ?\d{{2}} ?(?:0[1-9]|1[0-2]) ?\d{{2}} ?\d{{3}} ?\d{{3}} ?\d{{2}}{_END}", is_french_id),
    _id("Italian tax code", "ha {RSSMRA85T10A562S}", rf"{_START}[A-Z]{{6}}\d{{2}}[ABCDEHLMPRST]\d{{2}}[A-Z]\d{{3}}[A-Z]{_END}"),
    _id("Brazilian tax number", "o {123.456.789-09}", rf"{_START}\d{{3}}\.\d{{3}}\.\d{{3}}-\d{{2}}{_END}"),
    _id("Korean resident number", "with {850101-1234567}", rf"{_START}\d{{6}}-[1-8]\d{{6}}{_END}", is_korean_id),
    _id("Indian Aadhaar number", "holds {2345 6789 0124}", rf"{_START}[2-9]\d{{3}} \d{{4}} \d{{4}}{_END}", is_aadhaar),
    _id("Indian tax number", "holds {ABCPE1234F}", rf"{_START}[A-Z]{{5}}\d{{4}}[A-Z]{_END}", digits=4),
    _id("Canadian social insurance number", "has {046 454 286}", rf"{_START}[1-79]\d{{2}} \d{{3}} \d{{3}}{_END}|{_START}046 454 286{_END}", lambda text: luhn(_digits(text))),
    _id("Swedish personal number", "har {811218-9876}", rf"{_START}(?:19|20)?\d{{6}}[\-+]\d{{4}}{_END}", is_swedish_id),
    _id("US Medicare number", "holds {1EG4-TE5-MK73}", rf"{_START}[1-9][A-Z][A-Z0-9]\d-?[A-Z][A-Z0-9]\d-?[A-Z]{{2}}\d{{2}}{_END}", digits=5),
    _id("US prescriber", "by {AB1234563}", rf"{_START}[A-Z]{{2}}\d{{7}}{_END}", is_dea),
    _id("US provider", "by {1234567893}", rf"{_START}[12]\d{{9}}{_END}", is_npi),
    _id("behind its English name", "HKID: {C668668(E)}", rf"\b(?i:{_NAMES})\b\.?(?i: (?:number|num|no\.?|id|code|card|is|of|#)){{0,3}}[ :#=]{{1,3}}{_VALUE}", digits=4),
    _id("behind its Chinese name", "台胞证：{12345678}", rf"(?:{_NAMES_ZH})(?:号码?|字号|是|为|号)?(?:是|为)?[ :：#]{{0,3}}{_VALUE}", digits=4),
)  # fmt: skip


def find(folded: str, digits: int) -> Iterator[Span]:
    """`digits`: how many the text has."""
    if digits < 4:
        return
    for row in FOREIGN_IDS:
        if row.min_digits > digits:
            continue
        for match in row.regex.finditer(folded):
            span = match.span("phi") if "phi" in row.regex.groupindex else match.span()
            value = folded[span[0] : span[1]]
            if sum(char.isdigit() for char in value) >= 4 and row.is_valid(value):
                yield *span, "RECORD"
