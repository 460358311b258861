"""A small network that looks at every character with eight to each side and says whether it belongs to a Chinese name.

Three convolutions over characters, computed with numpy. The weights (assets/phi/hanzi.npz) are learned by tools/train_phi_zh.py
from sentences we generate and from real medical texts with made-up names put in.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.privacy.phi import lists
from medloop.privacy.phi.normalize import MASK

LAYERS = ((5, 1), (3, 2), (3, 4))  # width and dilation of each convolution
REACH = sum(dilation * (width // 2) for width, dilation in LAYERS)
# Ids: 0 beyond the text, then those that many characters share, then characters that have an id to themselves.
UNKNOWN, _MASKED, _DIGITS, _LATIN, _SPACE, _LINE, FIRST = 1, 2, 3, 4, 5, 6, 7
_PIECE, _BLOCK = 4096, 64  # characters computed together, and rows multiplied together

Array = NDArray[Any]


def has_own_id(char: str) -> bool:
    """Chinese characters and signs; digits, Latin letters and spaces share one id each."""
    return not (char.isspace() or char == MASK or (char.isascii() and char.isalnum()))


def id_table(codes: Array) -> Array:
    """From a character's code to its id."""
    table = np.full(0x10001, UNKNOWN, np.int32)
    table[codes] = np.arange(FIRST, FIRST + len(codes))
    table[[*range(9), *range(0x0B, 0x21), 0xA0, 0x3000]] = _SPACE
    table[0x30:0x3A] = _DIGITS
    table[[*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC0, 0x250)]] = _LATIN
    table[ord("\n")] = _LINE
    table[ord(MASK)] = _MASKED
    return table


def ids_of(text: str, table: Array) -> tuple[Array, Array]:
    """The ids of a folded text and their offsets; digits, letters or spaces in a row are one id."""
    points = np.minimum(np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32), 0x10000)
    ids = table.take(points)
    is_first = np.ones(len(ids), bool)
    is_first[1:] = (ids[1:] != ids[:-1]) | (ids[1:] < _MASKED) | (ids[1:] > _LINE)
    offsets = is_first.nonzero()[0]
    return ids[offsets], offsets


class JoinedTexts:
    """Several texts in one array of ids, so that a network reads all of them in one go."""

    def __init__(self, texts: Sequence[str], table: Array, gap: int) -> None:
        """`gap`: places between two texts, as many as the network looks aside in its further layers."""
        self.texts, self.starts, position = texts, list[int](), 0
        self.text = (_BETWEEN * gap).join(texts)
        for text in texts:
            self.starts.append(position)
            position += len(text) + gap
        self.ids, self.offsets = ids_of(self.text, table)
        is_blank = np.ones(len(self.text), bool)
        for start, text in zip(self.starts, texts, strict=True):
            is_blank[start : start + len(text)] = False
        self.blank = is_blank[self.offsets].nonzero()[0]
        self.ids[self.blank] = 0

    def places(self) -> Iterator[tuple[str, slice, Array]]:
        """Each text, where its ids are, and their offsets in it."""
        ends = [start + len(text) for start, text in zip(self.starts, self.texts, strict=True)]
        firsts, lasts = np.searchsorted(self.offsets, self.starts).tolist(), np.searchsorted(self.offsets, ends).tolist()
        for text, start, first, last in zip(self.texts, self.starts, firsts, lasts, strict=True):
            yield text, slice(first, last), self.offsets[first:last] - start


_BETWEEN = "\uffff"  # no character: it has no id to itself and is not joined to its neighbours


class NameNetwork:
    def __init__(self, weights: Mapping[str, Array]) -> None:
        floats = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items() if name != "codes"}
        self.table = id_table(weights["codes"])
        # The first layer of every character at every place of its window is computed here: only additions are left for later.
        self.first = [floats["table"] @ kernel for kernel in floats["layer0"]]
        self.layers = [floats[f"layer{number}"] for number in range(1, len(LAYERS))]
        self.biases = [floats[f"bias{number}"] for number in range(len(LAYERS))]
        self.last, self.last_bias = floats["last"], floats["last_bias"]
        self._ahead: dict[str, tuple[Array, Array]] = {}

    def look_ahead(self, texts: Sequence[str]) -> None:
        """Read these short texts together; until the next ones, `read` knows them."""
        joined = JoinedTexts(texts, self.table, LAYERS[-1][1])
        logits = self._scores(joined.ids, joined.blank)
        self._ahead = {text: (offsets, logits[place]) for text, place, offsets in joined.places()}

    def read(self, text: str) -> tuple[Array, Array]:
        """The offsets of the ids of a folded text, and their `scores`."""
        known = self._ahead.get(text)
        if known is not None:
            return known
        ids, offsets = ids_of(text, self.table)
        return offsets, self.scores(ids)

    def scores(self, ids: Array) -> Array:
        """For each id the logits of being outside a name, beginning one, or continuing one: (T,) -> (T, 3)."""
        if len(ids) <= _PIECE:
            return self._scores(ids)
        pieces = []
        for start in range(0, len(ids), _PIECE):
            before = min(start, REACH)
            piece = self._scores(ids[start - before : start + _PIECE + REACH])
            pieces.append(piece[before : before + _PIECE])
        return np.concatenate(pieces)

    def _scores(self, ids: Array, blank: Array | None = None) -> Array:
        """`blank`: places between texts."""
        count = len(ids)
        # Products of at most _BLOCK rows: larger ones wake the threads of the BLAS, which costs more than it saves.
        blocks = -(-count // _BLOCK)
        block = -(-count // blocks)
        size = blocks * block
        beside = LAYERS[0][0] // 2
        padded = np.zeros(size + 2 * beside, np.int32)
        padded[beside : beside + count] = ids
        hidden = self.first[0].take(padded[:size], axis=0)
        for offset in range(1, LAYERS[0][0]):
            hidden += self.first[offset].take(padded[offset : offset + size], axis=0)
        hidden += self.biases[0]
        np.maximum(hidden, 0, out=hidden)
        outside = outside_of(count, size, blank)
        hidden[outside] = 0
        add_layers(hidden, outside, block, [dilation for _, dilation in LAYERS[1:]], self.layers, self.biases[1:])
        logits: Array = (hidden.reshape(-1, block, hidden.shape[1]) @ self.last).reshape(size, 3)[:count] + self.last_bias
        return logits


def outside_of(count: int, size: int, blank: Array | None) -> slice | Array:
    return slice(count, size) if blank is None else np.concatenate([blank, np.arange(count, size)])


def add_layers(
    hidden: Array, outside: slice | Array, block: int, dilations: Sequence[int], layers: Sequence[Array], biases: Sequence[Array]
) -> None:
    """Add what each further layer makes of `hidden`, in place; rows `outside` are padding and stay zero."""
    size, width = hidden.shape
    for dilation, layer, bias in zip(dilations, layers, biases, strict=True):
        wide = np.zeros((size + 2 * dilation, width), np.float32)
        wide[dilation : dilation + size] = hidden
        new = wide[:size].reshape(-1, block, width) @ layer[0]
        new += wide[dilation : dilation + size].reshape(-1, block, width) @ layer[1]
        new += wide[2 * dilation :].reshape(-1, block, width) @ layer[2]
        new += bias
        np.maximum(new, 0, out=new)
        hidden += new.reshape(size, width)
        hidden[outside] = 0


@lru_cache(maxsize=1)
def load() -> NameNetwork:
    with (lists.FOLDER / "hanzi.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return NameNetwork({name: arrays[name] for name in arrays.files})
