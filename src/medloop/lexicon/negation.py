"""Is what was found denied? Cues before it in the same clause ("no chest pain", "没有胸痛") or after it ("胸痛已消失").

A cue reaches forward to the end of its clause: a contrast ("but", "但是"), the end of the sentence, or a comma that
does not continue a list ends it. "No fever but chest pain" denies the fever only. The cues are data: negation.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from medloop.lexicon.match import SENTENCE_END

LOOK_BACK = 70  # characters: a cue further away denies something else
LOOK_AHEAD = 30


@dataclass(frozen=True)
class Negation:
    """Compiled cues: `before` and `after` deny (their group "none" only looks like it), `contrast` ends their reach."""

    before: re.Pattern[str]
    list_before: re.Pattern[str]
    after: re.Pattern[str]
    contrast: re.Pattern[str]

    def denies(self, folded: str, places: Sequence[tuple[int, int]]) -> bool:
        """Is one of the places of a finding denied? A cue that is part of the finding ("does not fade") does not count."""
        for start, end in places:
            if self._before(folded, start, places) or self._after(folded, end, places):
                return True
        return False

    def _before(self, folded: str, start: int, places: Sequence[tuple[int, int]]) -> bool:
        first = min(s for s, _ in places)  # what stands before the whole finding is judged once, at its first place
        offset = max(0 if start == first else first, start - LOOK_BACK)
        back = folded[offset:start]
        if self.before.search(back) is None:  # nearly always, and then nothing else matters
            return False
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

    def _after(self, folded: str, end: int, places: Sequence[tuple[int, int]]) -> bool:
        found = self.after.match(folded, end, end + LOOK_AHEAD)
        if found is None or found.lastgroup == "none":
            return False
        return not any(start < found.end() and found.start() < stop for start, stop in places)


def _part_of(start: int, end: int, places: Sequence[tuple[int, int]]) -> bool:
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
        # What only looks like a cue stands first, so that it wins at the same place.
        before=re.compile(rf"(?P<none>{_join(cues['not_before'])})|(?:{_join(before)})"),
        list_before=re.compile("|".join(cues["list_before"])),
        after=re.compile(rf"(?P<none>{'|'.join(cues['not_after'])})|(?:(?:{'|'.join(cues['after'])})(?![a-z]))"),
        contrast=re.compile(_join(cues["contrast"])),
    )


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
    """`(?=[…])` with every character that one of the cues can begin with; nothing where that cannot be told."""
    letters: set[str] = set()
    for part in parts:
        first, empty = _first(_parser.parse(part))
        if empty or not first:
            return ""
        letters |= first
    return f"(?=[{re.escape(''.join(sorted(letters)))}])" if letters else ""


def _first(sequence: Any) -> tuple[set[str], bool]:
    """First characters of a parsed expression, and whether it can match nothing (or anything): then they tell nothing."""
    found: set[str] = set()
    for op, value in sequence:
        kind = str(op)
        if kind == "LITERAL":
            return found | {chr(value)}, False
        if kind == "IN" and all(str(k) in ("LITERAL", "RANGE") for k, _ in value):
            spans = [(v, v) if str(k) == "LITERAL" else v for k, v in value]
            return found | {chr(code) for low, high in spans for code in range(low, high + 1)}, False
        if kind in ("ASSERT", "ASSERT_NOT", "AT"):
            continue
        if kind == "SUBPATTERN":
            inner = [_first(value[3])]
        elif kind == "BRANCH":
            inner = [_first(one) for one in value[1]]
        elif kind == "MAX_REPEAT":
            first, empty = _first(value[2])
            inner = [(first, empty or value[0] == 0)]
        else:
            return set(), True
        found |= {letter for first, _ in inner for letter in first}
        if not any(empty for _, empty in inner):
            return found, False
    return found, True
