"""Names that are stored as they are, beside the encrypted texts: session, agent, model, a sender's own ids, a consent text.

They are indexed, listed and exported, so they must say nothing about a person. Only the characters of an identifier are allowed,
and neither a telephone, identity or card number, grouped or not and whatever stands around it, nor an e-mail address or a
patient's number. A person's name in plain letters cannot be told from any other word: send ids that your system made up.

What systems make up passes: UUIDs, hashes, counters, and times (Unix time, 20261116, 16-11-2026), also side by side:
`sess-1752480000-1` has the digits of a mobile number only if the time and the counter are read as one.
"""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from medloop.privacy.phi.numbers import is_mobile, is_resident_id, luhn

LONGEST = 128
_ALLOWED = r"^[A-Za-z0-9][A-Za-z0-9._:@/+=-]*$"
_NAME = re.compile(_ALLOWED)
_EMAIL = re.compile(r"[A-Za-z0-9._+-]@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(?![A-Za-z0-9])")
# Drawn at random or computed, so the digits in it mean nothing: a UUID; as many hexadecimal digits as MD5 and the SHA family
# have, with letters among them; 16 or more that have no room for a telephone number.
_RANDOM = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?=(?:\d*[a-f]){2})(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128}"
    r"|(?![0-9a-f]*\d{11})[0-9a-f]{16,}))(?![0-9A-Za-z])",
    re.I,
)
# Unix time in seconds or milliseconds, a day of this century, a day with its time.
_MOMENT = r"(?:1\d{9}(?:\d{3})?|20\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d{4}|\d{6})?)(?!\d)"
_DIGITS_ENOUGH = re.compile(r"(?:\d\D*){4}")
_AS_A_MOBILE = re.compile(r"(?:\d\D*){10}")  # ten digits and one or an X; identity and card numbers have more
_DIGITS = re.compile(r"\d+(?:[._:@/+=-]\d+)*(?:[._:@/+=-]?[Xx](?![A-Za-z0-9]))?")
_GROUP = re.compile(r"\d+[Xx]?|[Xx]")
_DIGIT_GROUP = re.compile(r"\d+")
_MOST_GROUPS = 6  # neighbouring groups of digits that are tried as one number
_SHORTEST_GROUP = 3  # of a mobile number or an old identity number: 16-11-2026-105 is none
_COUNTRY_CODES = ("86", "0086")
_IS_MOMENT = re.compile(_MOMENT)
_CARD = re.compile(  # the first digits of the card networks, with their lengths
    r"4\d{15}(?:\d{3})?|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|(?:62|65|6011|64[4-9]\d|35)\d{12,17}"
)
_PHONE = re.compile(
    rf"(?<![A-Za-z0-9])\+\d(?:[._/-]?\d){{7,14}}(?!\d)|\+(?!{_MOMENT})\d(?:[._/-]?\d){{7,14}}(?!\d)"  # +44-20-7946-0958
    r"|(?<!\d)0\d{2,3}-\d{7,8}(?!\d)"  # 010-62345678
    r"|(?<!\d)0\d{2,4}[._-]\d{3,4}[._-]\d{4}(?!\d)"  # 020-7946-0958
    r"|(?<!\d)\d{3}[._-]\d{3}[._-]\d{4}(?!\d)"  # 415-555-0100
)
_NUMBER_OF_SOMEBODY = re.compile(
    r"(?<![a-z])(?:mrn|ssn|nhs|patient|phone|mobile|tel)[._:=-]*(?:id|no|nr|number)?[._:=-]*\d{4,}"  # mrn-4471902
    r"|(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)"  # a social security number
    r"|(?<!\d)[3-6]\d{3}(?:[._-]\d{4}){3}(?!\d)",  # a bank card
    re.I,
)
OTHER_CHARACTERS = "use only letters, digits and . _ : @ / + = - in it, without spaces, at most 128"
OF_A_PERSON = (
    "this looks like a number or an address of a person; send an id that says nothing about anybody, "
    "for example a UUID, sess_xyz789 or 2026-01"
)


def check_name(name: str) -> str:
    """The name itself; ValueError where it has other characters, or what may identify somebody."""
    if len(name) > LONGEST or not _NAME.fullmatch(name):
        raise ValueError(OTHER_CHARACTERS)
    if "@" in name and _EMAIL.search(name):
        raise ValueError(OF_A_PERSON)
    if not _DIGITS_ENOUGH.search(name):
        return name
    rest = _RANDOM.sub("-", name)
    if _AS_A_MOBILE.search(rest):
        if any(is_mobile(number) or is_resident_id(number) for number in _numbers(rest)):
            raise ValueError(OF_A_PERSON)
        if any(_CARD.fullmatch(digits) and luhn(digits) for digits in _DIGIT_GROUP.findall(rest)):
            raise ValueError(OF_A_PERSON)
    if rest != name and any(len(number) == 18 and is_resident_id(number) for number in _numbers(name)):
        raise ValueError(OF_A_PERSON)
    if _PHONE.search(rest) or _NUMBER_OF_SOMEBODY.search(rest):
        raise ValueError(OF_A_PERSON)
    return name


def _numbers(name: str) -> Iterator[str]:
    """Each group of digits, and what neighbouring groups are together, if people group a number in this way."""
    for run in _DIGITS.finditer(name):
        groups = _GROUP.findall(run[0])
        for first in range(len(groups)):
            for last in range(first + 1, min(first + _MOST_GROUPS, len(groups)) + 1):
                digits = "".join(groups[first:last])
                if len(digits) == 18 or last == first + 1 or _may_be_one(groups[first:last]):
                    yield digits


def _may_be_one(groups: list[str]) -> bool:
    """Whether groups may be parts of one number. With 18 digits its check digit says more."""
    parts = groups[1:] if groups[0] in _COUNTRY_CODES else groups
    return not any(len(part) < _SHORTEST_GROUP or _IS_MOMENT.fullmatch(part) for part in parts)


SafeName = Annotated[
    str, Field(min_length=1, max_length=LONGEST, json_schema_extra={"pattern": _ALLOWED}), AfterValidator(check_name)
]
