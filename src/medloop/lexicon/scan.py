"""Where the phrases of all word lists stand in a text, found in one pass by one automaton (Aho-Corasick, `ahocorasick_rs`).

Two forms of a text make that possible. `fold` returns lower case and half width with every character in its place.
`NormalizedText` is what the automaton reads: white space and hyphens between two Latin words are one blank and vanish beside
anything else, so that "chest - pain" reads "chest pain" and "拨打 120" reads "拨打120"; it maps its offsets back to
the folded text.

The cost grows with the length of the text, not with the number of phrases.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import Final

from ahocorasick_rs import AhoCorasick

from medloop.patterns import lazy_pattern

Offsets = tuple[int, int]  # start and end in the folded text
MAX_SPANS: Final = 16  # of one phrase set in a text: more of the same adds nothing, and repeated text must not cost more

_FOLD = {c: c + 0x20 for c in range(ord("A"), ord("Z") + 1)}
_FOLD |= {c: c - 0xFEE0 for c in range(0xFF01, 0xFF5F)}  # full-width forms
_FOLD |= {c: c - 0xFEE0 + 0x20 for c in range(0xFF21, 0xFF3B)}  # full-width capitals
_FOLD |= {0x3000: 0x20, 0x2018: 0x27, 0x2019: 0x27, 0x2010: 0x2D, 0x2011: 0x2D, 0x2013: 0x2D, 0x2014: 0x2D}
_FOLD_TEXT: Final = {chr(char): chr(folded) for char, folded in _FOLD.items()}
_FOLDED: Final = lazy_pattern(f"[{re.escape(''.join(_FOLD_TEXT))}]")
TOKEN: Final = lazy_pattern(r"[a-z0-9]+(?:'[a-z]+)?|[^\s\-a-z0-9]")  # a word, or one character of anything else
_WORD_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789'")
# The blanks of a gap that are dropped, once hyphens are blanks: all of them at an edge or beside a character that belongs to no
# Latin word, all but the first between two words. Beside an apostrophe they stay: "can 't" is not "can't".
# Every alternative begins with the blank itself, so that the search jumps from blank to blank.
_LOOSE: Final = lazy_pattern(r"( (?: *(?![a-z0-9' ])|(?<![a-z0-9' ] ) *|(?<=  ) *))")
_IS_TIGHT: Final = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*|[\u4e00-\u9fff]+").fullmatch  # no loose blank: nearly every phrase
_OTHER_SPACE: Final = lazy_pattern(r"[^\S ]")
_SURROGATE: Final = lazy_pattern(r"[\ud800-\udfff]")  # half a character, from a broken JSON escape; the automaton accepts none
_BY_START: Final = itemgetter(1)
SENTENCE_END: Final = lazy_pattern(r"[!?。\n.](?:(?<!\.)|(?=\s|$))")  # a point ends a sentence only before a blank


def fold(text: str) -> str:
    """Lower case, half width, plain quotes; every character keeps its offset."""
    if text.isascii():
        return text.lower()
    for char in set(
        _FOLDED.findall(text)
    ):  # a text has a handful of them: replacing each is faster than a look at every character
        text = text.replace(char, _FOLD_TEXT[char])
    return text


def sentence_ends(folded: str) -> list[int]:
    """The offsets behind the last character of each sentence."""
    return [match.end() for match in SENTENCE_END.finditer(folded)]


def _without_loose_blanks(folded: str) -> str:
    return "".join(_pieces(folded)[::2])


def _pieces(folded: str) -> list[str]:
    """A folded text in pieces: text, dropped, text, dropped, ..., text."""
    line = folded.replace("-", " ").replace("\n", " ")
    if not line.isprintable():  # the blank is the only printable white space
        line = _SURROGATE.sub("\ufffd", _OTHER_SPACE.sub(" ", line))
    return _LOOSE.split(line) if " " in line else [line]


class NormalizedText:
    """A folded text without its loose white space, and the way back.

    `text` ends with an extra blank that serves both edges: the character before the first one is `text[-1]`.
    """

    __slots__ = ("_tokens", "places", "text")

    def __init__(self, folded: str) -> None:
        pieces = _pieces(folded)
        self.text = "".join(pieces[::2]) + " "
        bounds = list(accumulate(map(len, pieces)))
        # The offset in the folded text of every character; a list, because it is read twice for every phrase that is found.
        self.places: Sequence[int] = list(chain.from_iterable(map(range, (0, *bounds[1::2]), bounds[::2])))
        self._tokens: tuple[frozenset[int], frozenset[int]] | None = None

    def original(self, start: int, end: int) -> Offsets:
        """Offsets of this text as offsets of the folded text."""
        return self.places[start], self.places[end - 1] + 1

    def are_tokens(self, start: int, end: int) -> bool:
        """Whether tokens begin and end here. Only an apostrophe allows that where a word continues beside a phrase."""
        if self._tokens is None:
            spans = [token.span() for token in TOKEN.finditer(self.text)]
            self._tokens = frozenset(start for start, _ in spans), frozenset(end for _, end in spans)
        return start in self._tokens[0] and end in self._tokens[1]


def _spellings(phrase: str) -> set[str]:
    """Of a phrase with an apostrophe: patients write "cant", too; one that stands alone may have a blank on either side."""
    return {phrase.replace("'", ""), phrase, phrase.replace(" '", " ' "), phrase.replace(" '", "' ")}


class PhraseSet:
    """One set of phrases. The object itself is the key of its spans; a matcher knows what it means."""

    __slots__ = ()


class ScanResult:
    """`present` are all sets of the text, in its order. `cue_starts`: where the cues of each set begin.

    Hardly any set that could be joined with another is, so that spans are put together only where somebody asks (`spans_of`).
    """

    __slots__ = ("_columns", "cue_starts", "present")

    def __init__(self, present: dict[PhraseSet, list[list[Offsets]]], cue_starts: list[list[int]]) -> None:
        self.present: Final = present  # with the spans of each phrase of the set
        self.cue_starts: Final = cue_starts
        self._columns: Final[dict[PhraseSet, list[Offsets]]] = {}

    def spans_of(self, phrase_set: PhraseSet) -> list[Offsets]:
        """Where a set stands, by position, at most MAX_SPANS."""
        spans = self.present[phrase_set]
        if len(spans) == 1:
            return spans[0]
        column = self._columns.get(phrase_set)
        if column is None:
            column = sorted(chain.from_iterable(spans))[:MAX_SPANS]
            self._columns[phrase_set] = column
        return column


# Whether no word may continue before the phrase, the same behind it, its cue sets, its phrase sets.
_Phrase = tuple[bool, bool, tuple[int, ...], tuple[PhraseSet, ...]]


class Scanner:
    """Finds phrases, each with the sets it belongs to, and cues, which are found wherever they stand, even inside a word."""

    def __init__(self, sets_of: Mapping[str, Sequence[PhraseSet]], cue_sets: Sequence[Iterable[str]] = ()) -> None:
        phrase_sets: dict[str, tuple[PhraseSet, ...]] = {}
        for phrase, its_sets in sets_of.items():
            for spelling in _spellings(phrase) if "'" in phrase else (phrase,):
                text = spelling if _IS_TIGHT(spelling) else _without_loose_blanks(spelling)
                before = phrase_sets.get(text)
                phrase_sets[text] = tuple(its_sets) if before is None else tuple(dict.fromkeys((*before, *its_sets)))
        cue_numbers: dict[str, list[int]] = {}
        for number, texts in enumerate(cue_sets):
            for text in texts:
                cue_numbers.setdefault(_without_loose_blanks(text), []).append(number)
        known = list(dict.fromkeys((*phrase_sets, *cue_numbers)))
        self._cue_sets = len(cue_sets)
        distinct: dict[_Phrase, _Phrase] = {}  # equal ones are one object: the few that there are stay in the processor's cache
        self._phrases: list[_Phrase] = []
        for text in known:
            cues = tuple(cue_numbers[text]) if text in cue_numbers else ()
            phrase_key = (text[0] in _WORD_CHARS, text[-1] in _WORD_CHARS, cues, phrase_sets.get(text, ()))
            self._phrases.append(distinct.setdefault(phrase_key, phrase_key))
        self._automaton = AhoCorasick(known, store_patterns=False)

    def scan(self, normalized: NormalizedText) -> ScanResult:
        text, phrases = normalized.text, self._phrases
        cue_starts: list[list[int]] = [[] for _ in range(self._cue_sets)]
        by_number: dict[int, list[Offsets]] = {}  # the number of each phrase, and where it stands
        matches = self._automaton.find_matches_as_indexes(text, overlapping=True)
        matches.sort(key=_BY_START)  # they come by their ends, so those that begin together stay in order
        apostrophe, places, word_chars = "'" in text, normalized.places, _WORD_CHARS
        for number, start, end in matches:
            word_first, word_last, cue_sets, _ = phrases[number]
            is_phrase = True
            if (word_first and text[start - 1] in word_chars) or (word_last and text[end] in word_chars):
                is_phrase = apostrophe and normalized.are_tokens(start, end)
                if not is_phrase and not cue_sets:  # most matches: short words inside longer ones
                    continue
            begin = places[start]
            for cue_set in cue_sets:
                cue_starts[cue_set].append(begin)
            if not is_phrase:
                continue
            same = by_number.get(number)
            if same is None:
                by_number[number] = [(begin, places[end - 1] + 1)]
            elif len(same) < MAX_SPANS:
                same.append((begin, places[end - 1] + 1))
        present: dict[PhraseSet, list[list[Offsets]]] = {}
        for number, spans in by_number.items():
            for phrase_set in phrases[number][3]:
                before = present.get(phrase_set)
                if before is None:
                    present[phrase_set] = [spans]
                else:
                    before.append(spans)
        return ScanResult(present, cue_starts)
