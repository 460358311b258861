"""Is what was found denied? Cues before it in the same clause ("no chest pain", "没有胸痛") or after it ("胸痛已消失").

A cue reaches forward to the end of its clause: a contrast ("but", "但是"), the end of the sentence, or a comma that
does not continue a list ends it. "No fever but chest pain" denies the fever only. The cues are data: negation.yaml.

The cues are regular expressions, and slow. So the texts they can begin with (`openings`) are looked for first, once for a
text; where none of them stands in reach, nothing is denied and no expression is tried.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from medloop.lexicon.scan import SENTENCE_END, Cues, Place

LOOK_BACK = 70  # characters: a cue further away denies something else
LOOK_AHEAD = 30


@dataclass(frozen=True)
class Negation:
    """Compiled cues: `before` and `after` deny (their group "none" only looks like it), `contrast` ends their reach."""

    cues: Cues
    before: re.Pattern[str]
    list_before: re.Pattern[str]
    after: re.Pattern[str]
    contrast: re.Pattern[str]

    def denies(self, text: str, ends: Sequence[int], cues: Sequence[int], places: Sequence[Place]) -> bool:
        """Is one of the places of a finding denied? A cue that is part of the finding ("does not fade") does not count.

        `ends` are those of the sentences of the folded text, `cues` where one may begin in it; both in order.
        """
        for start, end in places:
            if cues and _in_reach(start, ends, cues) and self._before(text, start, places):
                return True
            if self._after(text, end, places):
                return True
        return False

    def _before(self, folded: str, start: int, places: Sequence[Place]) -> bool:
        first = min(s for s, _ in places)  # what stands before the whole finding is judged once, at its first place
        offset = max(0 if start == first else first, start - LOOK_BACK)
        back = folded[offset:start]
        begin = 0
        for found in SENTENCE_END.finditer(back):
            begin = found.end()
        for found in self.contrast.finditer(back, begin):
            begin = found.end()
        cues = [cue for cue in self.before.finditer(back, begin) if cue.lastgroup != "none"]
        cues = [cue for cue in cues if not _part_of(offset + cue.start(), offset + cue.end(), places)]
        if not cues:
            return False
        cue = cues[-1]
        between = back[cue.end() :]
        if not _BREAK.search(between):
            return True
        return bool(self.list_before.fullmatch(cue[0])) or _continues_list(between, folded[start : start + LOOK_BACK])

    def _after(self, folded: str, end: int, places: Sequence[Place]) -> bool:
        found = self.after.match(folded, end, end + LOOK_AHEAD)
        if found is None or found.lastgroup == "none":
            return False
        return not any(start < found.end() and found.start() < stop for start, stop in places)


def _in_reach(start: int, ends: Sequence[int], cues: Sequence[int]) -> bool:
    """Does anything that may be a cue begin before a place, within LOOK_BACK and in the same sentence?"""
    at = bisect_right(ends, start)
    since = max(start - LOOK_BACK, ends[at - 1] if at else 0)
    at = bisect_left(cues, since)
    return at < len(cues) and cues[at] < start


def _part_of(start: int, end: int, places: Sequence[Place]) -> bool:
    return any(s <= start and end < e for s, e in places)


_BREAK = re.compile(r"[,;:]")
_OR = re.compile(r"\b(?:or|nor)\b|或|以及")


def _continues_list(between: str, following: str) -> bool:
    """A comma goes on with a list when an 'or' joins it: "no fever, chest pain or cough"."""
    if ";" in between or ":" in between:
        return False
    stop = SENTENCE_END.search(following)
    return bool(_OR.search(between) or _OR.search(following[: stop.start()] if stop else following))


def compile_negation(cues: Mapping[str, Sequence[str]]) -> Negation:
    """`cues` has the lists before, list_before, not_before, after, not_after, contrast; each line is a regular expression."""
    before = (*cues["list_before"], *cues["before"])
    return Negation(
        cues=_cues(frozenset(text for cue in before for text in openings(cue))),
        # What only looks like a cue stands first, so that it wins at the same place.
        before=re.compile(rf"(?P<none>{_join(cues['not_before'])})|(?:{_join(before)})"),
        list_before=re.compile("|".join(cues["list_before"])),
        after=re.compile(rf"(?P<none>{'|'.join(cues['not_after'])})|(?:(?:{'|'.join(cues['after'])})(?![a-z]))"),
        contrast=re.compile(_join(cues["contrast"])),
    )


@cache
def _cues(texts: frozenset[str]) -> Cues:
    """One for lists with the same cues: a text is then searched once for them."""
    return Cues(sorted(texts))


def _join(parts: Sequence[str]) -> str:
    """One expression; Latin cues are tried at the start of a word only, others elsewhere, and both only at their first letters.

    Most characters begin no cue: a look at the first letter spares trying dozens of cues at each of them.
    """
    latin = [part for part in parts if re.search("[a-z]{2}", part)]
    other = [part for part in parts if part not in latin]
    word = rf"(?<![a-z])(?=[a-z]){_guard(latin)}(?:{_alternatives(latin)})(?![a-z])"
    return rf"{word}|(?=[^a-z ]){_guard(other)}(?:{_alternatives(other)})"


def _alternatives(parts: Sequence[str]) -> str:
    return "|".join(f"(?:{part})" for part in parts) or "(?!)"


def _guard(parts: Sequence[str]) -> str:
    """`(?=[…])` with every character that one of the cues can begin with."""
    letters = sorted({opening[0] for part in parts for opening in openings(part)})
    return f"(?=[{re.escape(''.join(letters))}])" if letters else ""


_SILENT = ("(?!", "(?=", "(?<")  # groups that take no characters


def openings(cue: str) -> frozenset[str]:
    """Texts with one of which every match of a cue begins: `no (sign|history)` gives "no sign" and "no history".

    A cue is read as far as it is definite: up to the first `.`, `\\s`, `\\w`, repetition, or its end.
    """
    found, at = _branches(cue, 0)
    if at < len(cue) or any(not text for text, _ in found):
        raise ValueError(f"The cue '{cue}' does not begin with definite characters")
    return frozenset(text for text, _ in found)


_Opening = tuple[str, bool]  # the text so far, and whether it goes on: False behind what is not definite


def _branches(cue: str, at: int) -> tuple[set[_Opening], int]:
    """Openings of `a|b|c` from `at` to the closing bracket or the end, and where that is."""
    done: set[_Opening] = set()
    current: set[_Opening] = {("", True)}
    while at < len(cue) and cue[at] != ")":
        if cue[at] == "|":
            done, current, at = done | current, {("", True)}, at + 1
            continue
        options, at = _atom(cue, at)
        options, at = _repeated(cue, at, options)
        current = {(text + more, goes_on) if going else (text, False) for text, going in current for more, goes_on in options}
    return done | current, at


def _atom(cue: str, at: int) -> tuple[set[_Opening], int]:
    """One character, class or group."""
    if cue[at] == "(":
        silent = cue.startswith(_SILENT, at)
        skip = 1 if cue[at + 1] != "?" else 3
        inner, at = _branches(cue, at + skip)
        return ({("", True)} if silent else inner), at + 1
    if cue[at] == "[" and cue[at + 1] != "^":
        end = cue.index("]", at)
        signs = re.sub("(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), cue[at + 1 : end])
        return {(sign, True) for sign in signs}, end + 1
    if cue[at] in ".\\[":
        return {("", False)}, len(cue) if cue[at] == "[" else at + 1 + (cue[at] == "\\")
    return {("" if cue[at] == "$" else cue[at], True)}, at + 1


def _repeated(cue: str, at: int, options: set[_Opening]) -> tuple[set[_Opening], int]:
    """The options of an atom after its `?`, `*`, `+` or `{m,n}`: once is definite, how often is not."""
    sign = cue[at : at + 1]
    if sign == "?":
        return options | {("", True)}, at + 1
    if sign not in ("*", "+", "{") or not sign:
        return options, at
    once = {(text, False) for text, _ in options}
    optional = sign == "*" or cue.startswith("{0", at)
    return once | ({("", True)} if optional else set()), cue.index("}", at) + 1 if sign == "{" else at + 1
