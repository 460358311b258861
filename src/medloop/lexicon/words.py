"""A text as words: Latin words and single Chinese characters both count as one, so that one measure serves both languages."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

Words = tuple[str, ...]
_WORD: Final = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[\u3400-\u9fff]")


def split_words(text: str) -> Words:
    """The words of a text, lower case."""
    return tuple(_WORD.findall(text.lower().lstrip()))  # text that was blanked out leaves many blanks before the first word


def ngrams(words: Sequence[str], size: int) -> Iterator[Words]:
    """Every `size` words in a row."""
    return zip(*[words[start:] for start in range(size)], strict=False)
