"""Every situation in the tables of the finders is recognised by its own rule: the part of the example in braces is removed."""

import re

import pytest

from medloop.privacy.phi.normalize import fold
from medloop.privacy.phi.numbers import NUMBER_KINDS, NumberKind, find_numbers
from medloop.privacy.phi.patterns import PATTERNS, find_patterns
from medloop.privacy.phi.patterns.left_over import LEFT_OVER, LeftOver, is_left_over
from medloop.privacy.phi.patterns.pattern import PhiPattern


def marked(example: str) -> tuple[str, int, int]:
    """The text of an example without its braces, and the offsets of what they enclose."""
    before, inside, after = re.split("[{}]", example)
    return fold(before + inside + after), len(before), len(before) + len(inside)


def named(rule: PhiPattern | NumberKind | LeftOver) -> str:
    return getattr(rule, "name", rule[0])


@pytest.mark.parametrize("pattern", PATTERNS, ids=named)
def test_a_pattern_matches_its_example(pattern: PhiPattern) -> None:
    text, start, end = marked(pattern.example)
    assert (start, end) in [match.span(pattern.group) for match in pattern.regex.finditer(text)]
    assert (start, end, pattern.kind) in find_patterns(text, sum(char.isdigit() for char in text))


def test_patterns_have_names_of_their_own() -> None:
    names = [(pattern.kind, pattern.name) for pattern in PATTERNS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("number", NUMBER_KINDS, ids=named)
def test_a_number_is_of_its_kind(number: NumberKind) -> None:
    text, start, end = marked(number.example)
    assert number.is_valid(re.sub(r"\W", "", text[start:end]))
    assert list(find_numbers(text)) == [(start, end, number.kind)]


@pytest.mark.parametrize("form", LEFT_OVER, ids=named)
def test_what_is_left_over_is_refused(form: LeftOver) -> None:
    assert form.regex.search(form.example) and is_left_over(form.example)
    assert [other.name for other in LEFT_OVER if other.may_match(form.example) and other.regex.search(form.example)] == [
        form.name
    ]
