"""Duplicate texts: exact ones by their letters, near ones by MinHash.

datasketch makes the signatures (`MinHash`, 128 permutations). Its in-memory index `MinHashLSH` is not used: it needs
several kilobytes of Python objects per row. The banding is done here on one compact array instead, and wide enough that a
pair at the threshold is missed less than once in ten thousand. MinHash only proposes: the decision is the exact Jaccard
similarity of the two texts.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from medloop.data.progress import Progress, silent
from medloop.data.text.near import Indexes
from medloop.data.text.shingles import Hashes, jaccard

PERMUTATIONS = 128
MISS = 1e-4  # accepted chance that a pair at the threshold shares no band
DOUBT = 0.12  # an estimate from 128 permutations is within this of the truth, but for one pair in a thousand
Signatures = NDArray[np.uint32]
ShinglesOf = Callable[[int], Hashes]


class Signer:
    """Signatures of shingle sets; the same seed gives the same signatures everywhere."""

    def __init__(self, seed: int = 1, permutations: int = PERMUTATIONS) -> None:
        from datasketch import MinHash  # brings in scipy: half a second that a server and most commands need not wait

        self._minhash = MinHash(num_perm=permutations, seed=seed, hashfunc=int, scheme="affine32")

    def sign(self, shingles: Hashes) -> Signatures:
        self._minhash.clear()
        self._minhash.update_batch(shingles.tolist())
        return np.asarray(self._minhash.hashvalues, dtype=np.uint32)


def exact_duplicates(keys: NDArray[np.uint64], preferred: NDArray[np.bool_]) -> Indexes:
    """Per row, the row it repeats (a preferred one if there is one, else the first); -1 for rows to keep."""
    order = np.lexsort((np.arange(len(keys)), ~preferred, keys))
    first = np.concatenate(([True], keys[order][1:] != keys[order][:-1])) if len(keys) else np.empty(0, dtype=np.bool_)
    first_rows = order[np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))]
    same = np.full(len(keys), -1, dtype=np.int64)
    same[order] = np.where(first, -1, first_rows)
    return same


def near_duplicates(
    signatures: Signatures, order: Indexes, shingles_of: ShinglesOf, threshold: float, progress: Progress = silent
) -> Indexes:
    """Per row, the kept row that it nearly repeats; -1 for rows to keep. Rows are kept first come, first kept, in `order`.

    Only kept rows are entered in the buckets, so a thousand copies of one text cost a thousand comparisons, not a million.
    """
    repeats = np.full(len(signatures), -1, dtype=np.int64)
    buckets = shared_buckets(signatures, order, threshold)
    kept_rows: dict[int, list[int]] = {}
    cached = lru_cache(maxsize=2_048)(shingles_of)
    with progress("Looking for near-duplicates", len(buckets)) as step:
        for row, ids in buckets.items():
            step(1)
            others = [other for index in ids for other in kept_rows.get(index, ())]
            match = next(rows_like(row, others, signatures, cached, cached, threshold), None)
            if match is not None:
                repeats[row] = match
            else:
                for index in ids:
                    kept_rows.setdefault(index, []).append(row)
    return repeats


def rows_like(
    row: int, others: list[int], signatures: Signatures, mine: ShinglesOf, theirs: ShinglesOf, threshold: float
) -> Iterator[int]:
    """Those of `others` that reach the threshold: the signatures say which are worth a look, the shingles decide."""
    rows = np.unique(np.array(others, dtype=np.int64))
    likely = (signatures[rows] == signatures[row]).mean(axis=1) >= threshold - DOUBT
    return (other for other in rows[likely].tolist() if jaccard(theirs(other), mine(row)) >= threshold)


def shared_buckets(signatures: Signatures, order: Indexes, threshold: float) -> dict[int, list[int]]:
    """Rows that share a band of their signature with another row, in `order`, each with the numbers of its shared buckets."""
    width = band_width(threshold, signatures.shape[1])
    rows: list[Indexes] = []
    ids: list[Indexes] = []
    for band, start in enumerate(range(0, signatures.shape[1] - width + 1, width)):
        keys = _mixed(signatures[order, start : start + width])
        _, bucket, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        shared = np.flatnonzero(sizes[bucket] > 1)
        rows.append(shared)
        ids.append(bucket[shared] + band * len(order))
    buckets: dict[int, list[int]] = {}
    places, numbers = np.concatenate(rows), np.concatenate(ids)
    by_place = np.argsort(places, kind="stable")
    for place, number in zip(order[places[by_place]].tolist(), numbers[by_place].tolist(), strict=True):
        buckets.setdefault(place, []).append(number)
    return buckets


def band_width(threshold: float, permutations: int = PERMUTATIONS) -> int:
    """The widest band that still misses a pair at the threshold with a chance of at most MISS."""
    widths = range(permutations, 0, -1)
    return next((r for r in widths if (1 - threshold**r) ** (permutations // r) <= MISS), 1)


def _mixed(band: Signatures) -> NDArray[np.uint64]:
    """One number per row for the values of a band."""
    mixed = np.zeros(len(band), dtype=np.uint64)
    for column in band.T:
        mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed
