"""A text as words: Latin words and single Chinese characters both count as one, so that one measure serves both languages."""

from collections.abc import Iterator, Sequence
from typing import Final

from medloop.patterns import lazy_pattern

Words = tuple[str, ...]
_LATIN: Final = lazy_pattern(r"[a-z0-9]+(?:'[a-z]+)?")
_RUN: Final = lazy_pattern(
    rf"[\u3400-\u9fff]+|{_LATIN.pattern}"
)  # Chinese characters in a row are taken apart later, which is faster
_HAN: Final = "\u3400"


def split_words(text: str) -> Words:
    """The words of a text, lower case."""
    text = text.lower().lstrip()  # text that was blanked out leaves many blanks before the first word
    if text.isascii():
        return tuple(_LATIN.findall(text))
    words: list[str] = []
    for run in _RUN.findall(text):
        if run >= _HAN:
            words.extend(run)
        else:
            words.append(run)
    return tuple(words)


def ngrams(words: Sequence[str], size: int) -> Iterator[Words]:
    """Every `size` words in a row."""
    return zip(*[words[start:] for start in range(size)], strict=False)
