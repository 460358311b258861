"""How much of a question is new: the share of its shingles that no earlier question has.

    seen = SeenQuestions(); seen.add("chest pain since this morning")
    seen.novelty("chest pain since yesterday")         # 0 nothing new, 1 all new

Shingles are pairs of neighbouring words and single words, in Chinese text triples of neighbouring characters: enough to tell a
rephrased question from another one, without a model. They are kept as hashes in one bit table of fixed size (128 kB), so memory
does not grow; with 100,000 shingles in it, one new shingle in eleven counts as seen.

`NearDuplicates` holds whole texts instead, and says whether one of them is nearly the same as a given one.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

BITS = 20
NEAR_DUPLICATE = 0.8  # Jaccard similarity from which two texts count as near-duplicates
_WORD = re.compile(r"[\u3400-\u9fff]+|[^\W_]+")

Shingles = NDArray[np.uint32]


class SeenQuestions:
    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._bits = np.zeros(1 << BITS, dtype=np.bool_)
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        self.add_shingles(shingles(text))

    def add_shingles(self, hashes: Shingles) -> None:
        self._bits[hashes] = True

    def novelty(self, text: str) -> float:
        return self.novelty_of(shingles(text))

    def novelty_of(self, hashes: Shingles) -> float:
        return float(1 - self._bits[hashes].mean()) if len(hashes) else 0.0


class NearDuplicates:
    """Texts by their shingles. A look-up touches only texts that share a shingle with the given one."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._texts_with: dict[int, list[int]] = {}

    def add(self, hashes: Shingles) -> None:
        for shingle in hashes.tolist():
            self._texts_with.setdefault(shingle, []).append(len(self._sizes))
        self._sizes.append(len(hashes))

    def has(self, hashes: Shingles, *, threshold: float = NEAR_DUPLICATE) -> bool:
        """Whether a text here is at least so similar to the given one (Jaccard)."""
        common = Counter(text for shingle in hashes.tolist() for text in self._texts_with.get(shingle, ()))
        return any(n >= threshold * (len(hashes) + self._sizes[text] - n) for text, n in common.items())


def jaccard(first: Shingles, second: Shingles) -> float:
    common = len(np.intersect1d(first, second, assume_unique=True))
    return common / max(1, len(first) + len(second) - common)


def shingles(text: str) -> Shingles:
    """The shingles of a text as places in the bit table."""
    parts: set[str] = set()
    before = ""
    for word in _WORD.findall(text.lower()):
        if "\u3400" <= word[0] <= "\u9fff":
            parts.update(word[start : start + 3] for start in range(max(1, len(word) - 2)))
        else:
            parts.update((word, f"{before} {word}"))
        before = word
    places = {zlib.crc32(part.encode()) & ((1 << BITS) - 1) for part in parts}
    return np.array(sorted(places), dtype=np.uint32)


def word_set(text: str) -> frozenset[str]:
    """The words of a text; in Chinese text pairs of neighbouring characters."""
    parts: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if "\u3400" <= word[0] <= "\u9fff":
            parts.update(word[start : start + 2] for start in range(max(1, len(word) - 1)))
        else:
            parts.add(word)
    return frozenset(parts)
