"""Regular expressions that are not tried on a text that lacks what each of their matches contains.

    note(text)                                # noted_text.py; once, by whoever has a text searched by hundreds of expressions
    lazy_pattern("姓名[:：]").search(text)       # nothing is searched unless the text has 姓 and 名 side by side

Of each expression its required pieces are worked out: of one to three characters in a row, in lower case, one of which is in
every match. They come from the expression's own syntax tree, so the result is always that of the expression. A text that
was not noted is searched as it is. Nothing here needs numpy, so that commands with expressions start without it.
"""

import re
from collections.abc import Iterable
from threading import Lock
from typing import Any, NamedTuple, cast

from medloop.privacy.phi.compiled import compiled
from medloop.privacy.phi.required import required

LONGEST = 4000  # characters of a text that is noted; nearly every piece is somewhere in a longer text
_OFTEN = 100  # searches of such texts after which an expression is worth a guard: working it out takes milliseconds


class NotedText(NamedTuple):
    absent: int
    """A bit for each clause of the index of which the text has no piece."""
    shapes: str | None
    """The shapes of its characters, where all are ASCII."""


clauses = list[frozenset[str]]()  # of the guarded expressions; its place in the list is a clause's bit
noted = dict[str, NotedText]()
_lock = Lock()


def _add(more: Iterable[frozenset[str]]) -> int:
    """The bits of these clauses."""
    wanted = 0
    with _lock:  # two threads would take the same bit, and one of their expressions would be left out of texts that it matches
        for clause in more:
            wanted |= 1 << len(clauses)
            clauses.append(clause)
    return wanted


class _GuardedPattern:
    """Stands in for `re.Pattern`. Compiled when it is first used, and guarded when it has been used often."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self._given_flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        regex = self._regex = compiled(self.pattern, self._given_flags)
        self.__dict__.update({method: getattr(regex, method) for method in _METHODS})
        self.__dict__["search"] = self._counted(regex.search)
        self.__dict__["finditer"] = self._counted(regex.finditer)
        return self.__dict__[name]

    def _counted(self, search: Any) -> Any:
        left = _OFTEN

        def counted(text: str, *window: int) -> Any:
            nonlocal left
            if len(text) <= LONGEST:
                left -= 1
                if not left:
                    self._guard()
            return search(text, *window)

        return counted

    def _guard(self) -> None:
        regex, needed = self._regex, required(self.pattern, self._given_flags)
        wanted = _add(needed.pieces)
        self.__dict__["search"] = _guarded(regex.search, wanted, needed.shapes, None)
        self.__dict__["finditer"] = _guarded(regex.finditer, wanted, needed.shapes, _NO_MATCHES)


def _guarded(search: Any, wanted: int, shapes: list[tuple[str, ...]], nothing: Any) -> Any:
    if not wanted and not shapes:
        return search
    known = noted.get

    def guarded_by_pieces(text: str, *window: int) -> Any:
        about = known(text)
        return nothing if about is not None and about[0] & wanted else search(text, *window)

    def guarded(text: str, *window: int) -> Any:
        about = known(text)
        if about is not None:
            absent, form = about
            if absent & wanted:
                return nothing
            if form is not None:
                for one_of in shapes:
                    for shape in one_of:
                        if shape in form:
                            break
                    else:
                        return nothing
        return search(text, *window)

    return guarded if shapes else guarded_by_pieces


_NO_MATCHES = iter(())  # is always at its end
_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split", "flags", "groups", "groupindex")


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Like `medloop.patterns.lazy_pattern`, and guarded."""
    return cast(re.Pattern[str], _GuardedPattern(pattern, flags))
