"""N-grams of texts as a sparse matrix, for the small models of tools/train_urgency.py and tools/train_acts.py."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix

from medloop.reward.detect.ngrams import Kind, buckets


def features(texts: Sequence[str], kind: Kind, bits: int) -> csr_matrix:
    """One row per text: each n-gram counts 1 / sqrt(n-grams of the text), in one of 2 ** bits columns."""
    rows = [buckets(text, kind) & ((1 << bits) - 1) for text in texts]
    values = np.concatenate([np.full(len(row), 1 / np.sqrt(max(len(row), 1))) for row in rows])
    ends = np.cumsum([0, *(len(row) for row in rows)])
    matrix = csr_matrix((values, np.concatenate(rows), ends), shape=(len(texts), 1 << bits))
    matrix.sum_duplicates()
    return matrix
