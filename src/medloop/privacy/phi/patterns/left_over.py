"""What must not be left after scrubbing: looser forms than those that are removed. Such a text is refused."""

import re
from collections.abc import Callable
from typing import NamedTuple

from medloop.privacy.phi.guards import lazy_pattern


class LeftOver(NamedTuple):
    name: str
    example: str
    regex: re.Pattern[str]
    may_match: Callable[[str], object]
    """A cheap necessary condition."""


_TWO_DIGITS = lazy_pattern(r"\d[^\d]{0,4}\d")
LEFT_OVER = (
    LeftOver(
        "e-mail address in pieces",
        "jane [@] clinic [.] org",
        lazy_pattern(r"[A-Za-z0-9._\-]{1,64}[ \[(]{0,2}@[ \])]{0,2}[A-Za-z0-9\-]{2,63}[ \[(]{0,2}\.[ \])]{0,2}[A-Za-z]{2}"),
        lambda text: "@" in text,
    ),
    LeftOver(
        "digits spelled in Chinese",
        "手机一三八零零一三八零零零",
        lazy_pattern(r"[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖]{7}"),
        lambda text: not text.isascii(),
    ),
    LeftOver(
        "digits kept apart one by one",
        "1----3----8----0----0----1----3----8----0----0",
        lazy_pattern(r"(?<!\d)\d(?:[^\w\n]{1,4}\d(?!\d)){9}"),
        lambda text: _TWO_DIGITS.search(text),
    ),
    LeftOver(
        "digits behind the name of an id",
        "SSN of mine: 1120",
        lazy_pattern(r"(?:身份证|SSN|social security)[^\d\n]{0,12}\d{4}"),
        lambda text: _TWO_DIGITS.search(text),
    ),
)


def is_left_over(folded: str) -> bool:
    """Whether a scrubbed text still holds what looks like an identifier."""
    return any(form.may_match(folded) and form.regex.search(folded) for form in LEFT_OVER)
