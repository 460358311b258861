"""How near two texts are in what they are about, without words in common: 溢奶 and 拍嗝, "reflux" and "antacid".

    relatedness({"reflu", "lying"}, {"antac", "meal"})      -> 0.7, a cosine; 0 where too little is known

Every known word (the first letters of an English one, a pair of Chinese characters) has a vector, and a text has the sum of its
words. Vectors say which words stand together in medical questions and answers, English ones also how a sentence encoder reads
them. tools/train_relatedness.py makes the tables (assets/relatedness/). They know topics, not sense: nonsense about the same
topic is as near as a right answer.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from medloop.errors import ModelError
from medloop.reward.detect.ngrams import Kind

VERSION: Final = "1"
ASSETS: Final = Path(str(files("medloop") / "assets" / "relatedness"))
FEWEST: Final = 2  # known words from which on a text has a topic
_HAN: Final = "\u3400"

Floats = NDArray[np.float32]


class WordVectors(NamedTuple):
    """`rows` of the words, their `vectors`, and how much each word weighs: rare ones more."""

    rows: dict[str, int]
    vectors: NDArray[np.int8]
    weights: Floats

    def of(self, content: Collection[str]) -> Floats | None:
        """The direction of a text; None where hardly a word is known."""
        rows = [row for word in sorted(content) if (row := self.rows.get(word)) is not None]
        if len(rows) < FEWEST:
            return None
        vector: Floats = self.weights[rows] @ self.vectors[rows].astype(np.float32)
        length = float(np.sqrt(vector @ vector))
        return vector / np.float32(length) if length else None


def relatedness(asked: frozenset[str], said: Collection[str]) -> float:
    """The cosine of two texts by their content words, in the language of the first."""
    question = _direction(asked)
    if question is None:
        return 0.0
    answer = _table(_kind(asked)).of(said)
    return round(float(question @ answer), 4) if answer is not None else 0.0


@lru_cache(maxsize=256)  # many answers have one question
def _direction(asked: frozenset[str]) -> Floats | None:
    return _table(_kind(asked)).of(asked)


def _kind(content: Collection[str]) -> Kind:
    return "zh" if any(word >= _HAN for word in content) else "en"


@lru_cache(maxsize=2)
def _table(kind: Kind) -> WordVectors:
    path = ASSETS / f"{kind}.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            words = str(arrays["words"]).split("\n")
            return WordVectors({word: row for row, word in enumerate(words)}, arrays["vectors"], arrays["weights"])
    except (OSError, KeyError, ValueError) as error:
        raise ModelError(f"{path.name} is not a table of word vectors", "Install medloop again") from error
