"""Relevance without a model: the overlap of word pieces, zh + en. The fallback of `relevance.py`.

    overlap_with("我有高血压，能吃党参吗？", "高血压病人可以吃党参。")   -> 1.0: all pieces of the first text are in the second

Pieces are pairs of Chinese characters and four-letter n-grams of longer Latin words, without common ones. This compares words,
not meaning: a synonym is a miss, a negation is a hit. Texts in two scripts cannot be compared; callers check `script` first.
"""

import re
from functools import lru_cache
from typing import Literal

from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE, content_words

VERSION = "1"
AUTHOR = "reward:heuristic"
PIECE = 4  # letters of a Latin word
LETTERS_PER_WORD = 5  # Latin letters that weigh as much as one and a half letters of other scripts
FOREIGN_SHARE = 0.3
_FOREIGN = lazy_pattern(r"[^\W\d_\u0000-\u024f]")  # letters of other scripts than Latin
_LATIN = lazy_pattern(r"[A-Za-z\u00c0-\u024f]")
_STOP = lazy_pattern(r"[。！？!?；;\n]+|\.(?=\s|$)")


def overlap_with(text: str, other: str) -> float:
    """The share of the pieces of `text` that are in `other`, 0–1; 0 for a text without any."""
    own = word_pieces(text)
    return len(own & word_pieces(other)) / len(own) if own else 0.0


def sentence_overlap(answer: str, context: str) -> float:
    """The mean, over the answer's sentences, of the share of their pieces that are in the context."""
    compared = [sentence for sentence in sentences(answer) if word_pieces(sentence)]
    return sum(overlap_with(sentence, context) for sentence in compared) / len(compared) if compared else 0.0


@lru_cache(maxsize=CACHE_SIZE)
def word_pieces(text: str) -> frozenset[str]:
    return frozenset(piece for word in content_words(text) for piece in _letter_ngrams(word))


def _letter_ngrams(word: str) -> list[str]:
    if not word.isascii() or len(word) <= PIECE:
        return [word]
    return [word[start : start + PIECE] for start in range(len(word) - PIECE + 1)]


def sentences(text: str) -> list[str]:
    """The different sentences of a text, in order; a repeated one counts once."""
    return list(dict.fromkeys(part.strip() for part in _STOP.split(text) if re.search(r"\w", part)))


def script(text: str) -> Literal["latin", "other", "none"]:
    """The script of a text: Chinese with drug names in Latin letters is `other`, English with some Greek letters `latin`."""
    foreign, latin = len(_FOREIGN.findall(text)) / 1.5, len(_LATIN.findall(text)) / LETTERS_PER_WORD
    if foreign + latin == 0:
        return "none"
    return "other" if foreign > FOREIGN_SHARE * (foreign + latin) else "latin"
