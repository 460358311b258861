"""What training does to texts: their length, how much they repeat, and how much of them is stock text for any question.

All functions are pure and linear in the length of the texts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from medloop.lexicon.words import Words, ngrams, split_words

PHRASE = 5  # words
MIN_QUESTIONS = 3  # a phrase in answers to fewer questions is not stock text


def distinct(text: Words, size: int) -> float | None:
    """distinct-n: different n-grams as a share of all; None for a text too short to have one."""
    grams = list(ngrams(text, size))
    return len(set(grams)) / len(grams) if grams else None


def repeated(text: Words, size: int = 4) -> float:
    """The share of 4-grams that came before in the text; 0 for a short text."""
    share = distinct(text, size)
    return 0.0 if share is None else 1 - share


def stock_shares(answers: Sequence[tuple[str, Words]], habit: float) -> list[float]:
    """For each (question, answer): how much of the answer is also said to many other questions, 0-1.

    A phrase is stock text when it is in answers to at least a share `habit` of the questions, and to at least three. Words quoted
    from the question do not count: a fixed text with the question put in front is still all stock.
    """
    own = [_own_phrases(question, text) for question, text in answers]
    by_question: dict[str, set[Words]] = {}
    for (question, _), phrases in zip(answers, own, strict=True):
        by_question.setdefault(question, set()).update(phrases)
    counts = Counter(phrase for phrases in by_question.values() for phrase in phrases)
    bound = max(MIN_QUESTIONS, habit * len(by_question))
    stock = {phrase for phrase, count in counts.items() if count >= bound}
    return [len(phrases & stock) / len(phrases) if phrases else 0.0 for phrases in own]


def _own_phrases(question: str, text: Words) -> set[Words]:
    """The phrases of an answer that are not in its question; a text shorter than a phrase is one phrase."""
    return (set(ngrams(text, PHRASE)) or ({text} if text else set())) - set(ngrams(split_words(question), PHRASE))


def mean_of(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
