"""A small linear classifier over hashed n-grams: numpy at run time, a few hundred kilobytes, thousands of texts a second.

    model = load_ngrams(folder / "en.npz")
    scored = model.read(text)
    scored.logits()                   -> one number per class for the whole text
    scored.windows(spans)             -> the same for stretches of it, at the cost of two look-ups each

English is read as runs of 3 to 5 characters, words, pairs of words and pairs with one word between them; Chinese as runs of 1
to 4 characters. Each n-gram is hashed into a bucket, a bucket has one weight (int8) per class, and a text's logits are the sum
of the weights of its n-grams over the square root of their number. The trainers in tools/ use the same `buckets`, so that
training and use cannot differ.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from medloop.errors import ModelError
from medloop.lexicon.scan import fold
from medloop.patterns import lazy_pattern

Kind = Literal["en", "zh"]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

BITS: Final = 18  # 2**18 buckets
_SIZES: Final[dict[Kind, tuple[int, ...]]] = {"en": (3, 4, 5), "zh": (1, 2, 3, 4)}
_LONGEST_WORD: Final = 32  # characters of a word that count
_ALL_BITS: Final = 2**64 - 1
_POWERS: Final = [pow(1099511628211, k, 2**64) for k in range(1, _LONGEST_WORD + 1)]
_SALTS: Final = np.array([k * 0x9E3779B97F4A7C15 & _ALL_BITS for k in range(16)], dtype=np.uint64)
_SHIFTS: Final = np.uint64(29), np.uint64(32)
_MULTIPLIER: Final = np.uint64(0xBF58476D1CE4E5B9)
_MASK: Final = np.uint64((1 << BITS) - 1)
_WORD: Final = lazy_pattern("[0-9A-Za-z']+")


_Weighting = tuple[NDArray[np.uint64], NDArray[np.uint64]]  # (sizes, values of a run) and a salt for each size


def _weighting(sizes: tuple[int, ...]) -> _Weighting:
    """A row for each size: times a run of codes it is the hash of its first `size` codes."""
    rows = [[_POWERS[place] if place < size else 0 for place in range(sizes[-1])] for size in sizes]
    return np.array(rows, np.uint64), _SALTS[list(sizes), None]


_OF_RUNS: Final[dict[Kind, _Weighting]] = {kind: _weighting(sizes) for kind, sizes in _SIZES.items()}
# The same for words: a word, a pair, and a pair with a word between them.
_OF_WORDS: Final[_Weighting] = (
    np.array([[1, 0, 0], [_POWERS[1], _POWERS[2], 0], [_POWERS[1], 0, _POWERS[3]]], np.uint64),
    _SALTS[11:14, None],
)


def _mix(hashes: NDArray[np.uint64]) -> Ints:
    hashes ^= hashes >> _SHIFTS[0]
    hashes *= _MULTIPLIER
    hashes ^= hashes >> _SHIFTS[1]
    hashes &= _MASK
    return hashes.view(np.int64)


def _runs(values: NDArray[np.uint64], weighting: _Weighting) -> NDArray[np.uint64]:
    """The hashes of all runs, a row for each size; `values` has as many extra ones at its end as the longest run needs."""
    matrix, salts = weighting
    longest = matrix.shape[1]
    runs: NDArray[np.uint64] = np.ndarray((longest, len(values) - longest + 1), np.uint64, values, strides=(8, 8))
    hashes: NDArray[np.uint64] = matrix @ runs
    hashes ^= salts
    return hashes


@lru_cache(maxsize=1 << 15)
def _word_hash(word: str) -> int:
    """Words come again and again, so their hashes are cached."""
    powers = (_POWERS[min(place, _LONGEST_WORD - 1)] for place in range(len(word)))
    return sum(ord(character) * power for character, power in zip(word, powers, strict=True)) & _ALL_BITS


@lru_cache(maxsize=32)  # several models read the same question
def buckets(text: str, kind: Kind) -> Ints:
    """The bucket of every n-gram; read only. Every kind of white space is a blank, and there is a blank on either side."""
    return buckets_of((text,), kind)[0]


def buckets_of(texts: Sequence[str], kind: Kind) -> tuple[Ints, list[int]]:
    """The buckets of several texts in one array, and where those of each text end.

    One pass over all of them: for a short text, most of the time goes into calling numpy.
    """
    folded = [fold(text) for text in texts]
    raw = np.frombuffer("".join([f" {text} \0\0\0" for text in folded]).encode("utf-32-le", "replace"), np.uint32)
    runs = _runs(np.maximum(raw, 32).astype(np.uint64), _OF_RUNS[kind])
    words = [_WORD.findall(text) for text in folded] if kind == "en" else []
    if words:
        hashes = [number for found in words for number in (*map(_word_hash, found), 0, 0)]
        word_runs = _runs(np.array(hashes, np.uint64), _OF_WORDS)
    rows, ends, first, first_word, end = [], [], 0, 0, 0
    for index, text in enumerate(folded):
        for row, length in enumerate(_SIZES[kind]):
            count = max(0, len(text) + 3 - length)
            rows.append(runs[row, first : first + count])
            end += count
        first += len(text) + 5
        if words:
            for skipped in range(3):
                count = max(0, len(words[index]) - skipped)
                rows.append(word_runs[skipped, first_word : first_word + count])
                end += count
            first_word += len(words[index]) + 2
        ends.append(end)
    return _mix(np.concatenate(rows)), ends


_ONES: Final = np.ones(1 << 14, np.float32)


def column_sums(values: Floats) -> Floats:
    """A product is several times faster than a sum over so few columns."""
    size = len(values)
    return (_ONES[:size] if size <= len(_ONES) else np.ones(size, np.float32)) @ values


class ScoredText:
    """The weights of every n-gram of a text, (n-grams, classes); stretches of it are scored without reading it again."""

    __slots__ = ("bias", "kind", "text", "values")

    def __init__(self, text: str, kind: Kind, values: Floats, bias: Floats) -> None:
        self.text = text
        self.kind: Kind = kind
        self.values = values
        self.bias = bias

    def logits(self) -> Floats:
        """One number per class for the whole text."""
        return np.asarray(column_sums(self.values) / math.sqrt(max(len(self.values), 1)) + self.bias, np.float32)

    def windows(self, spans: Sequence[tuple[int, int]]) -> list[tuple[float, ...]]:
        """The logits of several stretches."""
        bias, result = self.bias.tolist(), []
        before = self._before([min(offset, len(self.text) + 1) for span in spans for offset in span])
        for (first, skipped), (last, counted) in zip(before[::2], before[1::2], strict=True):
            root = math.sqrt(max(counted - skipped, 1))
            result.append(tuple([(high - low) / root + own for low, high, own in zip(first, last, bias, strict=True)]))
        return result

    def _before(self, offsets: Sequence[int]) -> list[tuple[list[float], int]]:
        """Sums of the weights, and numbers of n-grams, that begin before each of these characters."""
        lengths = [max(0, len(self.text) + 3 - size) for size in _SIZES[self.kind]]
        words = [match.start() for match in _WORD.finditer(fold(self.text))] if self.kind == "en" else None
        rows = []
        for offset in offsets:
            begun = offset + 1 if offset else 0  # those with the blank in front begin at the first character
            row = [min(begun, length) for length in lengths]
            if words is not None:
                begun = bisect_left(words, offset)
                row += [min(begun, max(0, len(words) - skipped)) for skipped in range(3)]
            rows.append(row)
        if words is not None:
            lengths += [max(0, len(words) - skipped) for skipped in range(2)]
        else:
            lengths.pop()
        running = np.zeros((len(self.values) + 1, self.values.shape[1]))
        self.values.cumsum(0, np.float64, running[1:])  # no digit is lost: the weights have 24 bits and similar sizes
        places = np.array(rows)
        places += list(accumulate(lengths, initial=0))
        sums: NDArray[np.float64] = np.add.reduce(running.take(places, 0), 1)
        return list(zip(sums.tolist(), map(sum, rows), strict=True))


@dataclass(frozen=True)
class NgramModel:
    """Weights per bucket and class, the classes in order, and which kind of n-grams they are for."""

    kind: Kind
    classes: tuple[str, ...]
    weights: NDArray[np.int8]
    scale: Floats
    bias: Floats

    def read(self, text: str) -> ScoredText:
        values = self.weights.take(buckets(text, self.kind), 0)  # bytes: a larger table would not stay in the processor's cache
        return ScoredText(text, self.kind, values * self.scale, self.bias)

    def read_all(self, texts: Sequence[str]) -> list[ScoredText]:
        """The same for many texts, several times as fast."""
        if len(texts) < 2:
            return [self.read(text) for text in texts]
        numbers, ends = buckets_of(texts, self.kind)
        values = self.weights.take(numbers, 0) * self.scale
        bounds = zip(texts, (0, *ends), ends, strict=False)
        return [ScoredText(text, self.kind, values[start:end], self.bias) for text, start, end in bounds]


def load_ngrams(path: Path) -> NgramModel:
    """A model that `save_ngrams` wrote; nothing in it is code."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            kind, *classes = str(arrays["names"]).split()
            return NgramModel("zh" if kind == "zh" else "en", tuple(classes), arrays["weights"], arrays["scale"], arrays["bias"])
    except (OSError, KeyError, ValueError) as error:
        raise ModelError(f"{path.name} is not an n-gram model", "Install medloop again, or train it with tools/") from error


def save_ngrams(path: Path, model: NgramModel) -> None:
    """The same model gives the same bytes."""
    names = np.array(" ".join((model.kind, *model.classes)))
    np.savez_compressed(path, names=names, weights=model.weights, scale=model.scale, bias=model.bias)


def quantized(kind: Kind, classes: tuple[str, ...], weights: Floats, bias: Floats) -> NgramModel:
    """A model with weights of one byte each; they share a scale per class."""
    scale = np.maximum(np.abs(weights).max(0), 1e-9).astype(np.float32) / 127
    return NgramModel(kind, classes, np.rint(weights / scale).astype(np.int8), scale, bias.astype(np.float32))
