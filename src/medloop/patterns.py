"""Regular expressions that are compiled when they are first used.

Compiling is slow Python: the expressions of `reward/` alone take longer than everything else that a command imports, and most
commands never search with them.
"""

import re
from typing import Any, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split", "flags", "groups", "groupindex")


class _LazyPattern:
    """Stands in for `re.Pattern`. Once compiled it has the pattern's own bound methods, so that a search costs the same."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self._given_flags = flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = re.compile(self.pattern, self._given_flags)
        self.__dict__.update({method: getattr(compiled, method) for method in _METHODS})
        return self.__dict__[name]


def lazy_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Like `re.compile`; a mistake in the expression is found at its first use."""
    return cast(re.Pattern[str], _LazyPattern(pattern, flags))
