"""Exact and near duplicates of whole texts."""

import random

import numpy as np
import pytest

from medloop.data.text.dedupe import PERMUTATIONS, Signer, band_width, exact_duplicates, near_duplicates
from medloop.data.text.shingles import jaccard, text_marks, text_shingles

WORDS = [f"word{n}" for n in range(400)]


def texts(count: int, seed: int) -> list[str]:
    """Some texts, and copies with 1 to 12 of 60 words changed: similarities on both sides of any threshold."""
    rng = random.Random(seed)
    lines = [" ".join(rng.choices(WORDS, k=60)) for _ in range(count)]
    for _ in range(count):
        words = rng.choice(lines).split()
        for index in rng.sample(range(60), rng.randint(1, 12)):
            words[index] = rng.choice(WORDS)
        lines.append(" ".join(words))
    return lines


@pytest.mark.parametrize("threshold", [0.6, 0.8, 0.9])
def test_no_two_kept_texts_are_near_and_every_drop_is_near_a_kept_one(threshold: float) -> None:
    shingles = [text_shingles(text) for text in texts(60, seed=3)]
    signatures = np.stack([Signer().sign(shingle_set) for shingle_set in shingles])
    repeats = near_duplicates(signatures, np.arange(len(shingles)), shingles.__getitem__, threshold)
    unique = np.flatnonzero(repeats < 0).tolist()
    assert not [(a, b) for a in unique for b in unique if a < b and jaccard(shingles[a], shingles[b]) >= threshold]
    for row in np.flatnonzero(repeats >= 0).tolist():
        assert repeats[repeats[row]] == -1
        assert jaccard(shingles[row], shingles[repeats[row]]) >= threshold
    assert 0 < len(unique) < len(shingles)


def test_the_first_in_the_given_order_is_kept() -> None:
    first, second = text_shingles("a b c d e f g h i j"), text_shingles("a b c d e f g h i j k")
    signatures = np.stack([Signer().sign(first), Signer().sign(second)])
    assert near_duplicates(signatures, np.array([1, 0]), [first, second].__getitem__, 0.8).tolist() == [1, -1]


def test_bands_miss_a_pair_at_the_threshold_less_than_once_in_ten_thousand() -> None:
    for threshold in (0.55, 0.7, 0.8, 0.9, 0.95):
        width = band_width(threshold)
        assert (1 - threshold**width) ** (PERMUTATIONS // width) <= 1e-4


def test_exact_duplicates_ignore_punctuation_and_keep_the_preferred_row() -> None:
    keys = np.array([text_marks(text)[0] for text in ("头疼，怎么办", "头疼怎么办？", "头 疼怎么办", "别的")], dtype=np.uint64)
    assert exact_duplicates(keys, np.zeros(4, dtype=np.bool_)).tolist() == [-1, 0, 0, -1]
    assert exact_duplicates(keys, np.array([False, True, False, False])).tolist() == [1, -1, 1, -1]
