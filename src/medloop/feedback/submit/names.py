"""Names in a record that are stored as they are, beside the encrypted texts: session, agent, model, and the sender's own ids.

They are indexed, listed and exported, so they must say nothing about a person. Only the characters of an identifier are allowed,
and neither a telephone or identity number, an e-mail address nor a patient's number. A person's name in plain letters cannot be
told from any other word: send ids that your system made up.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from medloop.privacy.phi.numbers import is_mobile, is_resident_id

LONGEST = 128
_ALLOWED = r"^[A-Za-z0-9][A-Za-z0-9._:@/+=-]*$"
_NAME = re.compile(_ALLOWED)
_EMAIL = re.compile(r"@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}$")
_NUMBER_OF_SOMEBODY = re.compile(
    r"(?<![a-z])(?:mrn|ssn|nhs|patient|phone|mobile|tel)[._:=-]*(?:id|no|nr|number)?[._:=-]*\d{4,}"  # mrn-4471902
    r"|(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)",  # a social security number
    re.I,
)
OTHER_CHARACTERS = "use only letters, digits and . _ : @ / + = - in it, without spaces"
OF_A_PERSON = "this looks like a number or an address of a person; send an id that says nothing about anybody"


def check_name(name: str) -> str:
    """The name itself; ValueError where it has other characters, or what may identify somebody."""
    if not _NAME.fullmatch(name):
        raise ValueError(OTHER_CHARACTERS)
    words = re.split(r"[^A-Za-z0-9]+", name)
    if any(is_mobile(word) or is_resident_id(word) for word in words if word[:-1].isdigit()):
        raise ValueError(OF_A_PERSON)
    if _EMAIL.search(name) or _NUMBER_OF_SOMEBODY.search(name):
        raise ValueError(OF_A_PERSON)
    return name


SafeName = Annotated[
    str, Field(min_length=1, max_length=LONGEST, json_schema_extra={"pattern": _ALLOWED}), AfterValidator(check_name)
]
