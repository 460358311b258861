"""Every row in the tables of the finders is proved by its own example: the part in braces is what the row speaks of."""

import re
from typing import Any

import pytest

from medloop.privacy.phi import foreign_ids, term_names
from medloop.privacy.phi.chinese import placed_names as chinese_placed
from medloop.privacy.phi.chinese import places as chinese_places
from medloop.privacy.phi.chinese import slots, unusual
from medloop.privacy.phi.chinese import titled_names as chinese_titles
from medloop.privacy.phi.chinese.names import SITUATIONS, NameCandidate, Situation, situation_of
from medloop.privacy.phi.disguised import DISGUISES, Disguise
from medloop.privacy.phi.english import places as english_places
from medloop.privacy.phi.english import tagger
from medloop.privacy.phi.english import titled_names as english_titles
from medloop.privacy.phi.english import unusual as english_unusual
from medloop.privacy.phi.english.candidates import RULES, CandidateRule, PhiCandidate, deciding_rule
from medloop.privacy.phi.english.name_words import WORD_RULES, WordRule, rule_for
from medloop.privacy.phi.find import find
from medloop.privacy.phi.foreign_ids import FOREIGN_IDS, ForeignId
from medloop.privacy.phi.normalize import fold
from medloop.privacy.phi.numbers import NUMBER_KINDS, NumberKind, find_numbers
from medloop.privacy.phi.patterns import PATTERNS, find_patterns
from medloop.privacy.phi.patterns.left_over import LEFT_OVER, LeftOver, is_left_over
from medloop.privacy.phi.patterns.pattern import PhiPattern
from medloop.privacy.phi.rules import Finder
from medloop.privacy.phi.scrub import assess

FINDERS = (
    *english_titles.LABELLED,
    *english_titles.WITH_CAPITALS,
    *english_unusual.FINDERS,
    *english_places.FINDERS,
    *chinese_titles.FINDERS,
    *slots.FINDERS,
    *unusual.FINDERS,
    *chinese_placed.FINDERS,
    *chinese_places.FINDERS,
    *term_names.FINDERS,
)


def marked(example: str) -> tuple[str, int, int]:
    """The text of an example without its braces, and the offsets of what they enclose."""
    before, inside, after = re.split("[{}]", example)
    return fold(before + inside + after), len(before), len(before) + len(inside)


def named(row: Any) -> str:
    return str(getattr(row, "name", row[0]))


@pytest.mark.parametrize("pattern", PATTERNS, ids=named)
def test_a_pattern_matches_its_example(pattern: PhiPattern) -> None:
    text, start, end = marked(pattern.example)
    assert (start, end) in [match.span(pattern.group) for match in pattern.regex.finditer(text)]
    assert (start, end, pattern.kind) in find_patterns(text, sum(char.isdigit() for char in text))


@pytest.mark.parametrize("number", NUMBER_KINDS, ids=named)
def test_a_number_is_of_its_kind(number: NumberKind) -> None:
    text, start, end = marked(number.example)
    assert number.is_valid(re.sub(r"\W", "", text[start:end]))
    assert list(find_numbers(text)) == [(start, end, number.kind)]


@pytest.mark.parametrize("row", FOREIGN_IDS, ids=named)
def test_a_foreign_id_is_found(row: ForeignId) -> None:
    text, start, end = marked(row.example)
    assert (start, end, "RECORD") in foreign_ids.find(text, sum(char.isdigit() for char in text))


@pytest.mark.parametrize("row", DISGUISES, ids=named)
def test_a_disguise_is_seen_and_the_text_held(row: Disguise) -> None:
    assert row.may_hide(row.example)
    assessment = assess(row.example)
    assert assessment.quarantined or assessment.spans


@pytest.mark.parametrize("form", LEFT_OVER, ids=named)
def test_what_is_left_over_is_refused(form: LeftOver) -> None:
    assert is_left_over(form.example)
    assert [other for other in LEFT_OVER if other.may_match(form.example) and other.regex.search(form.example)] == [form]


@pytest.mark.parametrize("finder", FINDERS, ids=named)
def test_a_finder_finds_its_examples(finder: Finder) -> None:
    for example in finder.examples:
        text, start, end = marked(example)
        assert (start, end) in list(finder.find(text))
        assert any(span.start <= start and end <= span.end for span in find(text))


@pytest.mark.parametrize("rule", WORD_RULES, ids=named)
def test_a_rule_for_words_decides_its_example(rule: WordRule) -> None:
    assert rule in (rule_for(rule.example, expected=True), rule_for(rule.example, expected=False))


@pytest.mark.parametrize("rule", RULES, ids=named)
def test_a_rule_for_candidates_decides_its_example(rule: CandidateRule) -> None:
    text, start, end = marked(rule.example)
    tokens = tagger.tokens(text)
    inside = [index for index, token in enumerate(tokens) if start <= token.start and token.end <= end]
    medical = tagger.text_type(token.word for token in tokens)[1] != "0"
    kinds = [PhiCandidate(tokens, inside[0], inside[-1], kind, medical, not text.islower()) for kind in ("NAME", "PLACE", "ORG")]
    assert rule in [deciding_rule(candidate) for candidate in kinds]


@pytest.mark.parametrize("situation", SITUATIONS, ids=named)
def test_a_situation_of_a_chinese_name_is_that_of_its_example(situation: Situation) -> None:
    assert situation_of(NameCandidate(*marked(situation.example))) == situation


@pytest.mark.parametrize("table", [PATTERNS, LEFT_OVER, FINDERS, WORD_RULES, RULES, SITUATIONS, FOREIGN_IDS, DISGUISES])
def test_the_rows_of_a_table_have_different_names(table: tuple[Any, ...]) -> None:
    names = [(getattr(row, "kind", ""), row.name) for row in table]
    assert len(set(names)) == len(names)
