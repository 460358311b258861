"""The same text twice: found exactly by its letters, and nearly by MinHash.

datasketch makes the signatures (`MinHash`, 128 permutations). Its in-memory index `MinHashLSH` is not used: it needs
several kilobytes of Python objects per row. The banding is done here on one compact array instead, and wide enough that a
pair at the threshold is missed less than once in ten thousand. MinHash only proposes: the decision is the exact Jaccard
similarity of the two texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from datasketch import MinHash
from numpy.typing import NDArray

from medloop.data.near import Indexes
from medloop.data.shingles import Hashes, jaccard

PERMUTATIONS = 128
MISS = 1e-4  # accepted chance that a pair at the threshold shares no band
DOUBT = 0.12  # an estimate from 128 permutations is within this of the truth, but for one pair in a thousand
Signatures = NDArray[np.uint32]
ShinglesOf = Callable[[int], Hashes]


class Signer:
    """Signatures of shingle sets; the same seed gives the same signatures everywhere."""

    def __init__(self, seed: int = 1, permutations: int = PERMUTATIONS) -> None:
        self._minhash = MinHash(num_perm=permutations, seed=seed, hashfunc=int, scheme="affine32")

    def sign(self, shingles: Hashes) -> Signatures:
        self._minhash.clear()
        self._minhash.update_batch(shingles.tolist())
        return np.asarray(self._minhash.hashvalues, dtype=np.uint32)


def exact_duplicates(keys: NDArray[np.uint64], preferred: NDArray[np.bool_]) -> Indexes:
    """Per row, the row it repeats (a preferred one if there is one, else the first); -1 for rows to keep."""
    order = np.lexsort((np.arange(len(keys)), ~preferred, keys))
    first = np.concatenate(([True], keys[order][1:] != keys[order][:-1])) if len(keys) else np.empty(0, dtype=np.bool_)
    kept = order[np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))]
    same = np.full(len(keys), -1, dtype=np.int64)
    same[order] = np.where(first, -1, kept)
    return same


def near_duplicates(
    signatures: Signatures, rows: Indexes, preferred: NDArray[np.bool_], shingles_of: ShinglesOf, threshold: float
) -> Indexes:
    """Per row, the kept row that it nearly repeats; -1 for rows to keep. No two kept rows are near-duplicates.

    Rows are kept first come, first kept, preferred ones before all others. Only `rows` take part.
    """
    order = rows[np.lexsort((rows, ~preferred[rows]))]
    rank = np.full(len(signatures), -1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    cached = lru_cache(maxsize=4_096)(shingles_of)
    repeats = np.full(len(signatures), -1, dtype=np.int64)
    pairs = candidate_pairs(signatures, order, threshold)
    # Sorted by the later row, then the earlier: when a row is judged, all rows before it have been.
    for later, earlier in pairs[np.lexsort((rank[pairs[:, 0]], rank[pairs[:, 1]]))][:, ::-1]:
        if repeats[later] < 0 and repeats[earlier] < 0 and jaccard(cached(int(earlier)), cached(int(later))) >= threshold:
            repeats[later] = earlier
    return repeats


def candidate_pairs(signatures: Signatures, order: Indexes, threshold: float) -> Indexes:
    """Pairs (earlier, later) of rows whose estimated similarity may reach the threshold. Shape (pairs, 2)."""
    width = band_width(threshold, signatures.shape[1])
    found: list[Indexes] = [np.empty((0, 2), dtype=np.int64)]
    for start in range(0, signatures.shape[1] - width + 1, width):
        for group in _same_band(signatures[:, start : start + width], order):
            found.extend(_pairs_in(signatures, group, threshold))
    pairs = np.unique(np.concatenate(found), axis=0)
    return pairs


def band_width(threshold: float, permutations: int = PERMUTATIONS) -> int:
    """The widest band that still misses a pair at the threshold with a chance of at most MISS."""
    widths = range(permutations, 0, -1)
    return next((r for r in widths if (1 - threshold**r) ** (permutations // r) <= MISS), 1)


def _same_band(band: Signatures, order: Indexes) -> Iterator[Indexes]:
    """Groups of two or more rows with the same values in a band; inside a group rows keep their order."""
    mixed = np.zeros(len(order), dtype=np.uint64)
    for column in band.T:
        mixed = (mixed ^ column[order]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    by_key = np.argsort(mixed, kind="stable")
    cuts = np.flatnonzero(np.diff(mixed[by_key])) + 1
    begins, ends = np.concatenate(([0], cuts)), np.concatenate((cuts, [len(by_key)]))
    for begin, end in zip(begins[ends - begins > 1], ends[ends - begins > 1], strict=True):
        yield order[by_key[begin:end]]


def _pairs_in(signatures: Signatures, group: Indexes, threshold: float) -> Iterator[Indexes]:
    """Each row with the later rows like it; a row that surely repeats an earlier one needs no comparing of its own."""
    while len(group) > 1:
        head, rest = group[0], group[1:]
        alike = (signatures[rest] == signatures[head]).mean(axis=1)
        close = rest[alike >= threshold - DOUBT]
        if len(close):
            yield np.stack((np.full(len(close), head), close), axis=1)
        group = rest[alike < threshold + DOUBT]
