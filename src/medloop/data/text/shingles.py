"""Texts as sets of hashed words, for comparing them. One scheme for Chinese and English.

A token is a Chinese character or a word; case, width, punctuation and white space do not count. Hashes come from
CRC-32 and fixed multipliers, so they are the same on every machine and in every run.
"""

import hashlib
import unicodedata
import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from medloop.patterns import lazy_pattern

Hashes = NDArray[np.uint32]

_WIDE = r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_TOKEN = lazy_pattern(rf"[{_WIDE}]|\d+|[^\W\d_{_WIDE}]+")
_NUMERALS = str.maketrans(dict.fromkeys("零〇一二两三四五六七八九十", "0"))
_DIGITS = lazy_pattern(r"\d+")
# What people put around a question. Taken out before comparing, so that a greeting does not hide a copy.
_POLITE = lazy_pattern(
    r"\b(?:hello|hi|hey|dear|good (?:morning|afternoon|evening)|greetings|doctor|dr|sir(?: or madam)?|madam|please|kindly"
    r"|excuse me|tell me"
    r"|thanks?(?: you)?(?: (?:so|very) much)?(?: a lot)?(?: in advance)?(?: for (?:your|the) (?:help|time|answer|reply))?"
    r"|(?:can|could|would) you (?:please |kindly )?(?:tell me|advise|explain|help me)|(?:i|we) (?:would|'d) like to (?:ask|know)"
    r"|i (?:want|wanted) to ask|(?:best|kind|many) regards|any advice is appreciated)\b"
    r"|(?:医生|大夫|专家|老师)?(?:您好|你好)(?:医生|大夫|专家|老师)?|尊敬的|医生|大夫|请问(?:一下)?|打扰(?:一下|了)?|麻烦(?:您|你)?(?:解答)?(?:一下)?"
    r"|我?想(?:要)?(?:请教|咨询|请问|问问|问)(?:一下|您|你|个问题|一个问题)*|(?:非常|十分|万分|多谢|谢谢|感谢)*(?:谢谢|感谢|多谢)(?:您|你|医生|大夫)?(?:的(?:回答|解答|回复|帮助))?"
    r"|(?:期待|等待|盼)(?:您|你)?的?(?:回复|回答|解答)|在线等"
)

_LETTERS = lazy_pattern(r"[^\W\d_]+")

_MIX = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xC2B2AE3D27D4EB4F)


def tokens(text: str) -> list[str]:
    """Words and single Chinese characters, folded."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def question_features(text: str) -> Hashes:
    """Single tokens (even hashes) and pairs of neighbours (odd ones), each once, sorted. Polite phrases are left out.

    All numbers, in digits or Chinese numerals, count as one and the same token.
    """
    return question_marks(text)[1]


def question_marks(text: str) -> tuple[int, Hashes]:
    """64 bits of a question's letters alone (no spaces, punctuation, numbers, case, polite phrases), and its features."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    bare = _POLITE.sub(" ", folded)
    words = _TOKEN.findall(_DIGITS.sub("0", bare.translate(_NUMERALS))) or _TOKEN.findall(folded)
    words = words or [folded]  # signs alone, "??": one word that is like no other
    ids = _ids(words)
    single = _squeeze(ids) & np.uint32(0xFFFFFFFE)
    pairs = _squeeze(ids[:-1] * _STEP + ids[1:]) | np.uint32(1)
    letters = "".join(_LETTERS.findall(bare)) or folded
    return _key(letters), np.asarray(np.unique(np.concatenate((single, pairs))))


def text_shingles(text: str) -> Hashes:
    """Runs of three tokens, each once, sorted; a shorter text is one shingle or two."""
    return text_marks(text)[1]


def text_marks(text: str) -> tuple[int, Hashes]:
    """64 bits that say whether two texts have the same letters and digits, and the shingles that say how like they are."""
    words = tokens(text)
    ids = _ids(words)
    runs = ids if len(ids) < 3 else (ids[:-2] * _STEP + ids[1:-1]) * _STEP + ids[2:]
    return _key("".join(words)), np.unique(_squeeze(runs))


def jaccard(a: Hashes, b: Hashes) -> float:
    """Shared over all; both sorted and without repeats."""
    shared = len(np.intersect1d(a, b, assume_unique=True))
    return shared / (len(a) + len(b) - shared) if len(a) or len(b) else 1.0


def is_single(features: Hashes) -> NDArray[np.bool_]:
    """Which question features are single tokens, not pairs."""
    return np.asarray((features & np.uint32(1)) == 0)


def _key(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _ids(words: list[str]) -> NDArray[np.uint64]:
    return np.fromiter(map(_token_id, words), dtype=np.uint64, count=len(words))


@lru_cache(maxsize=2**16)
def _token_id(word: str) -> int:
    raw = word.encode()
    return zlib.crc32(raw) << 32 | zlib.crc32(raw, 0x9E3779B9)


def _squeeze(values: NDArray[np.uint64]) -> Hashes:
    """64 bits to well-mixed 32; numpy arrays wrap around silently, which is the arithmetic wanted here."""
    mixed = values * _MIX
    mixed ^= mixed >> np.uint64(29)
    return (mixed * _STEP >> np.uint64(32)).astype(np.uint32)
