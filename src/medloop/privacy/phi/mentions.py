"""A person who is named again in another form: the whole name, only the surname, with another title.

The time grows with the length of the text alone, not with the number of names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations

from medloop.privacy.phi import lists
from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.chinese.words import is_seen, ordinary_words, surname_length, surnames
from medloop.privacy.phi.english.titled_names import without_title
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.spans import Span

_WORD = lazy_pattern(r"[^\W\d_]+")
_CAPITALIZED = lazy_pattern(r"(?<![^\W\d_])[A-Z\u00c0-\u00de\u0100-\u024f\u0386-\u052f\u1e00-\u1eff][^\W\d_]*")
_HAN = lazy_pattern(r"[\u4e00-\u9fff]+")
_SURNAMES = "".join(sorted(surnames()[0]))
_FEW = 20
_MAX_PARTS = 4  # words of a name whose every choice is looked up
_PARTICLES = frozenset("van von der den de la le di da bin al el du del".split())


@lru_cache(maxsize=16_384)
def plain(name: str) -> str:
    """The name in lower case without title, degree and line ends: what tells two persons apart."""
    if _HAN.fullmatch(name):
        return name
    return " ".join(without_title(name).replace(",", " ").split()).casefold()


class Persons:
    """The persons of one record and their placeholders. Looking one up costs the same however many are known."""

    def __init__(self) -> None:
        self.placeholders: dict[str, str] = {}
        self._by_words: dict[frozenset[str], set[str]] = {}
        self._containing: dict[frozenset[str], set[str]] = {}
        self._by_surname: dict[str, set[str]] = {}
        self._by_given: dict[str, set[str]] = {}

    def add(self, name: str, placeholder: str) -> None:
        self.placeholders[name] = placeholder
        is_chinese = _HAN.fullmatch(name) is not None
        if is_chinese:
            self._by_surname.setdefault(name[0], set()).add(placeholder)
            self._by_given.setdefault(given_of(name), set()).add(placeholder)
        words = frozenset((name,) if is_chinese else _WORD.findall(name))
        self._by_words.setdefault(words, set()).add(placeholder)
        for part in _parts(words):
            self._containing.setdefault(part, set()).add(placeholder)

    def same_person(self, name: str) -> str | None:
        """The placeholder of the one known person this can be; None for a new one, or where two could be meant.

        One is part of the other: 王 and 王芳, 晓雅 and 张晓雅, "miller" and "john miller".
        """
        if _HAN.fullmatch(name):
            words = frozenset((name,))
            if len(name) == 1:
                same = self._by_surname.get(name, set())
            else:
                same = self._by_words.get(frozenset((name[0],)), set()) | self._by_given.get(name, set())
        else:
            words = frozenset(_WORD.findall(name))
            same = self._containing.get(words, set()) if words else set()
        if len(same) < 2 and len(words) > 1:
            same = same.union(*(self._by_words.get(part, set()) for part in _parts(words)))
        return next(iter(same)) if len(same) == 1 else None


def given_of(name: str) -> str:
    """The given name of two characters in a Chinese name, or nothing: 晓雅 of 张晓雅, 沛然 of 欧阳沛然."""
    size = surname_length(name, 0)
    return name[size:] if size and len(name) - size == 2 else ""


def _is_word(given: str) -> bool:
    return is_seen(given, 0) or given in ordinary_words() or is_term(given, (0, 2, "NAME"))


def _parts(words: frozenset[str]) -> Iterator[frozenset[str]]:
    """Every choice of these words; of a long name only the whole, each word, and all words but one."""
    if len(words) < 3:
        return iter((words, *(frozenset((word,)) for word in words)) if len(words) == 2 else (words,))
    sizes = range(1, len(words) + 1) if len(words) <= _MAX_PARTS else (1, len(words) - 1, len(words))
    return (frozenset(part) for size in sizes for part in combinations(sorted(words), size))


def find(folded: str, persons: Iterable[str]) -> Iterator[Span]:
    """Where these names, or their surnames and first names, stand again in the text."""
    chinese, words = set[str](), dict[str, bool]()
    for person in dict.fromkeys(persons):
        parts = _parts_of(person)
        if parts is not None:
            words |= parts
        elif len(person) > 1:
            chinese.add(person)
    if chinese:
        yield from _find_chinese(folded, chinese)
    if words:
        yield from _find_latin(folded, words)


@lru_cache(maxsize=16_384)
def _parts_of(person: str) -> dict[str, bool] | None:
    """The words of a name, and whether each is an ordinary word too; None for a Chinese name."""
    if _HAN.fullmatch(person):
        return None
    parts = [part for part in _WORD.findall(plain(person)) if len(part) > 2 and part not in _PARTICLES]
    return {part: lists.tier(part) != lists.UNLISTED for part in parts}


def _find_chinese(folded: str, names: set[str]) -> Iterator[Span]:
    yield from _find_each(folded, names, "")
    if len(names) <= _FEW:
        givens = {given for name in names if (given := given_of(name)) and not _is_word(given)}
        yield from _find_each(folded, givens, _SURNAMES)


def _find_each(folded: str, names: set[str], not_behind: str) -> Iterator[Span]:
    if len(names) > _FEW:  # one look at each position for all of them
        sizes = sorted({len(name) for name in names}, reverse=True)
        for first in re.finditer(f"[{''.join({name[0] for name in names})}]", folded):
            start = first.start()
            for size in sizes:
                if folded[start : start + size] in names and not (start and folded[start - 1] in not_behind):
                    yield start, start + size, "NAME"
                    break
        return
    for name in sorted(names):
        start = folded.find(name)
        while start >= 0:
            if not (start and folded[start - 1] in not_behind):
                yield start, start + len(name), "NAME"
            start = folded.find(name, start + len(name))


def _find_latin(folded: str, words: Mapping[str, bool]) -> Iterator[Span]:
    """`words`: parts of names, and whether each is an ordinary word too ("Green"): then it counts only beside another part."""
    previous: re.Match[str] | None = None
    for word in _CAPITALIZED.finditer(folded):
        is_ordinary = words.get(word[0].casefold())
        if is_ordinary is None:
            previous = None
            continue
        beside = previous is not None and word.start() - previous.end() <= 2
        if not is_ordinary or beside:
            yield (previous.start() if beside and previous else word.start()), word.end(), "NAME"
        previous = word
