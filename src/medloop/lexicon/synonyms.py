"""Lay and medical words for the same thing (`synonyms.yaml`): "tummy" and "abdominal" both stand for the concept `#abdomen`.

Concepts that belong together share a system: `#abdomen` and `#diarrhea` are of the digestion.
"""

from collections.abc import Set
from functools import cache
from typing import Final

from medloop.lexicon.load import read_list

STEM: Final = 6  # letters of an English word that count


def concepts(content: Set[str]) -> set[str]:
    """The concepts of stems and pairs of characters."""
    known = _known()
    return {known[word] for word in known.keys() & content}


def systems(concepts: Set[str]) -> set[str]:
    """The parts of medicine that concepts belong to: `#diarrhea` to digestion."""
    table = _systems()
    return set().union(*(table.get(concept, ()) for concept in concepts))


@cache
def _systems() -> dict[str, frozenset[str]]:
    members = {
        name: {f"#{concept}" for concept in names.split()} for name, names in read_list("synonyms.yaml")["systems"].items()
    }
    return {
        concept: frozenset(name for name in members if concept in members[name]) for concept in set().union(*members.values())
    }


@cache
def _known() -> dict[str, str]:
    table = read_list("synonyms.yaml")["concepts"]
    return {word[:STEM]: f"#{name}" for name, words in table.items() for word in words.split()}
