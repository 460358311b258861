"""A small network over words: how likely each word of an English text is part of a name, by its place more than by itself.

The tagger (tagger.py) knows names by their lists and letters. Nurses write "penny dropped a kettle" and "handover: hope, bed 4":
such a name is an ordinary word, and only the words around it tell. Three convolutions over the features of words, computed with
numpy; the weights (assets/phi/words_en.npz) are learned by tools/train_phi_words.py from sentences we generate and from real
medical texts.
"""

import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.privacy.phi import lists
from medloop.privacy.phi.english.tagger import Token
from medloop.privacy.phi.normalize import MASK

LAYERS = ((5, 1), (3, 2), (3, 4))  # width and dilation of each convolution
_REACH = sum(dilation * (width // 2) for width, dilation in LAYERS)  # words to each side that a chance depends on
SIZE = 1 << 13  # features share a row of the table where their hashes are equal
_CACHED = 16_384  # words whose sums are kept
_BLOCK = 64  # rows multiplied together: larger products wake the threads of the BLAS
Array = NDArray[Any]


def features(word: str) -> tuple[str, ...]:
    """What the network sees of a word: itself if it is ordinary, its letters, its shape and the lists that hold it."""
    if word[0] == MASK or (word[0] == "<" and len(word) > 1):
        return (f"known {'NAME' if word[0] == MASK else word}",)
    if not word[0].isalpha():
        return (f"sign {'0' if word[0].isdigit() else word[0]}", f"size {min(len(word), 5)}")
    lower = word.lower()
    shape = "title" if word.istitle() else "upper" if word.isupper() else "lower" if word.islower() else "mixed"
    tier = lists.tier(lower)
    return (
        f"word {lower}" if tier in lists.ORDINARY else f"unlisted {tier}",
        f"shape {shape} {tier}", f"shape {shape}", f"size {min(len(word), 8)}", f"lists {lists.lists_of(lower)}",
        f"medical {lower in lists.medical_words()}", f"end {lower[-3:]}", f"end {lower[-2:]}", f"start {lower[:3]}",
    )  # fmt: skip


@lru_cache(maxsize=32_768)
def rows_of(word: str) -> tuple[int, ...]:
    """The rows of the table that are added up for a word."""
    return tuple(map(_row_of, features(word)))


@lru_cache(maxsize=16_384)
def _row_of(feature: str) -> int:
    return zlib.crc32(feature.encode()) % SIZE


class WordNetwork:
    def __init__(self, weights: Mapping[str, Array]) -> None:
        floats = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}
        self.table = floats["table"]
        self.layers = [floats[f"layer{number}"][:, None] for number in range(len(LAYERS))]  # (width, 1, in, out)
        self.biases = [floats[f"bias{number}"] for number in range(len(LAYERS))]
        self.last, self.last_bias = floats["last"], floats["last_bias"]
        self._lock = Lock()  # for the one who adds words; reading needs none
        self._known = self._none_known()

    def _none_known(self) -> tuple[dict[str, int], Array]:
        """The places of words, and the vectors there. No place is given to another word: a full table is left to its readers."""
        return {}, np.zeros((_CACHED, self.table.shape[1]), np.float32)

    def _vectors_of(self, words: list[str]) -> Array:
        """The sums of the rows of each word; those of words that were seen before are kept."""
        places, vectors = self._known
        if not all(word in places for word in words):
            distinct = dict.fromkeys(words)
            if len(distinct) > _CACHED:
                return np.stack([self.table[list(rows_of(word))].sum(axis=0) for word in words])
            places, vectors = self._with(distinct)
        taken: Array = vectors.take([places[word] for word in words], axis=0)
        return taken

    def _with(self, words: Mapping[str, object]) -> tuple[dict[str, int], Array]:
        """The table with these words; it has room for all of them."""
        with self._lock:
            places, vectors = self._known
            new = [word for word in words if word not in places]
            if len(places) + len(new) > _CACHED:
                places, vectors = self._known = self._none_known()
                new = list(words)
            for word in new:
                place = len(places)
                vectors[place] = self.table.take(rows_of(word), axis=0).sum(axis=0)
                places[word] = place  # last: from now on others read it
        return places, vectors

    def chances_of(self, tokens: Sequence[Token], wanted: Sequence[int]) -> list[float]:
        """As `chances`, for the wanted tokens alone; 0 for the others. Only what these depend on is computed."""
        needed, result = list[int](), [0.0] * len(tokens)
        for index in wanted:
            first = max(index - _REACH, needed[-1] + 1 if needed else 0)
            needed += range(first, min(index + _REACH + 1, len(tokens)))
        if not needed:
            return result
        # Words on both sides of a gap see each other as neighbours; nobody wants those, they are too near to the gap.
        chances = self.chances([tokens[index] for index in needed]) if len(needed) < len(tokens) else self.chances(tokens)
        of_index = dict(zip(needed, chances, strict=True))
        for index in wanted:
            result[index] = of_index[index]
        return result

    def chances(self, tokens: Sequence[Token]) -> list[float]:
        """For each token how likely it is part of a name, from 0 to 1."""
        if not tokens:
            return []
        hidden = self._vectors_of([token.word for token in tokens])
        count = len(hidden)
        blocks = -(-count // _BLOCK)
        block = -(-count // blocks)
        size = blocks * block
        for number, ((width, dilation), layer, bias) in enumerate(zip(LAYERS, self.layers, self.biases, strict=True)):
            beside, depth = dilation * (width // 2), hidden.shape[1]
            wide = np.zeros((size + 2 * beside, depth), np.float32)
            wide[beside : beside + count] = hidden
            row, item = wide.strides
            # The same rows once for each place of the window, without a copy; their products are added in this order.
            steps = (dilation * row, block * row, row, item)
            places: Array = np.ndarray((width, blocks, block, depth), np.float32, wide, 0, steps)
            new = (places @ layer).sum(axis=0).reshape(size, -1)[:count]
            new += bias
            np.maximum(new, 0, out=new)
            if number:
                new += hidden
            hidden = new
        logits = hidden @ self.last[:, 0] + self.last_bias[0]
        chances: list[float] = (1 / (1 + np.exp(-np.minimum(np.maximum(logits, -30), 30)))).tolist()
        return chances


@lru_cache(maxsize=1)
def load() -> WordNetwork:
    with (lists.FOLDER / "words_en.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return WordNetwork({name: arrays[name] for name in arrays.files})
