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
from typing import Final

from ahocorasick_rs import AhoCorasick

Place = tuple[int, int]
MAX_PLACES: Final = 16  # of one word list in a text: more of the same says nothing new, and repeated text must not cost more

_FOLD = {c: c + 0x20 for c in range(ord("A"), ord("Z") + 1)}
_FOLD |= {c: c - 0xFEE0 for c in range(0xFF01, 0xFF5F)}  # full-width forms
_FOLD |= {c: c - 0xFEE0 + 0x20 for c in range(0xFF21, 0xFF3B)}  # full-width capitals
_FOLD |= {0x3000: 0x20, 0x2018: 0x27, 0x2019: 0x27, 0x2010: 0x2D, 0x2011: 0x2D, 0x2013: 0x2D, 0x2014: 0x2D}
_FOLD_TEXT: Final = {chr(sign): chr(to) for sign, to in _FOLD.items()}
_FOLDED: Final = re.compile(f"[{re.escape(''.join(_FOLD_TEXT))}]")
TOKEN: Final = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[^\s\-a-z0-9]")  # a word, or one character of anything else
_WORD_SIGNS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789'")
# What a gap has too much, once hyphens are blanks: all of it at an edge or beside a sign that is no Latin word, all but the
# first blank between two words. Beside an apostrophe it stays: "can 't" is not "can't".
# Every way begins with the blank itself, which lets the search jump from blank to blank.
_LOOSE: Final = re.compile(r"( (?: *(?![a-z0-9' ])|(?<![a-z0-9' ] ) *|(?<=  ) *))")
_OTHER_SPACE: Final = re.compile(r"[^\S ]")
_HALF: Final = re.compile(r"[\ud800-\udfff]")  # half a character, as a broken JSON escape leaves it; the automaton takes none
_BY_START: Final = itemgetter(1)
SENTENCE_END: Final = re.compile(r"[!?。\n.](?:(?<!\.)|(?=\s|$))")  # on folded text; a point ends one only before a blank


def fold(text: str) -> str:
    """Lower case, half width, plain quotes; every character keeps its place, so offsets stay true."""
    if text.isascii():
        return text.lower()
    for sign in set(_FOLDED.findall(text)):  # a text holds a handful of them: replacing each beats a look at every character
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
        pieces = _LOOSE.split(line) if " " in line else [line]  # kept, lost, kept, lost, ..., kept
        kept = pieces[::2]
        self.text = "".join(kept) + " "
        self._ends = list(accumulate(map(len, kept)))
        self._lost = list(accumulate(map(len, pieces[1::2]), initial=0))
        self._tokens: tuple[frozenset[int], frozenset[int]] | None = None

    def place(self, start: int, end: int) -> Place:
        """Characters of the plain text as characters of the folded one."""
        ends, lost = self._ends, self._lost
        piece = bisect_right(ends, start) if len(ends) > 1 else 0
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


class Slot:
    """One set of phrases. The object itself is the key of what was found of it; a matcher adds what it means."""

    __slots__ = ()


class Found:
    """Slot -> places of its phrases in the folded text, by position, at most MAX_PLACES; and where the cues of each set begin."""

    __slots__ = ("cues", "places")

    def __init__(self, sets: int) -> None:
        self.places: dict[Slot, list[Place]] = {}
        self.cues: list[list[int]] = [[] for _ in range(sets)]


class _Phrase:
    """What a found text stands for: slots and sets of cues. `word_first`, `word_last`: a word must not go on there."""

    __slots__ = ("cues", "slots", "word_first", "word_last")

    def __init__(self, text: str, slots: Iterable[Slot], cues: Iterable[int]) -> None:
        self.word_first = text[0] in _WORD_SIGNS
        self.word_last = text[-1] in _WORD_SIGNS
        self.slots = tuple(slots)
        self.cues = tuple(cues)


class Scanner:
    """Phrases, each with the slots it belongs to; and sets of cues, found wherever they stand, even inside a word."""

    def __init__(self, slots_of: Mapping[str, Sequence[Slot]], cues: Sequence[Iterable[str]] = ()) -> None:
        slots: dict[str, list[Slot]] = {}
        for phrase, of_phrase in slots_of.items():
            # Patients write "cant", too; an apostrophe that stands alone may have a blank on either side.
            for spelling in {phrase.replace("'", ""), phrase, phrase.replace(" '", " ' "), phrase.replace(" '", "' ")}:
                slots.setdefault(Plain(spelling).text[:-1], []).extend(of_phrase)
        sets: dict[str, list[int]] = {}
        for number, texts in enumerate(cues):
            for text in texts:
                sets.setdefault(Plain(text).text[:-1], []).append(number)
        known = list(dict.fromkeys((*slots, *sets)))
        self._sets = len(cues)
        self._phrases = [_Phrase(text, slots.get(text, ()), sets.get(text, ())) for text in known]
        self._automaton = AhoCorasick(known, store_patterns=False)

    def scan(self, plain: Plain) -> Found:
        text, found = plain.text, Found(self._sets)
        places, phrases = found.places, self._phrases
        matches = self._automaton.find_matches_as_indexes(text, overlapping=True)
        matches.sort(key=_BY_START)  # they come by their ends, so those that begin together stay in order
        for number, start, end in matches:
            phrase = phrases[number]
            place = plain.place(start, end)
            for cue in phrase.cues:
                found.cues[cue].append(place[0])
            if (phrase.word_first and text[start - 1] in _WORD_SIGNS) or (phrase.word_last and text[end] in _WORD_SIGNS):
                if not plain.are_tokens(start, end):
                    continue
            for slot in phrase.slots:
                before = places.get(slot)
                if before is None:
                    places[slot] = [place]
                elif len(before) < MAX_PLACES:
                    before.append(place)
        return found
