"""Answers to questions in languages that the word lists do not read (`lexicon/language.py`): compared word by word, no more.

    read_words("Болит горло, что делать?", "Полощите горло тёплой водой.")   -> shared=1

What is left is what needs no list: whether the answer takes up words of the question (the first five letters of longer words, or
pairs of characters where words are not set apart), how many new ones it brings, and whether it copies. What an answer advises,
how urgent the question is and what is dangerous cannot be told; the rules about that are left out (`UNREAD_RULES` in `mix.py`).
"""

from functools import lru_cache
from typing import Final, NamedTuple

from medloop.lexicon.language import is_read, languages
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE

_WORD: Final = lazy_pattern(r"[^\W\d_]+")
_STOP: Final = lazy_pattern(r"[.!?。！？؟।\n]+")
_STEM, _SHORTEST = 5, 4  # letters of a word that count, and that it has at least
_UNSPACED: Final = lazy_pattern(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # words are not set apart
_COPIED: Final = 0.6  # share of the answer that is the question's: of its letters or of its words
_RUN: Final = 3  # words in a row that are a copied passage
WHOLE: Final = 6  # new words of a whole point


class UnreadAnswer(NamedTuple):
    """`shared`: words of the question in the answer. `points`: sentences with new words, six for a whole one.

    `copied`: the answer is hardly more than the question, or has no words at all.
    """

    shared: int
    points: float
    copied: bool


def in_another_language(question: str, visible: str) -> bool:
    """Whether an answer, without what it copies from the question, is certainly in another language than the question."""
    asked_in, answered_in = languages(question), languages(visible)
    if is_read(question) and asked_in & answered_in:
        return False
    answered_in = answered_in if is_read(question) else languages(_own_words(question, visible))
    return bool(asked_in and answered_in) and not asked_in & answered_in


def _own_words(question: str, visible: str) -> str:
    """The answer without passages that are copied from the question, in any script."""
    asked = _WORD.findall(question.lower())
    copied = set(zip(*(asked[n:] for n in range(_RUN)), strict=False))
    matches = list(_WORD.finditer(visible))
    tokens = [match[0].lower() for match in matches]
    text = list(visible)
    for n in range(len(tokens) - _RUN + 1):
        if tuple(tokens[n : n + _RUN]) in copied:
            start, end = matches[n].start(), matches[n + _RUN - 1].end()
            text[start:end] = " " * (end - start)
    return "".join(text)


@lru_cache(maxsize=CACHE_SIZE)
def read_words(question: str, visible: str) -> UnreadAnswer:
    asked = _stems(question)
    own = _own_words(question, visible)
    left = len("".join(own.split())) / max(1, len("".join(visible.split())))
    seen, points, answered = set(asked), 0.0, set[str]()
    for sentence in _STOP.split(own):
        stems = _stems(sentence)
        points += min(len(stems - seen), WHOLE) / WHOLE
        seen |= stems
        answered |= stems
    shared = len(asked & answered)
    return UnreadAnswer(shared, points, left < 1 - _COPIED or shared > _COPIED * len(answered) or not answered)


def _stems(text: str) -> set[str]:
    stems: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if _UNSPACED.match(word):
            stems.update(word[n : n + 2] for n in range(len(word) - 1))
        elif len(word) >= _SHORTEST:
            stems.add(word[:_STEM])
    return stems
