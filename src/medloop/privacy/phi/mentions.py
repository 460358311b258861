"""One person's name in its other forms: whole again, only the surname, with another title. Time grows with the text alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from medloop.privacy.phi import lists
from medloop.privacy.phi.english import titled_names

_WORD = re.compile(r"[^\W\d_]+")
_CAPITAL = re.compile(r"(?<![^\W\d_])[A-Z\u00c0-\u00de\u0100-\u024f\u0386-\u052f\u1e00-\u1eff][^\W\d_]*")
_HAN = re.compile(r"[\u4e00-\u9fff]+")
_FEW = 20
_PARTICLES = frozenset("van von der den de la le di da bin al el du del".split())


def plain(name: str) -> str:
    """The name without title, degree, line ends and case of letters: what tells two persons apart."""
    return " ".join(titled_names.bare(name).replace(",", " ").split()).casefold()


def same_person(name: str, persons: Mapping[str, str]) -> str | None:
    """The placeholder of the one known person this can be; None for a new one, or where two could be meant."""
    found = {placeholder for known, placeholder in persons.items() if _fits(name, known)}
    return found.pop() if len(found) == 1 else None


def _fits(one: str, other: str) -> bool:
    if _HAN.fullmatch(one) and _HAN.fullmatch(other):
        short, long = sorted((one, other), key=len)
        return len(short) == 1 and long.startswith(short)
    short_words, long_words = sorted((_WORD.findall(one), _WORD.findall(other)), key=len)
    if not short_words or len(short_words) == len(long_words):
        return set(short_words) == set(long_words) and bool(short_words)
    return set(short_words) <= set(long_words)


def find(folded: str, persons: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Where these names, or their surnames and first names, stand again in the text."""
    han, words = set[str](), dict[str, bool]()
    for person in persons:
        if _HAN.fullmatch(person):
            if len(person) > 1:
                han.add(person)
        else:
            parts = [part for part in _WORD.findall(plain(person)) if len(part) > 2 and part not in _PARTICLES]
            words.update({part: _ordinary(part) for part in parts})
    if han:
        yield from _chinese(folded, han)
    if words:
        yield from _latin(folded, words)


def _ordinary(word: str) -> bool:
    return lists.tiers().get(word, lists.OPEN) != lists.OPEN


def _chinese(folded: str, known: set[str]) -> Iterator[tuple[int, int, str]]:
    if len(known) > _FEW:  # one look at each place for all of them
        sizes = sorted({len(name) for name in known}, reverse=True)
        for start in range(len(folded)):
            for size in sizes:
                if folded[start : start + size] in known:
                    yield start, start + size, "NAME"
                    break
        return
    for name in sorted(known):
        at = folded.find(name)
        while at >= 0:
            yield at, at + len(name), "NAME"
            at = folded.find(name, at + len(name))


def _latin(folded: str, known: Mapping[str, bool]) -> Iterator[tuple[int, int, str]]:
    """A word that is also an ordinary one ("Green") counts only beside another part of a name."""
    before: re.Match[str] | None = None
    for word in _CAPITAL.finditer(folded):
        ordinary = known.get(word[0].casefold())
        if ordinary is None:
            before = None
            continue
        beside = before is not None and word.start() - before.end() <= 2
        if not ordinary or beside:
            yield (before.start() if beside and before else word.start()), word.end(), "NAME"
        before = word
