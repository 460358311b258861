"""Relevance without a model: which pieces of words two texts share, zh + en. The declared fallback of relevance.py.

    shared_with("我有高血压，能吃党参吗？", "高血压病人可以吃党参。")   -> 1.0: all pieces of the first text stand in the second

Pieces are pairs of Chinese characters and runs of four letters of longer Latin words, common ones left out. It sees words, not
meaning: a synonym is a miss, a denial is a hit. Texts in two scripts share nothing and say nothing about one another; the caller
asks `script` first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from medloop.reward.answer_text import KEPT, content

VERSION = "1"
AUTHOR = "reward:heuristic"
PIECE = 4  # letters of a Latin word
LETTERS_A_WORD = 5  # Latin letters that say as much as one and a half letters of other scripts
FOREIGN_SHARE = 0.3
_FOREIGN = re.compile(r"[^\W\d_\u0000-\u024f]")  # letters of other scripts than Latin
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_STOP = re.compile(r"[。！？!?；;\n]+|\.(?=\s|$)")


def shared_with(text: str, other: str) -> float:
    """The share of what `text` is about that `other` speaks of too, 0–1; 0 for a text about nothing."""
    wanted = pieces(text)
    return len(wanted & pieces(other)) / len(wanted) if wanted else 0.0


def supported(answer: str, context: str) -> float:
    """The mean over the answer's sentences of the share of their pieces that stand in the context."""
    said = [sentence for sentence in sentences(answer) if pieces(sentence)]
    return sum(shared_with(sentence, context) for sentence in said) / len(said) if said else 0.0


@lru_cache(maxsize=KEPT)
def pieces(text: str) -> frozenset[str]:
    return frozenset(piece for word in content(text) for piece in _cut(word))


def _cut(word: str) -> list[str]:
    if not word.isascii() or len(word) <= PIECE:
        return [word]
    return [word[at : at + PIECE] for at in range(len(word) - PIECE + 1)]


def sentences(text: str) -> list[str]:
    """The different sentences of a text, in order: what is said twice counts once."""
    return list(dict.fromkeys(part.strip() for part in _STOP.split(text) if re.search(r"\w", part)))


def script(text: str) -> Literal["latin", "other", "none"]:
    """What a text is written in: Chinese with drug names in Latin letters is `other`, English with some Greek ones `latin`."""
    foreign, latin = len(_FOREIGN.findall(text)) / 1.5, len(_LATIN.findall(text)) / LETTERS_A_WORD
    if foreign + latin == 0:
        return "none"
    return "other" if foreign > FOREIGN_SHARE * (foreign + latin) else "latin"
