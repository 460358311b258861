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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from medloop.errors import ModelError
from medloop.lexicon.scan import fold

Kind = Literal["en", "zh"]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

BITS: Final = 18  # 2**18 buckets
_SIZES: Final[dict[Kind, tuple[int, ...]]] = {"en": (3, 4, 5), "zh": (1, 2, 3, 4)}
_LONGEST_WORD: Final = 32  # characters of a word that count
_POWERS: Final = np.array([pow(1099511628211, k, 2**64) for k in range(1, _LONGEST_WORD + 1)], dtype=np.uint64)
_SALTS: Final = np.array([k * 0x9E3779B97F4A7C15 & (2**64 - 1) for k in range(16)], dtype=np.uint64)
_MULTIPLIER: Final = np.uint64(0xBF58476D1CE4E5B9)
_MASK: Final = np.uint64((1 << BITS) - 1)
_IN_WORD: Final = np.array([chr(code).isalnum() or chr(code) == "'" for code in range(128)])


def _mix(hashes: NDArray[np.uint64]) -> Ints:
    hashes ^= hashes >> np.uint64(29)
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint64(32)
    hashes &= _MASK
    return hashes.view(np.int64)


def _codes(text: str) -> NDArray[np.uint64]:
    """The folded text as code points, every kind of white space a blank, with a blank on either side."""
    codes = np.frombuffer(f" {fold(text)} ".encode("utf-32-le", "replace"), np.uint32).astype(np.uint64)
    codes[codes < 33] = 32
    return codes


def _words(codes: NDArray[np.uint64]) -> tuple[Ints, NDArray[np.uint64]]:
    """Where words begin, and a hash of each."""
    inside = _IN_WORD[np.minimum(codes, 127)]
    places = inside.nonzero()[0]
    if not len(places):
        return places, np.empty(0, np.uint64)
    begins = ~inside[places - 1]
    firsts = begins.nonzero()[0]
    starts = places[firsts]
    within = np.minimum(places - starts[begins.cumsum() - 1], _LONGEST_WORD - 1)
    return starts, np.add.reduceat(codes[places] * _POWERS[within], firsts)


def buckets(text: str, kind: Kind) -> Ints:
    """The bucket of every n-gram."""
    codes = _codes(text)
    hashes: list[NDArray[np.uint64]] = []
    running = codes * _POWERS[0]
    for size in range(2, _SIZES[kind][-1] + 1):
        if size > _SIZES[kind][0]:
            hashes.append(running ^ _SALTS[size - 1])
        running = running[:-1] + codes[size - 1 :] * _POWERS[size - 1]
    hashes.append(running ^ _SALTS[_SIZES[kind][-1]])
    if kind == "en":
        words = _words(codes)[1]
        hashes.append(words ^ _SALTS[11])
        hashes.append((words[:-1] * _POWERS[1] + words[1:] * _POWERS[2]) ^ _SALTS[12])
        hashes.append((words[:-2] * _POWERS[1] + words[2:] * _POWERS[3]) ^ _SALTS[13])
    return _mix(np.concatenate(hashes))


def places(text: str, kind: Kind) -> Ints:
    """The character at which each n-gram begins, in the order of `buckets`."""
    codes = _codes(text)
    everywhere = np.arange(-1, len(codes) - 1)
    everywhere[0] = 0  # the blank in front
    starts = [everywhere[: max(0, len(codes) - size + 1)] for size in _SIZES[kind]]
    if kind == "en":
        words = _words(codes)[0] - 1
        starts += [words, words[:-1], words[:-2]]
    return np.concatenate(starts)


@dataclass(frozen=True)
class ScoredText:
    """The weights of every n-gram of a text; stretches of it are scored without reading it again."""

    text: str
    kind: Kind
    values: Floats  # (n-grams, classes)
    bias: Floats

    def logits(self) -> Floats:
        """One number per class for the whole text."""
        size = len(self.values)  # a product is several times faster than a sum over so few columns
        return np.asarray(np.ones(size, np.float32) @ self.values / math.sqrt(max(size, 1)) + self.bias, np.float32)

    def windows(self, spans: Ints) -> Floats:
        """The logits of several stretches, one row each: `spans` has a column of starts and one of ends."""
        sums, counts = self._running
        starts, ends = spans[:, 0], np.minimum(spans[:, 1], len(self.text) + 1)
        size = np.sqrt(np.maximum(counts[ends] - counts[starts], 1))
        return np.asarray((sums[ends] - sums[starts]) / size[:, None] + self.bias, np.float32)

    @cached_property
    def _running(self) -> tuple[NDArray[np.float64], Ints]:
        """Sums of the weights, and numbers of n-grams, before each character."""
        begins, length = places(self.text, self.kind), len(self.text) + 1
        columns = [np.bincount(begins, column, length) for column in self.values.T]
        sums = np.zeros((length + 1, len(columns)))
        np.cumsum(np.stack(columns, 1), 0, out=sums[1:])
        counts = np.zeros(length + 1, np.int64)
        np.cumsum(np.bincount(begins, minlength=length), out=counts[1:])
        return sums, counts


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
