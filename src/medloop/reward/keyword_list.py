"""How much of a text is a mere list of words: keywords in a row, without the small words and the verbs that make sentences.

    listed_share("fever cough hospital doctor ambulance medicine rest water dose danger")   -> 1.0
    listed_share("Rest, drink enough water and see a doctor if the fever stays.")            -> 0.0

Two things are a list: six or more short pieces in a row (up to two English words or four Chinese characters each, between commas,
stops or line breaks; in Chinese also between blanks), and eight or more English words between two marks with no small word among
them. Of real answers one in a hundred has more than a quarter of its words in lists (benchmarks/incentives.py).
"""

import re
from functools import lru_cache
from typing import Final

from medloop.lexicon.words import split_words
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE

JOINING: Final = frozenset(
    """a an the and or but if of to in on at for with from by as is are was were be been it its this that these those you your he
    she they them his her their i we our my me not no do does did can could may might will would should have has had there than
    then so such when which who what how more most any some all also only very about into over up out after before between because
    while until other too just each both same""".split()
) | frozenset(
    "的了是我你您他她它这那有在和就不都一也很到说要去会着没请可以吗呢吧能因为所还如果或者与及等对把被让给从但而且并将其应该最多少后前时"
)
LISTED: Final = 0.25  # share of a text in lists up to which it is one in sentences
_SIGNS, _HAN = r",，、;；。.!?！？:：\n|/•*", r"\u3400-\u9fff"
# Signs in a row, or blanks beside a Chinese character. It begins with one class, so that a search jumps to its characters.
_MARKS: Final = lazy_pattern(rf"[{_SIGNS}\s](?:(?<=[{_SIGNS}])[{_SIGNS}]*|(?<=\S\s)\s*(?=[{_HAN}])|(?<=[{_HAN}]\s)\s*)")
_PIECES, _BARE = 6, 8  # short pieces in a row; English words in a row without a small word
_SHORT_EN, _SHORT_ZH = 2, 4  # words of a short piece
_WORD: Final = lazy_pattern(r"\S+")
_LONGEST_PIECE: Final = 24  # characters


@lru_cache(maxsize=CACHE_SIZE)
def listed_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Where a text is a list of words, as (start, end)."""
    spans: list[tuple[int, int]] = []
    row: list[tuple[int, int]] = []  # short pieces in a row
    first = len(text) - len(text.lstrip())  # a hidden chain of thought leaves many blanks, and looking at each of them is slow
    start = text.rfind("\n", 0, first) + 1
    for mark in (*_MARKS.finditer(text, first), None):
        end = mark.start() if mark else len(text)
        piece = text[start:end].strip()
        if piece and _is_short(piece):
            row.append((start, end))
        elif piece:
            spans += row if len(row) >= _PIECES else ()
            row = []
            if len(piece) > 3 * _BARE and piece.isascii():
                spans += _bare_spans(text, start, end)
        start = mark.end() if mark else end
    return tuple(spans + row if len(row) >= _PIECES else spans)


def listed_share(text: str) -> float:
    """The share of a text that is a list of words, 0–1."""
    return sum(end - start for start, end in listed_spans(text)) / max(1, len(text.strip()))


def _is_short(piece: str) -> bool:
    if piece.isascii():
        return len(piece) <= _LONGEST_PIECE and piece.count(" ") < _SHORT_EN
    return len(piece) <= _SHORT_ZH or (len(piece) <= 2 * _SHORT_ZH and len(split_words(piece)) <= _SHORT_ZH)


def _bare_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Runs of English words without a small word."""
    if not _has_bare_run(text[start:end].lower().split()):
        return []
    spans: list[tuple[int, int]] = []
    run: list[re.Match[str]] = []
    for word in (*_WORD.finditer(text, start, end), None):
        if word and word[0].lower() not in JOINING:
            run.append(word)
            continue
        spans += [(run[0].start(), run[-1].end())] if len(run) >= _BARE else []
        run = []
    return spans


def _has_bare_run(words: list[str]) -> bool:
    run = 0
    for word in words:
        run = 0 if word in JOINING else run + 1
        if run >= _BARE:
            return True
    return False
