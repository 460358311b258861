"""The pattern language and the matcher, apart from any medical list."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medloop import lexicon
from medloop.lexicon.match import GAP, NEAR, Matcher, parse_pattern
from medloop.lexicon.scan import MAX_SPANS, fold


def matches(pattern: str, text: str, **words: str) -> list[str]:
    matcher = Matcher([parse_pattern("k", "x", pattern, words)])
    return [text[match.start : match.end] for match in matcher.find(fold(text))]


def test_alternatives_optional_parts_and_word_lists_expand() -> None:
    pattern = parse_pattern("k", "x", "{who} [very] (sick|ill)", {"who": "i am|he is"})
    assert pattern.parts == (frozenset({"i am sick", "i am very sick", "i am ill", "i am very ill"} | {
        "he is sick", "he is very sick", "he is ill", "he is very ill"}),)  # fmt: skip


@pytest.mark.parametrize("text", ["chest pain", "Chest-Pain", "CHEST \n pain", "ｃｈｅｓｔ　ｐａｉｎ"])
def test_case_width_hyphens_and_white_space_do_not_matter(text: str) -> None:
    assert matches("chest pain", text) == [text]


def test_english_needs_whole_words_and_chinese_does_not() -> None:
    assert matches("ill", "I am still chilled") == []
    assert matches("胸痛", "我胸痛了") == ["胸痛"]


def test_apostrophes_may_be_left_out() -> None:
    assert matches("can't breathe", "i cant breathe") == ["cant breathe"]


def test_ordered_parts_stay_in_one_sentence_and_within_the_gap() -> None:
    assert matches("arm ~ numb", "my arm is numb") == ["arm is numb"]
    assert matches("arm ~ numb", "numb is my arm") == []
    assert matches("arm ~ numb", "look at my arm. It is numb") == []
    assert matches("arm ~ numb", "arm" + " " * (GAP + 1) + "numb") == []
    assert matches("arm ~3 numb", "arm is so numb") == []


def test_near_parts_come_in_any_order_and_cross_sentences_within_reach() -> None:
    assert matches("fever & rash", "a rash. And fever") == ["rash. And fever"]
    assert matches("fever & rash", "fever" + "." * (NEAR + 1) + "rash") == []


@pytest.mark.parametrize("broken", ["(a", "a)", "a ~ b & c", "[a]", "a*", "x{2}", "("])
def test_a_malformed_pattern_is_refused_with_the_id_of_its_entry(broken: str) -> None:
    with pytest.raises(ValueError, match=r"^entry: "):
        parse_pattern("k", "entry", broken, {})


def test_repeated_words_are_counted_up_to_a_limit() -> None:
    assert len(matches("pain", "pain " * 500)) == MAX_SPANS


@settings(deadline=None)  # the first call reads the lists
@given(st.text(max_size=300))
def test_any_text_is_read_and_every_mention_is_in_its_place(text: str) -> None:
    finders = (lexicon.find_red_flags, lexicon.find_urgent_advice, lexicon.find_medication, lexicon.find_groups)
    for find in finders:
        mentions = find(text)
        assert list(mentions) == sorted(mentions, key=lambda m: (m.start, m.end))
        assert all(m.text == text[m.start : m.end] and m.start < m.end for m in mentions)


@given(
    st.lists(
        st.sampled_from(["crushing chest pain", "no", "胸痛", "没有", "但是", "but", ",", "。", "call 911", "布洛芬", "400 mg"])
    )
)
def test_mixed_medical_words_never_break_the_reader(parts: list[str]) -> None:
    text = " ".join(parts)
    assert all(m.text == text[m.start : m.end] for m in (*lexicon.find_red_flags(text), *lexicon.find_medication(text)))
