"""Where the phrases of all word lists stand in a text, found in one pass by one automaton (Aho-Corasick, `ahocorasick_rs`).

Two forms of a text make that possible. `fold` is lower case and half width, every character in its place. `Plain` is what
the automaton reads: white space and hyphens between two Latin words are one blank, beside anything else they vanish, so that
"chest - pain" reads "chest pain" and "拨打 120" reads "拨打120"; it keeps the way back to the places of the text.

The cost grows with the length of the text, not with the number of phrases.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter

from ahocorasick_rs import AhoCorasick

Place = tuple[int, int]
MAX_PLACES = 16  # of one word list in a text: more of the same says nothing new, and repeated text must not cost more

_FOLD = {c: c + 0x20 for c in range(ord("A"), ord("Z") + 1)}
_FOLD |= {c: c - 0xFEE0 for c in range(0xFF01, 0xFF5F)}  # full-width forms
_FOLD |= {c: c - 0xFEE0 + 0x20 for c in range(0xFF21, 0xFF3B)}  # full-width capitals
_FOLD |= {0x3000: 0x20, 0x2018: 0x27, 0x2019: 0x27, 0x2010: 0x2D, 0x2011: 0x2D, 0x2013: 0x2D, 0x2014: 0x2D}
_FOLD_TEXT = {chr(sign): chr(to) for sign, to in _FOLD.items()}
_FOLDED = frozenset(_FOLD_TEXT)
TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[^\s\-a-z0-9]")  # a word, or one character of anything else
_WORD_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789'")
# What a gap has too much, once hyphens are blanks: all of it at an edge or beside a sign that is no Latin word, all but the
# first blank between two words. Beside an apostrophe it stays: "can 't" is not "can't".
_LOOSE = re.compile(r"(?= )( +(?![a-z0-9' ])|(?<![a-z0-9' ]) +|(?<= ) +)")
_OTHER_SPACE = re.compile(r"[^\S ]")
_HALF = re.compile("[\ud800-\udfff]")  # half a character, as a broken JSON escape leaves it; the automaton takes none
_BY_PLACE = itemgetter(1, 2)
SENTENCE_END = re.compile(r"[!?。\n.](?:(?<!\.)|(?=\s|$))")  # on folded text; a point ends one only before a blank


def fold(text: str) -> str:
    """Lower case, half width, plain quotes; every character keeps its place, so offsets stay true."""
    if text.isascii():
        return text.lower()
    for sign in _FOLDED.intersection(text):  # a text holds a handful of them: replacing each beats a look at every character
        text = text.replace(sign, _FOLD_TEXT[sign])
    return text


def sentence_ends(folded: str) -> list[int]:
    """The places behind the last sign of each sentence."""
    return [found.end() for found in SENTENCE_END.finditer(folded)]


class Plain:
    """A folded text without its loose white space, and the way back. It ends with a blank more, for both of its edges:
    what stands before the first character is `text[-1]`."""

    __slots__ = ("_ends", "_lost", "_tokens", "text")

    def __init__(self, folded: str) -> None:
        line = folded.replace("-", " ").replace("\n", " ")
        if not line.isprintable():  # of white space only the blank is
            line = _HALF.sub("\ufffd", _OTHER_SPACE.sub(" ", line))
        pieces = _LOOSE.split(line)  # kept, lost, kept, lost, ..., kept
        kept = pieces[::2]
        self.text = "".join(kept) + " "
        self._ends = list(accumulate(map(len, kept)))
        self._lost = list(accumulate(map(len, pieces[1::2]), initial=0))
        self._tokens: tuple[frozenset[int], frozenset[int]] | None = None

    def place(self, start: int, end: int) -> Place:
        """Characters of the plain text as characters of the folded one."""
        ends, lost = self._ends, self._lost
        piece = bisect_right(ends, start)
        last = piece if end <= ends[piece] else bisect_right(ends, end - 1)  # most phrases lie within one piece
        return start + lost[piece], end + lost[last]

    def are_tokens(self, start: int, end: int) -> bool:
        """Do tokens begin and end here? Asked where a word goes on beside a phrase; only an apostrophe may still allow that."""
        if "'" not in self.text:
            return False
        if self._tokens is None:
            found = [token.span() for token in TOKEN.finditer(self.text)]
            self._tokens = frozenset(start for start, _ in found), frozenset(end for _, end in found)
        return start in self._tokens[0] and end in self._tokens[1]


class Scanner:
    """Phrases, each with the slots (word lists) it belongs to."""

    def __init__(self, slots_of: Mapping[str, Sequence[int]]) -> None:
        found: dict[str, tuple[int, ...]] = {}
        for phrase, slots in slots_of.items():
            # Patients write "cant", too; an apostrophe that stands alone may have a blank on either side.
            for spelling in {phrase.replace("'", ""), phrase, phrase.replace(" '", " ' "), phrase.replace(" '", "' ")}:
                plain = Plain(spelling).text[:-1]
                found[plain] = (*found.get(plain, ()), *slots)
        # Per phrase: does it begin, does it end with a word, and its slots.
        self._phrases = [(phrase[0] in _WORD_SIGNS, phrase[-1] in _WORD_SIGNS, slots) for phrase, slots in found.items()]
        self._automaton = AhoCorasick(list(found), store_patterns=False)

    def scan(self, plain: Plain) -> dict[int, list[Place]]:
        """Slot -> places of its phrases in the folded text, by position, at most MAX_PLACES."""
        text = plain.text
        found = self._automaton.find_matches_as_indexes(text, overlapping=True)
        found.sort(key=_BY_PLACE)
        places: dict[int, list[Place]] = {}
        for number, start, end in found:
            word_first, word_last, slots = self._phrases[number]
            if (word_first and text[start - 1] in _WORD_SIGNS) or (word_last and text[end] in _WORD_SIGNS):
                if not plain.are_tokens(start, end):
                    continue
            place = plain.place(start, end)
            for slot in slots:
                if slot not in places:
                    places[slot] = [place]
                elif len(places[slot]) < MAX_PLACES:
                    places[slot].append(place)
        return places


class Cues:
    """Short texts to be found wherever they stand, even inside a word."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._automaton = AhoCorasick(list(texts), store_patterns=False)

    def starts(self, folded: str) -> list[int]:
        """Where they begin in a folded text, in order."""
        if not folded.isprintable():
            folded = _HALF.sub("\ufffd", folded)
        return sorted(start for _, start, _ in self._automaton.find_matches_as_indexes(folded, overlapping=True))
