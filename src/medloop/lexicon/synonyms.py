"""Lay and medical words for the same thing (`synonyms.yaml`): "tummy" and "abdominal" both stand for the concept `#abdomen`."""

from collections.abc import Set
from functools import cache
from typing import Final

from medloop.lexicon.load import read_list

STEM: Final = 6  # letters of an English word that count


def concepts(content: Set[str]) -> set[str]:
    """The concepts of stems and pairs of characters."""
    known = _known()
    return {known[word] for word in known.keys() & content}


@cache
def _known() -> dict[str, str]:
    table = read_list("synonyms.yaml")["concepts"]
    return {word[:STEM]: f"#{name}" for name, words in table.items() for word in words.split()}
