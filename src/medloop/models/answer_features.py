"""What can be read off an answer without a large model: hashed words, what it shares with its question, shape and length.

    features = answer_features(question, answer)
    features.buckets       -> hashed words and word pairs, each once: anywhere, at either end, shared with the question
    features.shape         -> SHAPE numbers: length, overlap with the question, repetition, sentences, digits, lists
    features.words         -> hashes of single words, and `word_pairs` of pairs, for the share that training never saw

Words are hashed, so a model that is made of them holds no text. Chinese is read as characters and pairs of characters.
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from medloop.contracts import Message

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BITS = 16  # 2**16 buckets for the weights
SEEN_BITS = 20  # and 2**20 for what training has seen
EDGE = 40  # characters at either end of an answer that count on their own
WORD = re.compile(r"[\u3400-\u9fff]|[^\W_]+")
_SENTENCE = re.compile(r"[。！？.!?\n]+")
_LIST = re.compile(r"^\s*(?:\d+[.、)]|[-*•])", re.MULTILINE)
_END = tuple('.!?。！？)）"”')
SHAPE = (
    "length", "length squared", "question covered", "answer from the question", "distinct words", "line breaks", "questions back",
    "sentences", "digits", "list", "words a sentence", "ends with a full stop", "starts like the question",
)  # fmt: skip
LENGTHS = (0, 1)  # the columns of SHAPE that are length itself


class AnswerFeatures(NamedTuple):
    buckets: Ints
    shape: Floats
    words: Ints
    word_pairs: Ints
    script_gap: float
    repetition: float


def is_chinese(word: str) -> bool:
    return len(word) == 1 and "\u3400" <= word <= "\u9fff"


def words(text: str) -> set[str]:
    """Words of a text in lower case; neighbouring Chinese characters also as bigrams."""
    tokens = WORD.findall(text.lower())
    return set(tokens) | {a + b for a, b in pairwise(tokens) if is_chinese(a) and is_chinese(b)}


def question_text(messages: Sequence[Message]) -> str:
    """What was asked: all messages before the answer."""
    return "\n".join(message.content for message in messages)


def answer_features(question: str, answer: str) -> AnswerFeatures:
    tokens = WORD.findall(answer.lower())
    asked = words(question)
    pairs = _pairs(tokens)
    terms = set(tokens) | pairs
    edges = (_terms(answer[:EDGE]), _terms(answer[-EDGE:]))
    buckets = [*_hashed("word", terms), *_hashed("shared", terms & asked)]
    buckets += [*_hashed("first", edges[0]), *_hashed("last", edges[1])]
    repetition = 1 - len(set(tokens)) / max(len(tokens), 1)
    return AnswerFeatures(
        np.unique(np.array(buckets, dtype=np.int64)), _shape(answer, tokens, asked, edges[0]),
        np.array(sorted(_hashed("word", set(tokens), SEEN_BITS)), dtype=np.int64),
        np.array(sorted(_hashed("pair", pairs, SEEN_BITS)), dtype=np.int64),
        abs(_chinese_share(question) - _chinese_share(answer)), repetition,
    )  # fmt: skip


def _pairs(tokens: Sequence[str]) -> set[str]:
    return {a + b if is_chinese(a) and is_chinese(b) else f"{a} {b}" for a, b in pairwise(tokens)}


def _terms(text: str) -> set[str]:
    tokens = WORD.findall(text.lower())
    return set(tokens) | _pairs(tokens)


def _hashed(kind: str, terms: Iterable[str], bits: int = BITS) -> set[int]:
    mask = (1 << bits) - 1
    return {zlib.crc32(f"{kind}:{term}".encode()) & mask for term in terms}


def _shape(answer: str, tokens: Sequence[str], asked: set[str], beginning: set[str]) -> Floats:
    distinct, length = words(answer), np.log1p(len(answer))
    shared = len(distinct & asked)
    sentences = [part for part in _SENTENCE.split(answer) if part.strip()]
    size = max(len(answer), 1)
    numbers = (
        length, length**2 / 10, shared / max(len(asked), 1), shared / max(len(distinct), 1),
        len(set(tokens)) / max(len(tokens), 1), 20 * answer.count("\n") / size,
        np.log1p(answer.count("?") + answer.count("\uff1f")), np.log1p(len(sentences)),
        10 * sum(character.isdigit() for character in answer) / size, float(bool(_LIST.search(answer))),
        np.log1p(size / max(len(sentences), 1)), float(answer.rstrip().endswith(_END)),
        len(beginning & asked) / max(len(beginning), 1),
    )  # fmt: skip
    return np.array(numbers, dtype=np.float64)


def _chinese_share(text: str) -> float:
    tokens = WORD.findall(text)
    return sum(map(is_chinese, tokens)) / max(len(tokens), 1)
