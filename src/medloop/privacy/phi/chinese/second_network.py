"""A second opinion on Chinese names: a network that reads each character together with what the lists say of it.

The first network (network.py) knows characters alone, so that a brand or a hospital is a name to it and a word that is a name is
none. This one sees 32 characters to each side, and of each whether it is a surname, stands in given names, or belongs to
a word or a term. The weights (assets/phi/hanzi_second.npz) are learned by tools/train_phi_second.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.privacy.phi import lists
from medloop.privacy.phi.chinese.network import JoinedTexts, add_layers, id_table, ids_of, outside_of
from medloop.privacy.phi.chinese.words import GIVEN, blocked_words, ordinary_words, pair_groups, surnames

Array = NDArray[Any]
LAYERS = ((5, 1), (3, 2), (3, 4), (3, 8), (3, 16))  # width and dilation of each convolution
REACH = sum(dilation * (width // 2) for width, dilation in LAYERS)
FLAGS = 12  # bits of `flags_of`
_PIECE, _BLOCK = 4096, 64  # characters computed together, and rows multiplied together
_LONGEST = 4  # characters of a word; what is longer is known by its beginning


def _points(text: str) -> Array:
    return np.minimum(np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32), 0xFFFF)


class _Words:
    """Words of two to four characters, and the bits that they set on their first and on their other characters."""

    def __init__(self, lists_of_words: Iterable[tuple[Iterable[str], int, int]]) -> None:
        masks: dict[int, dict[int, int]] = {2: {}, 3: {}, 4: {}}  # by size: the codes and the bits
        for words, begins, inside in lists_of_words:
            bits = 1 << begins | 1 << (inside + FLAGS)
            for word in words:
                size = min(len(word), _LONGEST)
                if size < 2 or max(word[:size]) > "\uffff":
                    continue
                code = _code(word[:size])
                masks[size][code] = masks[size].get(code, 0) | bits
                if size > 2:
                    pair = _code(word[:2])
                    masks[2][pair] = masks[2].get(pair, 0) | _LONGER
        self.pairs, self.pair_bits = _sorted(masks[2], np.uint32)
        self.longer = [(size, *_sorted(masks[size], np.uint64)) for size in (3, 4)]

    def mark(self, points: Array, flags: Array) -> None:
        if len(points) < 2:
            return
        codes = (points[:-1] << np.uint32(16)) | points[1:]
        first, bits = _look_up(self.pairs, self.pair_bits, codes, np.arange(len(codes)))
        _set(flags, first, bits, 2)
        may_go_on = first[(bits & _LONGER) != 0]
        wide = points.astype(np.uint64)
        for size, known, known_bits in self.longer:
            places = may_go_on[may_go_on + size <= len(points)]
            codes = np.zeros(len(places), np.uint64)
            for offset in range(size):
                codes = (codes << np.uint64(16)) | wide[places + offset]
            _set(flags, *_look_up(known, known_bits, codes, places), size)


_LONGER = 1 << (2 * FLAGS)  # a pair that a longer word begins with


def _code(word: str) -> int:
    code = 0
    for char in word:
        code = code << 16 | ord(char)
    return code


def _sorted(masks: Mapping[int, int], dtype: Any) -> tuple[Array, Array]:
    codes = sorted(masks)
    return np.array(codes, dtype), np.array([masks[code] for code in codes], np.int32)


def _look_up(known: Array, known_bits: Array, codes: Array, places: Array) -> tuple[Array, Array]:
    """The places whose codes are known, and their bits."""
    found = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    is_known = known[found] == codes
    return places[is_known], known_bits[found[is_known]]


def _set(flags: Array, first: Array, bits: Array, size: int) -> None:
    flags[first] |= bits & ((1 << FLAGS) - 1)
    for offset in range(1, size):  # `first` has no place twice
        flags[first + offset] |= (bits >> FLAGS) & ((1 << FLAGS) - 1)


@lru_cache(maxsize=1)
def _known() -> tuple[Array, _Words]:
    """Flags of single characters, and the words."""
    single, double = surnames()
    of_char = np.zeros(0x10000, np.int32)
    for char in single:
        of_char[ord(char)] |= 1
    for char in GIVEN:
        of_char[ord(char)] |= 4
    terms = [term for group in lists.medical_terms_zh().by_first_two.values() for term in group]
    often, seldom, rarely = pair_groups()
    words: list[tuple[Iterable[str], int, int]] = [
        (double, 1, 1), (often, 3, 4), (seldom - often, 5, 5), (rarely - seldom, 6, 6), (ordinary_words(), 7, 8),
        (terms, 9, 10), (blocked_words(), 11, 11),
    ]  # fmt: skip
    return of_char, _Words(words)


def flags_of(text: str) -> Array:
    """For each character of a folded text what the lists say of it, as bits."""
    of_char, words = _known()
    points = _points(text)
    flags: Array = of_char[points]
    words.mark(points, flags)
    return flags


class SecondNetwork:
    def __init__(self, weights: Mapping[str, Array]) -> None:
        floats = {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items() if name != "codes"}
        self.table = id_table(weights["codes"])
        # The first layer of every character and of all flags at every place is computed here: only additions are left for later.
        size = floats["table"].shape[1]
        bits = ((np.arange(1 << FLAGS)[:, None] >> np.arange(FLAGS)) & 1).astype(np.float32)
        self.first = [floats["table"] @ kernel[:size] for kernel in floats["layer0"]]
        self.flags = [bits @ kernel[size:] for kernel in floats["layer0"]]
        self.layers = [floats[f"layer{number}"] for number in range(1, len(LAYERS))]
        self.biases = [floats[f"bias{number}"] for number in range(len(LAYERS))]
        self.last, self.last_bias = floats["last"], floats["last_bias"]
        self._ahead: dict[str, tuple[Array, Array]] = {}

    def look_ahead(self, texts: Sequence[str]) -> None:
        """Read these short texts together; until the next ones, `chances` knows them."""
        self._ahead = dict(zip(texts, self.chances_of(texts), strict=True))

    def chances_of(self, texts: Sequence[str]) -> list[tuple[Array, Array]]:
        """`chances` of several short texts in one go."""
        joined = JoinedTexts(texts, self.table, LAYERS[-1][1])
        flags = flags_of(joined.text)[joined.offsets]
        flags[joined.blank] = 0
        shares = _shares(self._logits(joined.ids, flags, joined.blank))
        return [_by_character(text, offsets, shares[place]) for text, place, offsets in joined.places()]

    def chances(self, text: str) -> tuple[Array, Array]:
        """For each character of a folded text how likely it is part of a name, and how likely it begins one."""
        known = self._ahead.get(text)
        if known is not None:
            return known
        ids, offsets = ids_of(text, self.table)
        flags = flags_of(text)[offsets]
        pieces = []
        for start in range(0, len(ids), _PIECE):
            before = min(start, REACH)
            piece = slice(start - before, start + _PIECE + REACH)
            pieces.append(self._logits(ids[piece], flags[piece])[before : before + _PIECE])
        return _by_character(text, offsets, _shares(np.concatenate(pieces)))

    def _logits(self, ids: Array, flags: Array, blank: Array | None = None) -> Array:
        """`blank`: places between texts."""
        count = len(ids)
        # Products of at most _BLOCK rows: larger ones wake the threads of the BLAS, which costs more than it saves.
        blocks = -(-count // _BLOCK)
        block = -(-count // blocks)
        size = blocks * block
        width, beside = LAYERS[0][0], LAYERS[0][0] // 2
        padded, padded_flags = np.zeros(size + 2 * beside, np.int32), np.zeros(size + 2 * beside, np.int32)
        padded[beside : beside + count], padded_flags[beside : beside + count] = ids, flags
        hidden: Array = self.first[0].take(padded[:size], axis=0)
        hidden += self.flags[0].take(padded_flags[:size], axis=0)
        for offset in range(1, width):
            hidden += self.first[offset].take(padded[offset : offset + size], axis=0)
            hidden += self.flags[offset].take(padded_flags[offset : offset + size], axis=0)
        hidden += self.biases[0]
        np.maximum(hidden, 0, out=hidden)
        outside = outside_of(count, size, blank)
        hidden[outside] = 0
        add_layers(hidden, outside, block, [dilation for _, dilation in LAYERS[1:]], self.layers, self.biases[1:])
        logits: Array = (hidden.reshape(-1, block, hidden.shape[1]) @ self.last).reshape(size, 3)[:count] + self.last_bias
        return logits


def _shares(logits: Array) -> Array:
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


def _by_character(text: str, offsets: Array, shares: Array) -> tuple[Array, Array]:
    inside, begins = np.zeros(len(text), np.float32), np.zeros(len(text), np.float32)
    inside[offsets], begins[offsets] = 1 - shares[:, 0], shares[:, 1]
    return inside, begins


@lru_cache(maxsize=1)
def load() -> SecondNetwork:
    with (lists.FOLDER / "hanzi_second.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return SecondNetwork({name: arrays[name] for name in arrays.files})
