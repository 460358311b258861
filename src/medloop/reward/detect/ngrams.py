"""A small linear classifier over hashed n-grams: numpy at run time, a few hundred kilobytes, thousands of texts a second.

    model = load_ngrams(folder / "en.npz")
    scored = model.read(text)
    scored.logits()                   -> one number per class for the whole text
    scored.logits(start, end)         -> the same for characters start to end, at the cost of two look-ups

English is read as runs of 3 to 5 characters, words, pairs of words and pairs with one word between them; Chinese as runs of 1
to 4 characters. Each n-gram is hashed into a bucket, a bucket has one weight (int8) per class, and a text's logits are the sum
of the weights of its n-grams over the square root of their number. The trainers in tools/ use the same `buckets`, so that
training and use cannot differ.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
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
    plain = " ".join(fold(text).splitlines()) if "\n" in text or "\r" in text else fold(text)
    codes = np.frombuffer(f" {plain} ".encode("utf-32-le", "replace"), np.uint32).astype(np.uint64)
    codes[codes < 33] = 32
    return codes


def _words(codes: NDArray[np.uint64]) -> tuple[Ints, NDArray[np.uint64]]:
    """Where words begin, and a hash of each."""
    inside = _IN_WORD[np.minimum(codes, 127)]
    starts = np.flatnonzero(inside[1:] & ~inside[:-1]) + 1
    if not len(starts):
        return starts, np.empty(0, np.uint64)
    places = np.flatnonzero(inside)
    word = np.cumsum(~inside[places - 1]) - 1
    within = np.minimum(places - starts[word], _LONGEST_WORD - 1)
    return starts, np.add.reduceat(codes[places] * _POWERS[within], np.searchsorted(places, starts))


def buckets(text: str, kind: Kind) -> tuple[Ints, Ints]:
    """The bucket of every n-gram and the character at which it begins."""
    codes = _codes(text)
    hashes: list[NDArray[np.uint64]] = []
    places: list[Ints] = []
    running = np.zeros(len(codes), np.uint64)
    for size in range(1, _SIZES[kind][-1] + 1):
        if len(codes) < size:
            break
        running = running[: len(codes) - size + 1] + codes[size - 1 :] * _POWERS[size - 1]
        if size >= _SIZES[kind][0]:
            hashes.append(running ^ _SALTS[size])
            places.append(np.arange(len(running)))
    if kind == "en":
        starts, words = _words(codes)
        hashes.append(words ^ _SALTS[11])
        hashes.append((words[:-1] * _POWERS[1] + words[1:] * _POWERS[2]) ^ _SALTS[12])
        hashes.append((words[:-2] * _POWERS[1] + words[2:] * _POWERS[3]) ^ _SALTS[13])
        places += [starts, starts[:-1], starts[:-2]]
    return _mix(np.concatenate(hashes)), np.maximum(np.concatenate(places) - 1, 0)


@dataclass(frozen=True)
class ScoredText:
    """Running sums of the weights by character, so that any stretch of the text is scored without reading it again."""

    sums: Floats  # (characters + 1, classes)
    counts: Floats  # (characters + 1,)
    bias: Floats

    def logits(self, start: int = 0, end: int | None = None) -> Floats:
        last = len(self.counts) - 1 if end is None else min(end, len(self.counts) - 1)
        count = self.counts[last] - self.counts[start]
        return np.asarray((self.sums[last] - self.sums[start]) / np.sqrt(max(count, np.float32(1))) + self.bias)

    def windows(self, spans: NDArray[np.int64]) -> Floats:
        """The logits of several stretches, one row each: `spans` has a column of starts and one of ends."""
        ends = np.minimum(spans[:, 1], len(self.counts) - 1)
        counts = np.maximum(self.counts[ends] - self.counts[spans[:, 0]], 1)
        return np.asarray((self.sums[ends] - self.sums[spans[:, 0]]) / np.sqrt(counts)[:, None] + self.bias)


@dataclass(frozen=True)
class NgramModel:
    """Weights per bucket and class, the classes in order, and which kind of n-grams they are for."""

    kind: Kind
    classes: tuple[str, ...]
    weights: NDArray[np.int8]
    scale: Floats
    bias: Floats

    def read(self, text: str) -> ScoredText:
        bucket, place = buckets(text, self.kind)
        size, classes = len(text) + 1, len(self.classes)
        values = self.weights[bucket]
        sums = np.zeros((size + 1, classes), np.float32)
        for k in range(classes):
            sums[1:, k] = np.bincount(place, values[:, k], size)[:size]
        counts = np.zeros(size + 1, np.float32)
        counts[1:] = np.bincount(place, minlength=size)[:size]
        return ScoredText(np.cumsum(sums, 0) * self.scale, np.cumsum(counts), self.bias)


def load_ngrams(path: Path) -> NgramModel:
    """A model that `save_ngrams` wrote; nothing in it is code."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            kind, *classes = str(arrays["names"]).split()
            return NgramModel("zh" if kind == "zh" else "en", tuple(classes), arrays["weights"], arrays["scale"], arrays["bias"])
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path.name} is not an n-gram model", "Install medloop again, or train it with tools/") from error


def save_ngrams(path: Path, model: NgramModel) -> None:
    """The same model gives the same bytes."""
    names = np.array(" ".join((model.kind, *model.classes)))
    np.savez_compressed(path, names=names, weights=model.weights, scale=model.scale, bias=model.bias)


def quantized(kind: Kind, classes: tuple[str, ...], weights: Floats, bias: Floats) -> NgramModel:
    """A model with weights of one byte each; they share a scale per class."""
    scale = np.maximum(np.abs(weights).max(0), 1e-9).astype(np.float32) / 127
    return NgramModel(kind, classes, np.rint(weights / scale).astype(np.int8), scale, bias.astype(np.float32))
