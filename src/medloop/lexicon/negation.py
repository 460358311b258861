"""Whether a finding is denied, by a cue before it in the same clause ("no chest pain", "没有胸痛") or after it ("胸痛已消失").

A cue reaches forward to the end of its clause: a contrast ("but", "但是"), the end of the sentence, or a comma that
does not continue a list. "No fever but chest pain" denies the fever only. The cues are data: negation.yaml.

The cues are regular expressions, and slow. So the scanner of the word lists looks for the texts they can begin with (`openings`)
in the same pass, and an expression is tried only where one of them stands.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medloop.lexicon.scan import SENTENCE_END, Offsets
from medloop.patterns import lazy_pattern

LOOK_BACK = 70  # characters: a cue further away denies something else
LOOK_AHEAD = 30


@dataclass(frozen=True)
class Negation:
    """Compiled cues: `before` and `after` deny (their group "none" only looks like a denial), `contrast` ends their reach.

    `before_set` and `contrast_set` are the numbers of these cues among the cue sets of the scanner.
    """

    before: re.Pattern[str]
    list_before: re.Pattern[str]
    after: re.Pattern[str]
    contrast: re.Pattern[str]
    before_set: int
    contrast_set: int
    after_signs: frozenset[str]  # what `after` can begin with; a blank stands for any white space

    def denies(self, folded: str, ends: list[int], cue_starts: list[list[int]], spans: Sequence[Offsets]) -> bool:
        """Whether one of the spans of a finding is denied. A cue that is part of the finding ("does not fade") does not count.

        `ends` are those of the sentences, `cue_starts` the offsets where a cue of each set may begin; both in order.
        """
        for start, end in spans:
            if self._is_denied_before(folded, start, ends, cue_starts, spans) or self._is_denied_after(folded, end, spans):
                return True
        return False

    def _is_denied_before(
        self, folded: str, start: int, ends: list[int], cue_starts: list[list[int]], spans: Sequence[Offsets]
    ) -> bool:
        starts = cue_starts[self.before_set]
        index = bisect_left(starts, start)
        if index == 0 or starts[index - 1] < start - LOOK_BACK:
            return False
        first = min([s for s, _ in spans])  # what stands before the whole finding is judged once, at its first span
        offset = max(0 if start == first else first, start - LOOK_BACK)
        index = bisect_right(ends, start)
        begin = max(offset, ends[index - 1] if index else 0)
        if starts[bisect_left(starts, start) - 1] < begin or folded[start - 1] == ".":
            return False
        back = folded[offset:start]
        contrasts = _matches(self.contrast, back, offset, begin, cue_starts[self.contrast_set])
        if contrasts:
            begin = offset + contrasts[-1].end()
        cues = [cue for cue in _matches(self.before, back, offset, begin, starts) if cue.lastgroup != "none"]
        cues = [cue for cue in cues if not _is_part_of(offset + cue.start(), offset + cue.end(), spans)]
        if not cues:
            return False
        cue = cues[-1]
        between = back[cue.end() :]
        if not _BREAK.search(between):
            return True
        return bool(self.list_before.fullmatch(cue[0])) or _continues_list(between, folded[start : start + LOOK_BACK])

    def _is_denied_after(self, folded: str, end: int, spans: Sequence[Offsets]) -> bool:
        sign = folded[end : end + 1]
        if sign not in self.after_signs and not sign.isspace():
            return False
        cue = self.after.match(folded, end, end + LOOK_AHEAD)
        if cue is None or cue.lastgroup == "none":
            return False
        return not any(start < cue.end() and cue.start() < stop for start, stop in spans)


def _matches(pattern: re.Pattern[str], back: str, offset: int, begin: int, starts: list[int]) -> list[re.Match[str]]:
    """What `finditer` would find in `back`, which begins at `offset`, from `begin` on: tried only where a match can begin."""
    matches: list[re.Match[str]] = []
    stop = offset + len(back)
    for number in range(bisect_left(starts, begin), len(starts)):
        start = starts[number]
        if start >= stop:
            break
        if start >= begin and (match := pattern.match(back, start - offset)):
            matches.append(match)
            begin = offset + match.end()
    return matches


def _is_part_of(start: int, end: int, spans: Sequence[Offsets]) -> bool:
    return any(s <= start and end < e for s, e in spans)


_BREAK = lazy_pattern(r"[,;:]")
_OR = lazy_pattern(r"\b(?:or|nor)\b|或|以及")


def _continues_list(between: str, following: str) -> bool:
    """A comma continues a list when an 'or' joins it: "no fever, chest pain or cough"."""
    if ";" in between or ":" in between:
        return False
    stop = SENTENCE_END.search(following)
    return bool(_OR.search(between) or _OR.search(following[: stop.start()] if stop else following))


def compile_negation(cues: Mapping[str, Sequence[str]], cue_sets: list[frozenset[str]]) -> Negation:
    """`cues` has the lists before, list_before, not_before, after, not_after, contrast; each line is a regular expression.

    The openings of the cues are added to `cue_sets`, once for lists with the same cues.
    """
    before = (*cues["list_before"], *cues["before"])
    return Negation(
        # What only looks like a cue comes first, so that it wins at the same offset.
        before=lazy_pattern(rf"(?P<none>{_join(cues['not_before'])})|(?:{_join(before)})"),
        list_before=lazy_pattern("|".join(cues["list_before"])),
        after=lazy_pattern(rf"(?P<none>{'|'.join(cues['not_after'])})|(?:(?:{'|'.join(cues['after'])})(?![a-z]))"),
        contrast=lazy_pattern(_join(cues["contrast"])),
        before_set=_set_number(cue_sets, (*before, *cues["not_before"])),
        contrast_set=_set_number(cue_sets, cues["contrast"]),
        after_signs=frozenset(text[0] for cue in (*cues["after"], *cues["not_after"]) for text in openings(cue)),
    )


def _set_number(cue_sets: list[frozenset[str]], cues: Sequence[str]) -> int:
    """The number of the set of these openings; an opening that begins with a shorter one is left out."""
    texts = {text for cue in cues for text in openings(cue)}
    shortest = frozenset(text for text in texts if not any(text[:size] in texts for size in range(1, len(text))))
    if shortest not in cue_sets:
        cue_sets.append(shortest)
    return cue_sets.index(shortest)


def _join(parts: Sequence[str]) -> str:
    """One expression; Latin cues are tried at the start of a word only, others elsewhere, and both only at their first letters.

    Most characters begin no cue: checking the first letter saves trying dozens of cues at each of them.
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


_LOOKAROUND = ("(?!", "(?=", "(?<")  # groups that consume no characters


def openings(cue: str) -> frozenset[str]:
    """Texts with one of which every match of a cue begins: `no (sign|history)` gives "no sign" and "no history".

    A cue is read as far as it is definite: up to the first `.`, `\\w`, repetition, or its end. White space is a blank.
    """
    texts, end = _branches(cue, 0)
    if end < len(cue) or any(not text for text, _ in texts):
        raise ValueError(f"The cue '{cue}' does not begin with definite characters")
    return frozenset(text for text, _ in texts)


_Opening = tuple[str, bool]  # the text so far, and whether it is definite up to here: only then more is added


def _branches(cue: str, index: int) -> tuple[set[_Opening], int]:
    """Openings of `a|b|c` from `index` to the closing bracket or the end, and where that is."""
    done: set[_Opening] = set()
    current: set[_Opening] = {("", True)}
    while index < len(cue) and cue[index] != ")":
        if cue[index] == "|":
            done, current, index = done | current, {("", True)}, index + 1
            continue
        options, index = _atom(cue, index)
        options, index = _repeated(cue, index, options)
        current = {
            (text + more, still_definite) if definite else (text, False)
            for text, definite in current
            for more, still_definite in options
        }
    return done | current, index


def _atom(cue: str, index: int) -> tuple[set[_Opening], int]:
    """One character, class or group."""
    if cue[index] == "(":
        lookaround = cue.startswith(_LOOKAROUND, index)
        skip = 1 if cue[index + 1] != "?" else 3
        inner, index = _branches(cue, index + skip)
        return ({("", True)} if lookaround else inner), index + 1
    if cue[index] == "[" and cue[index + 1] != "^":
        end = cue.index("]", index)
        signs = re.sub("(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), cue[index + 1 : end])
        return {(sign, True) for sign in signs}, end + 1
    if cue.startswith("\\s", index):
        return {(" ", True)}, index + 2
    if cue[index] in ".\\[":
        return {("", False)}, cue.index("]", index) + 1 if cue[index] == "[" else index + 1 + (cue[index] == "\\")
    return {("" if cue[index] == "$" else cue[index], True)}, index + 1


def _repeated(cue: str, index: int, options: set[_Opening]) -> tuple[set[_Opening], int]:
    """The options of an atom after its `?`, `*`, `+` or `{m,n}`: once is definite, how often is not."""
    sign = cue[index : index + 1]
    if sign == "?":
        return options | {("", True)}, index + 1
    if sign not in ("*", "+", "{") or not sign:
        return options, index
    once = {(text, False) for text, _ in options}
    optional = sign == "*" or cue.startswith("{0", index)
    return once | ({("", True)} if optional else set()), cue.index("}", index) + 1 if sign == "{" else index + 1
