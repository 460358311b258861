"""Is what was found denied? Cues before it in the same clause ("no chest pain", "没有胸痛") or after it ("胸痛已消失").

A cue reaches forward to the end of its clause: a contrast ("but", "但是"), the end of the sentence, or a comma that
does not continue a list ends it. "No fever but chest pain" denies the fever only. The cues are data: negation.yaml.

The cues are regular expressions, and slow. So the texts they can begin with (`openings`) are looked for together with the
word lists, once for a text; an expression is tried only where one of them stands.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medloop.lexicon.scan import SENTENCE_END, Place

LOOK_BACK = 70  # characters: a cue further away denies something else
LOOK_AHEAD = 30


@dataclass(frozen=True)
class Negation:
    """Compiled cues: `before` and `after` deny (their group "none" only looks like it), `contrast` ends their reach.

    `before_set` and `contrast_set` number the openings of these cues among those that a scanner looks for.
    """

    before: re.Pattern[str]
    list_before: re.Pattern[str]
    after: re.Pattern[str]
    contrast: re.Pattern[str]
    before_set: int
    contrast_set: int
    after_signs: frozenset[str]  # what `after` can begin with; a blank stands for any white space

    def denies(self, folded: str, ends: list[int], cues: list[list[int]], places: Sequence[Place]) -> bool:
        """Is one of the places of a finding denied? A cue that is part of the finding ("does not fade") does not count.

        `ends` are those of the sentences, `cues` the places where one of each set may begin; both in order.
        """
        for start, end in places:
            if self._before(folded, start, ends, cues, places) or self._after(folded, end, places):
                return True
        return False

    def _before(self, folded: str, start: int, ends: list[int], cues: list[list[int]], places: Sequence[Place]) -> bool:
        starts = cues[self.before_set]
        at = bisect_left(starts, start)
        if at == 0 or starts[at - 1] < start - LOOK_BACK:
            return False
        first = min([s for s, _ in places])  # what stands before the whole finding is judged once, at its first place
        offset = max(0 if start == first else first, start - LOOK_BACK)
        at = bisect_right(ends, start)
        begin = max(offset, ends[at - 1] if at else 0)
        if starts[bisect_left(starts, start) - 1] < begin or folded[start - 1] == ".":
            return False
        back = folded[offset:start]
        contrasts = _matches(self.contrast, back, offset, begin, cues[self.contrast_set])
        if contrasts:
            begin = offset + contrasts[-1].end()
        found = [cue for cue in _matches(self.before, back, offset, begin, starts) if cue.lastgroup != "none"]
        found = [cue for cue in found if not _part_of(offset + cue.start(), offset + cue.end(), places)]
        if not found:
            return False
        cue = found[-1]
        between = back[cue.end() :]
        if not _BREAK.search(between):
            return True
        return bool(self.list_before.fullmatch(cue[0])) or _continues_list(between, folded[start : start + LOOK_BACK])

    def _after(self, folded: str, end: int, places: Sequence[Place]) -> bool:
        sign = folded[end : end + 1]
        if sign not in self.after_signs and not sign.isspace():
            return False
        found = self.after.match(folded, end, end + LOOK_AHEAD)
        if found is None or found.lastgroup == "none":
            return False
        return not any(start < found.end() and found.start() < stop for start, stop in places)


def _matches(pattern: re.Pattern[str], back: str, offset: int, begin: int, starts: list[int]) -> list[re.Match[str]]:
    """What `finditer` would find in `back`, which begins at `offset`, from `begin` on: tried only where a match can begin."""
    found: list[re.Match[str]] = []
    stop = offset + len(back)
    for number in range(bisect_left(starts, begin), len(starts)):
        start = starts[number]
        if start >= stop:
            break
        if start >= begin and (match := pattern.match(back, start - offset)):
            found.append(match)
            begin = offset + match.end()
    return found


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


def compile_negation(cues: Mapping[str, Sequence[str]], sets: list[frozenset[str]]) -> Negation:
    """`cues` has the lists before, list_before, not_before, after, not_after, contrast; each line is a regular expression.

    What the cues can begin with is added to `sets`, once for lists with the same cues.
    """
    before = (*cues["list_before"], *cues["before"])
    return Negation(
        # What only looks like a cue stands first, so that it wins at the same place.
        before=re.compile(rf"(?P<none>{_join(cues['not_before'])})|(?:{_join(before)})"),
        list_before=re.compile("|".join(cues["list_before"])),
        after=re.compile(rf"(?P<none>{'|'.join(cues['not_after'])})|(?:(?:{'|'.join(cues['after'])})(?![a-z]))"),
        contrast=re.compile(_join(cues["contrast"])),
        before_set=_number(sets, (*before, *cues["not_before"])),
        contrast_set=_number(sets, cues["contrast"]),
        after_signs=frozenset(text[0] for cue in (*cues["after"], *cues["not_after"]) for text in openings(cue)),
    )


def _number(sets: list[frozenset[str]], cues: Sequence[str]) -> int:
    """The number of a set of openings; one that goes on where a shorter one ends is not needed."""
    texts = {text for cue in cues for text in openings(cue)}
    shortest = frozenset(text for text in texts if not any(text.startswith(other) for other in texts if other != text))
    if shortest not in sets:
        sets.append(shortest)
    return sets.index(shortest)


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

    A cue is read as far as it is definite: up to the first `.`, `\\w`, repetition, or its end. White space is a blank.
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
    if cue.startswith("\\s", at):
        return {(" ", True)}, at + 2
    if cue[at] in ".\\[":
        return {("", False)}, cue.index("]", at) + 1 if cue[at] == "[" else at + 1 + (cue[at] == "\\")
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
