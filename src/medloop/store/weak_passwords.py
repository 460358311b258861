"""Passwords that somebody who knows people would try first.

    weakness("Welcome2026!!", "dr.li")      # "common"

Common words, rows of a keyboard, years and repetitions count nothing, also with a 0 for an o; six letters or digits must remain.
The list is short on purpose: it holds what fills twelve characters, not what is common among short passwords.
"""

import re
import unicodedata
from typing import Literal

from medloop.errors import InputError

SHORTEST, LONGEST = 12, 256
LEAST_REST = 6  # letters and digits that are neither common words nor rows nor repetitions

Weakness = Literal["length", "common", "name"]

WORDS = """
    abc access account admin administrator aini america april asdf august autumn baby baseball batman beijing change charlie china
    chocolate clinic computer correcthorsebatterystaple daniel december default demo doctor dragon example family february
    flower football forever freedom friday friend guest guangzhou healthcare health hello hospital huanying iloveyou january jesus
    jessica jordan july june killer letmein linkedin login london love loveyou lucky manager march master may medical medicine
    medloop michael mima monday monkey nihao ninja november nurse october open passcode passphrase passport password passwd
    passwort pass patient pharmacy photos picture please princess qwer qwerty root sample samsung saturday secret senha september
    server service shadow shanghai shenzhen silver soccer spring starwars summer sunday sunshine superman supervisor support
    surgery system temp temporary test testing thursday tigger trustno trustnoone tuesday user wednesday welcome whatever winter
    woaini woshi xiaoming yisheng yiyuan zhongguo zhongwen 5201314 520 1314 123 321 666 888 999 000 111
""".split()
ROWS = (
    "01234567890", "abcdefghijklmnopqrstuvwxyz", "qwertyuiop", "qwertzuiop", "azertyuiop", "asdfghjkl", "zxcvbnm", "yxcvbnm",
    "qazwsxedcrfvtgbyhnujmikolp", "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p", "1q2w3e4r5t6y7u8i9o0p", "a1b2c3d4e5f6g7h8i9",
    "1a2b3c4d5e6f7g8h9i",
)  # fmt: skip
_LEET = str.maketrans("013457@$!|", "oieastasil")
_GUESSED = re.compile("|".join((r"(.)\1{2,}", r"(?:19|20)\d\d", *map(re.escape, sorted(WORDS, key=len, reverse=True)))))
_RUNS = {row[i : i + 4] for line in ROWS for row in (line, line[::-1]) for i in range(len(row) - 3)}


class WeakPasswordError(InputError):
    """A password that is too short, common, or made of the user's name."""

    def __init__(self, reason: Weakness) -> None:
        self.reason = reason
        problem = {
            "length": f"A password must have {SHORTEST} to {LONGEST} characters",
            "common": "This password is easy to guess: it consists of common words, rows of keys, numbers or repetitions",
            "name": "This password contains the user name",
        }[reason]
        super().__init__(problem, "Use a few random words: they are easy to remember")


def refuse_weak(password: str, user_name: str) -> None:
    if (reason := weakness(password, user_name)) is not None:
        raise WeakPasswordError(reason)


def weakness(password: str, user_name: str) -> Weakness | None:
    """Why this password is refused for this user; None if it is not."""
    if not SHORTEST <= len(password) <= LONGEST:
        return "length"
    typed = unicodedata.normalize("NFKC", password).casefold()
    if any(part in typed for part in _name_parts(user_name)):
        return "name"
    # Signs between words are easy to guess, too; those that stand for letters are read as letters first.
    texts = [[sign for sign in text if sign.isalnum()] for text in (typed, typed.translate(_LEET))]
    return "common" if typed.isdecimal() or any(_rest("".join(text)) < LEAST_REST for text in texts) else None


def _name_parts(user_name: str) -> list[str]:
    name = unicodedata.normalize("NFKC", user_name).casefold()
    return [part for part in {*re.split(r"[.@_-]", name), name} if len(part) >= (4 if part != name else 3)]


def _rest(text: str) -> int:
    """How many letters and digits are left without what is guessed first; a repeated text counts once."""
    period = next((n for n in range(1, len(text) // 2 + 1) if text == (text[:n] * len(text))[: len(text)]), len(text))
    guessed = {index for match in _GUESSED.finditer(text) for index in range(*match.span())}
    guessed |= {index + k for index in range(len(text)) if text[index : index + 4] in _RUNS for k in range(4)}
    return sum(index not in guessed for index in range(period))
