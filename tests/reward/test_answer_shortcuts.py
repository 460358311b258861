"""Quick looks that spare slow ones must never say something else."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from medloop.reward import answer_text

PIECES = st.lists(st.sampled_from(["chest", "pain", "胸", "痛", "了", "take", "x1", ". ", "，"]), max_size=30)
WORDS = st.builds(str.join, st.sampled_from(["", " "]), PIECES)
TAGGED = st.lists(
    st.sampled_from(["<think>", "</think>", "<THINK>", "<!--", "-->", "<", "胸痛", " ", "\n", "call 911"]), max_size=9
)


@given(TAGGED.map("".join))
@example("<think>a</think>b")
@example("first <think>a</think>b")
@example("</think>a<think>b")
def test_an_answer_is_split_as_the_expressions_say(text: str) -> None:
    hidden = re.compile(r"<think>.*?(?:</think>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL)
    chain = re.match(r"\s*<think>(.*?)</think>", text, re.IGNORECASE | re.DOTALL)
    parts = answer_text.split_answer(text)
    assert parts.visible == hidden.sub(lambda match: " " * len(match[0]), text)
    assert (parts.chain, parts.chain_start) == ((chain[1], chain.start(1)) if chain else (None, 0))


@given(WORDS, WORDS, st.sampled_from([0.5, 0.75, 1.0]))
@example("a b c d", "a b c d", 1.0)
@example("a b c d e f g", "x a b c d e f g", 1.0)
@example("a b c d e f g", "b c d e f g", 0.75)
@example("a b c d e f g", "a b c d e f", 0.75)
def test_what_copies_is_never_passed_over(text: str, source: str, share: float) -> None:
    assert answer_text.is_copied(text, source, share) == (answer_text.copied_share(text, source) >= share)


@given(st.text(st.sampled_from("aZ9' -_é胸痛，.K"), max_size=40))
def test_letters_are_at_least_what_the_bound_says(text: str) -> None:
    assert answer_text.min_letter_count(text) <= answer_text.letter_count(text)


@given(WORDS, WORDS)
@example("headache since today", "HEADACHE")
@example("胸痛了很久，头晕", "痛了很久")  # pairs with a common character do not count
def test_being_on_topic_is_sharing_content(question: str, text: str) -> None:
    words = answer_text.content_words(question)
    assert answer_text.is_on_topic(question, text) == (
        len(words & answer_text.content_words(text)) >= min(2, max(1, len(words) // 2))
    )
