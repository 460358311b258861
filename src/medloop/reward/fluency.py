"""How far neighbouring words fit together, without a language model: 1 for sentences, 0 for shuffled words and keyword lists.

    fluency(words("drink plenty of water and rest"))      -> 1.0

The most frequent words (English) or characters (Chinese) of our own texts are classes of their own, the others share a few
classes (numbers, endings such as -ing). A table holds, for each pair of classes, how much more often they are neighbours than
chance, as a logarithm. The mean over a text is above 0 for real text and below -0.2 for the same words shuffled.
tools/train_fluency.py makes the tables (assets/fluency/, 0.1 MB). They know grammar, not sense: fluent nonsense is fluent.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medloop.errors import ModelError
from medloop.lexicon.words import Words
from medloop.reward.detect.ngrams import Kind

VERSION: Final = "1"
ASSETS: Final = Path(str(files("medloop") / "assets" / "fluency"))
ENDINGS: Final = ("ing", "ed", "ly", "tion", "s")  # classes of rarer English words
OTHER: Final[dict[Kind, int]] = {"en": len(ENDINGS) + 2, "zh": 1}  # classes beside the frequent words
_HAN, _END = 0x3400, 0xA000  # Chinese characters
SCALE: Final = 40.0  # one byte holds logarithms from -3 to 3
BROKEN: Final = -0.2  # mean logarithm up to which the value is 0
WHOLE: Final = 0.0  # and from which on it is 1
_FEWEST: Final = 15  # words from which on the mean says something
_MOST: Final = 600  # words that are read


class NeighbourTable(NamedTuple):
    """`classes`: frequent words and their numbers. `characters`: for Chinese, the class of every character, -1 for others."""

    classes: dict[str, int]
    characters: NDArray[np.int64]
    values: NDArray[np.int8]


def fluency(tokens: Words, kind: Kind) -> float:
    """0 to 1; 1 for a text that is too short to tell."""
    if len(tokens) < _FEWEST:
        return 1.0
    return round(min(1.0, max(0.0, (neighbour_mean(tokens[:_MOST], _table(kind)) - BROKEN) / (WHOLE - BROKEN))), 3)


def neighbour_mean(tokens: Words, table: NeighbourTable) -> float:
    """The mean logarithm over all neighbours."""
    ids = class_ids(tokens, table.classes, table.characters)
    return int(np.add.reduce(table.values[ids[:-1], ids[1:]], dtype=np.int64)) / (len(ids) - 1) / SCALE if len(ids) > 1 else 0.0


def class_ids(tokens: Words, classes: dict[str, int], characters: NDArray[np.int64]) -> NDArray[np.int64]:
    """The class of every word; in a Chinese text, of every Chinese character."""
    if not len(characters):
        return np.array([classes[word] if word in classes else _rare_class(word, len(classes)) for word in tokens])
    codes = np.frombuffer("".join(tokens).encode("utf-32-le"), np.uint32)
    ids: NDArray[np.int64] = characters[np.minimum(codes, _END)]
    return ids.compress(ids >= 0)


@lru_cache(maxsize=1 << 15)
def _rare_class(word: str, first: int) -> int:
    """The class of an English word that is not among the frequent ones; `first` is the first such class."""
    if word[0].isdigit():
        return first
    return first + 1 + next((n for n, ending in enumerate(ENDINGS) if word.endswith(ending)), len(ENDINGS))


def numbered(frequent: list[str], kind: Kind) -> tuple[dict[str, int], NDArray[np.int64]]:
    """The classes of a list of frequent words, and of every Chinese character."""
    classes = {word: number for number, word in enumerate(frequent)}
    if kind == "en":
        return classes, np.empty(0, np.int64)
    characters = np.full(_END + 1, -1, np.int64)
    characters[_HAN:_END] = len(classes)
    characters[[ord(word) for word in frequent]] = range(len(classes))
    return classes, characters


@lru_cache(maxsize=2)
def _table(kind: Kind) -> NeighbourTable:
    path = ASSETS / f"{kind}.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return NeighbourTable(*numbered(str(arrays["words"]).split(), kind), arrays["values"])
    except (OSError, KeyError, ValueError) as error:
        raise ModelError(f"{path.name} is not a table of neighbours", "Install medloop again") from error
