"""Where the phrases of all word lists stand in a text, found in one pass by one automaton (Aho-Corasick, `ahocorasick_rs`).

Two forms of a text make that possible. `fold` returns lower case and half width with every character in its place.
`NormalizedText` is what the automaton reads: white space and hyphens between two Latin words are one blank and vanish beside
anything else, so that "chest - pain" reads "chest pain" and "拨打 120" reads "拨打120"; it maps its offsets back to
the folded text.

The cost grows with the length of the text, not with the number of phrases.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Final

from ahocorasick_rs import AhoCorasick

Offsets = tuple[int, int]  # start and end in the folded text
MAX_SPANS: Final = 16  # of one phrase set in a text: more of the same adds nothing, and repeated text must not cost more

_FOLD = {c: c + 0x20 for c in range(ord("A"), ord("Z") + 1)}
_FOLD |= {c: c - 0xFEE0 for c in range(0xFF01, 0xFF5F)}  # full-width forms
_FOLD |= {c: c - 0xFEE0 + 0x20 for c in range(0xFF21, 0xFF3B)}  # full-width capitals
_FOLD |= {0x3000: 0x20, 0x2018: 0x27, 0x2019: 0x27, 0x2010: 0x2D, 0x2011: 0x2D, 0x2013: 0x2D, 0x2014: 0x2D}
_FOLD_TEXT: Final = {chr(char): chr(folded) for char, folded in _FOLD.items()}
_FOLDED: Final = re.compile(f"[{re.escape(''.join(_FOLD_TEXT))}]")
TOKEN: Final = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[^\s\-a-z0-9]")  # a word, or one character of anything else
_WORD_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789'")
# The blanks of a gap that are dropped, once hyphens are blanks: all of them at an edge or beside a character that belongs to no
# Latin word, all but the first between two words. Beside an apostrophe they stay: "can 't" is not "can't".
# Every alternative begins with the blank itself, so that the search jumps from blank to blank.
_LOOSE: Final = re.compile(r"( (?: *(?![a-z0-9' ])|(?<![a-z0-9' ] ) *|(?<=  ) *))")
_OTHER_SPACE: Final = re.compile(r"[^\S ]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")  # half a character, from a broken JSON escape; the automaton accepts none
_BY_START: Final = itemgetter(1)
SENTENCE_END: Final = re.compile(r"[!?。\n.](?:(?<!\.)|(?=\s|$))")  # on folded text; a point ends a sentence only before a blank


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


class NormalizedText:
    """A folded text without its loose white space, and the way back.

    `text` ends with an extra blank that serves both edges: the character before the first one is `text[-1]`.
    """

    __slots__ = ("_dropped", "_ends", "_tokens", "text")

    def __init__(self, folded: str) -> None:
        line = folded.replace("-", " ").replace("\n", " ")
        if not line.isprintable():  # the blank is the only printable white space
            line = _SURROGATE.sub("\ufffd", _OTHER_SPACE.sub(" ", line))
        pieces = _LOOSE.split(line) if " " in line else [line]  # text, dropped, text, dropped, ..., text
        texts = pieces[::2]
        self.text = "".join(texts) + " "
        self._ends = list(accumulate(map(len, texts)))
        self._dropped = list(accumulate(map(len, pieces[1::2]), initial=0))
        self._tokens: tuple[frozenset[int], frozenset[int]] | None = None

    def original(self, start: int, end: int) -> Offsets:
        """Offsets of this text as offsets of the folded text."""
        ends, dropped = self._ends, self._dropped
        piece = bisect_right(ends, start) if len(ends) > 1 else 0
        last = piece if end <= ends[piece] else bisect_right(ends, end - 1)  # most phrases lie within one piece
        return start + dropped[piece], end + dropped[last]

    def are_tokens(self, start: int, end: int) -> bool:
        """Whether tokens begin and end here. Only an apostrophe allows that where a word continues beside a phrase."""
        if self._tokens is None:
            spans = [token.span() for token in TOKEN.finditer(self.text)]
            self._tokens = frozenset(start for start, _ in spans), frozenset(end for _, end in spans)
        return start in self._tokens[0] and end in self._tokens[1]


class PhraseSet:
    """One set of phrases. The object itself is the key of its spans; a matcher knows what it means."""

    __slots__ = ()


class ScanResult:
    """`spans`: of each phrase set, by position, at most MAX_SPANS. `cue_starts`: where the cues of each cue set begin."""

    __slots__ = ("cue_starts", "spans")

    def __init__(self, cue_sets: int) -> None:
        self.spans: dict[PhraseSet, list[Offsets]] = {}
        self.cue_starts: list[list[int]] = [[] for _ in range(cue_sets)]


class Scanner:
    """Finds phrases, each with the sets it belongs to, and cues, which are found wherever they stand, even inside a word."""

    def __init__(self, sets_of: Mapping[str, Sequence[PhraseSet]], cue_sets: Sequence[Iterable[str]] = ()) -> None:
        phrase_sets: dict[str, list[PhraseSet]] = {}
        for phrase, its_sets in sets_of.items():
            # Patients write "cant", too; an apostrophe that stands alone may have a blank on either side.
            for spelling in {phrase.replace("'", ""), phrase, phrase.replace(" '", " ' "), phrase.replace(" '", "' ")}:
                phrase_sets.setdefault(NormalizedText(spelling).text[:-1], []).extend(its_sets)
        cue_numbers: dict[str, list[int]] = {}
        for number, texts in enumerate(cue_sets):
            for text in texts:
                cue_numbers.setdefault(NormalizedText(text).text[:-1], []).append(number)
        known = list(dict.fromkeys((*phrase_sets, *cue_numbers)))
        self._cue_sets = len(cue_sets)
        # Whether no word may continue before the phrase, the same behind it, its cue sets and its phrase sets.
        # Equal ones are one object: the few that there are stay in the processor's cache.
        phrases = [
            (text[0] in _WORD_CHARS, text[-1] in _WORD_CHARS, tuple(cue_numbers.get(text, ())), tuple(phrase_sets.get(text, ())))
            for text in known
        ]
        distinct = {phrase: phrase for phrase in phrases}
        self._phrases = [distinct[phrase] for phrase in phrases]
        self._automaton = AhoCorasick(known, store_patterns=False)

    def scan(self, normalized: NormalizedText) -> ScanResult:
        text, result = normalized.text, ScanResult(self._cue_sets)
        spans, cue_starts, phrases = result.spans, result.cue_starts, self._phrases
        matches = self._automaton.find_matches_as_indexes(text, overlapping=True)
        matches.sort(key=_BY_START)  # they come by their ends, so those that begin together stay in order
        apostrophe = "'" in text
        for number, start, end in matches:
            word_first, word_last, cue_sets, phrase_sets = phrases[number]
            is_phrase = True
            if (word_first and text[start - 1] in _WORD_CHARS) or (word_last and text[end] in _WORD_CHARS):
                is_phrase = apostrophe and normalized.are_tokens(start, end)
                if not is_phrase and not cue_sets:  # most matches: short words inside longer ones
                    continue
            span = normalized.original(start, end)
            for cue_set in cue_sets:
                cue_starts[cue_set].append(span[0])
            if is_phrase:
                for phrase_set in phrase_sets:
                    before = spans.get(phrase_set)
                    if before is None:
                        spans[phrase_set] = [span]
                    elif len(before) < MAX_SPANS:
                        before.append(span)
        return result
