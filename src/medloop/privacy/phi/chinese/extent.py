"""How far a Chinese name reaches: from the characters that the network marks to the whole name."""

from collections.abc import Sequence

from medloop.privacy.phi.chinese.cues import BEHIND_SURNAME, SAYS, TITLE
from medloop.privacy.phi.chinese.words import WORD_SURNAMES, is_given, is_pair, surname_length
from medloop.privacy.phi.guards import lazy_pattern

_HAN = lazy_pattern(r"[\u3400-\u9fff]")
_INSIDE_NAME = lazy_pattern(r"[\u3400-\u9fff·•]")
_SECOND, _FURTHER = 0.08, 0.1  # the probability with which a name continues, to two characters and beyond
_SENTENCE_ENDS = "。！？!?;；\n：:"
BEFORE_SURNAME = "老小阿姓大"
FUNCTION = "的是和了在也有不我你他她就都来去说到与及请找给对跟同让叫把被这那又还已从为将想要能可后前上下时一"
_CHILD_WORDS = frozenset(("儿子", "儿童", "儿科", "儿女", "儿媳", "儿时", "儿茶"))


def grow(
    text: str, inside: Sequence[float], begins: Sequence[float], offsets: Sequence[int], hot: Sequence[int]
) -> list[tuple[int, int, float]]:
    """From each hot character to the end of the name: start, end and the highest probability in it."""
    spans, done = list[tuple[int, int, float]](), 0
    for first in hot:
        if first < done or not _HAN.match(text, offsets[first]):
            continue
        last = first + 1
        while (
            last < len(inside)
            and offsets[last] == offsets[last - 1] + 1
            and begins[last] < 0.5
            and _INSIDE_NAME.match(text, offsets[last])
            and inside[last] >= (_SECOND if last - first < 2 else _FURTHER)
        ):
            last += 1
        while last > first + 1 and text[offsets[last - 1]] in "·•":
            last -= 1
        start, end = _whole(text, offsets[first], offsets[last - 1] + 1)
        if start < end:  # of 外(孙) nothing is left
            spans.append((start, end, max(inside[first:last])))
        done = last
    return spans


def _whole(text: str, start: int, end: int) -> tuple[int, int]:
    """With the surname before it, without a title, and a surname without a title with one character more."""
    if start and not surname_length(text, start):
        if surname_length(text, start - 1) == 1:
            start -= 1
        elif start > 1 and surname_length(text, start - 2) == 2:
            start -= 2
    if start and text[start - 1 : start + 1] in ("外孙", "侄孙"):
        start += 1
    elif opens(text, start - 1) and end - start == 2 and text[start - 1] in WORD_SURNAMES and is_given(text[start:end]):
        start -= 1
    for index in range(start + 1, end):
        if TITLE.match(text, index) or (index > start + 1 and SAYS.match(text, index)):
            return start, index
    if end - start == 2 and text[end : end + 1] == "儿" and text[end : end + 2] not in _CHILD_WORDS:
        end += 1
    if end - start == 1 and end < len(text) and surname_length(text, start) and _HAN.match(text[end]):
        end += not (BEHIND_SURNAME.match(text, end) or (start and text[start - 1] in BEFORE_SURNAME))
    return _without_words(text, start, end)


def _without_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Without a character of the word before, and without a whole word behind: (老公)梁燕, 胡龙(心理)."""
    if end - start > 2 and start and is_pair(text, start - 1, often=True) and surname_length(text, start + 1):
        start += text[start - 1] not in FUNCTION
    if end - start > 3 and is_pair(text, end - 2, often=True):
        end -= 2
    elif end - start > 2 + (surname_length(text, start) > 0) and is_pair(text, end - 1, often=True):
        end -= 1  # the last character begins the next word: 艾力肯江(右肘)
    return start, end


def opens(text: str, start: int) -> bool:
    """Whether a sentence begins here."""
    return start == 0 or (start > 0 and text[start - 1] in _SENTENCE_ENDS)
