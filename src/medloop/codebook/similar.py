"""How alike two short texts are, without a model: hashed n-grams of characters and words, and the concepts of the lexicon.

    vectors = ngram_vectors(["胸口疼", "chest pain"])      # (2, D), rows of length 1, so products are cosines
    concepts("我爸嘴角歪了")                                # {"red_flag:stroke"}: the same in Chinese and English

Where a sentence encoder is given, curation uses it beside the n-grams; an answer must not wait for one.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from medloop import lexicon

Array = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Array]
WIDTH: Final = 2048
_WORD: Final = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]")
_TAKES: Final = re.compile(r"\btak(?:e|ing)\b")  # stopping is about a medicine, though it is not named
_OTHER_STOPS: Final = re.compile(r"诊断|判断|不断|间断|中断|断断续续|断奶|断经|停经|不停|戒烟|戒酒|停止?不了|除掉")
_COMMON: Final = frozenset(
    (
        "a an the is are was were be been i my me you your he she it his her we they of to in on at for and or with have has had"
        " do does did can could should would will what how why when this that these those if not no as from by about some any"
        " 我 的 了 是 吗 啊 么 怎 办 有 在 和 也 都 就 还 要 会 能 可 以 不 他 她 它 你 您 们 这 那 个 一 吧 来 去"
    ).split()
)


def ngram_vectors(texts: Sequence[str]) -> Array:
    """(N, WIDTH): words, pairs of words, and Chinese characters in twos and threes; a text without any is a row of zeros."""
    rows = np.zeros((len(texts), WIDTH), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for gram, weight in _grams(text):
            row[_bucket(gram)] += weight
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    np.divide(rows, lengths, out=rows, where=lengths > 0)
    return rows


def _grams(text: str) -> list[tuple[str, float]]:
    words = [word for word in _WORD.findall(lexicon.folded(text)) if word not in _COMMON]
    grams = [(word, 0.4 if _is_hanzi(word) else 1.0) for word in words]
    pairs = pairwise(words)
    return grams + [(f"{first} {second}", 1.0 if _is_hanzi(first) and _is_hanzi(second) else 0.7) for first, second in pairs]


def _is_hanzi(word: str) -> bool:
    return len(word) == 1 and "\u3400" <= word <= "\u9fff"


@lru_cache(maxsize=65536)
def _bucket(gram: str) -> int:
    return int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=4).digest(), "big") % WIDTH


def concepts(text: str) -> frozenset[str]:
    """What the lexicon finds in a question and the text does not deny: red flags, groups, drugs, conditions, stopping."""
    found = {f"red_flag:{mention.id}" for mention in lexicon.find_red_flags(text) if not mention.negated}
    found |= {f"group:{mention.id}" for mention in lexicon.find_groups(text) if not mention.negated}
    found |= {f"condition:{mention.id}" for mention in lexicon.find_conditions(text) if not mention.negated}
    found |= {f"drug:{mention.id}" for mention in lexicon.find_drugs(text)}  # "may I not take it" is about it, too
    words = lexicon.find_act_words(text)
    if any(name.startswith("drug:") for name in found) or "medicine" in words or _TAKES.search(lexicon.folded(text)):
        other = [match.span() for match in _OTHER_STOPS.finditer(lexicon.folded(text))]
        for part in ("stop_verb", "change_verb"):
            mentions = [m for m in words.get(part, ()) if not any(start <= m.start < end for start, end in other)]
            found |= {f"act:{part}"} if mentions else set()
    return frozenset(found)


def denied(text: str) -> frozenset[str]:
    """Concepts that the text only denies: "no chest pain" has the word and not the thing."""
    flags = {f"red_flag:{mention.id}" for mention in lexicon.find_red_flags(text) if mention.negated}
    groups = {f"group:{mention.id}" for mention in lexicon.find_groups(text) if mention.negated}
    return frozenset((flags | groups) - concepts(text))
