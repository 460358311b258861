"""A person who is named again in another form: the whole name, only the surname, with another title.

The time grows with the length of the text alone, not with the number of names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from medloop.privacy.phi import lists
from medloop.privacy.phi.english.titled_names import without_title
from medloop.privacy.phi.spans import Span

_WORD = re.compile(r"[^\W\d_]+")
_CAPITALIZED = re.compile(r"(?<![^\W\d_])[A-Z\u00c0-\u00de\u0100-\u024f\u0386-\u052f\u1e00-\u1eff][^\W\d_]*")
_HAN = re.compile(r"[\u4e00-\u9fff]+")
_FEW = 20
_PARTICLES = frozenset("van von der den de la le di da bin al el du del".split())


def plain(name: str) -> str:
    """The name in lower case without title, degree and line ends: what tells two persons apart."""
    return " ".join(without_title(name).replace(",", " ").split()).casefold()


def same_person(name: str, persons: Mapping[str, str]) -> str | None:
    """The placeholder of the one known person this can be; None for a new one, or where two could be meant."""
    placeholders = {placeholder for known, placeholder in persons.items() if _can_be_same(name, known)}
    return placeholders.pop() if len(placeholders) == 1 else None


def _can_be_same(name: str, known: str) -> bool:
    """Whether one is part of the other: 王 and 王芳, "miller" and "john miller"."""
    if _HAN.fullmatch(name) and _HAN.fullmatch(known):
        short, long = sorted((name, known), key=len)
        return len(short) == 1 and long.startswith(short)
    short_words, long_words = sorted((_WORD.findall(name), _WORD.findall(known)), key=len)
    if not short_words or len(short_words) == len(long_words):
        return set(short_words) == set(long_words) and bool(short_words)
    return set(short_words) <= set(long_words)


def find(folded: str, persons: Iterable[str]) -> Iterator[Span]:
    """Where these names, or their surnames and first names, stand again in the text."""
    chinese, words = set[str](), dict[str, bool]()
    for person in persons:
        if _HAN.fullmatch(person):
            if len(person) > 1:
                chinese.add(person)
        else:
            parts = [part for part in _WORD.findall(plain(person)) if len(part) > 2 and part not in _PARTICLES]
            words.update({part: lists.tier(part) != lists.UNLISTED for part in parts})
    if chinese:
        yield from _find_chinese(folded, chinese)
    if words:
        yield from _find_latin(folded, words)


def _find_chinese(folded: str, names: set[str]) -> Iterator[Span]:
    if len(names) > _FEW:  # one look at each position for all of them
        sizes = sorted({len(name) for name in names}, reverse=True)
        for start in range(len(folded)):
            for size in sizes:
                if folded[start : start + size] in names:
                    yield start, start + size, "NAME"
                    break
        return
    for name in sorted(names):
        start = folded.find(name)
        while start >= 0:
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
