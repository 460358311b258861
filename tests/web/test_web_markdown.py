"""Answers as HTML: no tag and no attribute of the model's making, and no word of it lost."""

import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xss import PAYLOADS

from medloop.web.markdown import TAGS, render_markdown, split_reasoning

PIECES = ["1. ", "- ", "> ", "# ", "**", "_", "`", "```", "|", "|-|-|", "\n", "\n\n", "    ", "[a](b)", "![a](b)", "<b>", "&lt;", "\\", "5 mg", "阿司匹林", "word "]  # fmt: skip


def is_safe(html: str) -> bool:
    tags = re.findall(r"<(/?)([a-z0-9]+)([^>]*)>", html)
    return html.count("<") == len(tags) and all(
        name in TAGS and re.fullmatch(r'( start="\d+"| /)?', rest) for _, name, rest in tags
    )


def letters(text: str) -> list[str]:
    return sorted(letter for letter in text if letter.isalpha())


@pytest.mark.parametrize(
    "text", [*PAYLOADS, "\n".join(PAYLOADS), "[x](javascript:hit)", "![x](//evil/x.png)", "```js onload=hit\nx\n```"]
)
def test_hostile_answers_become_text(text):
    assert is_safe(render_markdown(text))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_no_word_of_an_answer_is_lost(text):
    html = render_markdown(text)
    assert is_safe(html) and letters(unescape(re.sub(r"<[^>]+>", "", html))) == letters(text)


@pytest.mark.parametrize("text", ["> " * 30 + "take 500 mg", "|a|b|\n|-|-|\n|1|2|take 500 mg|", "```take 500 mg\nx\n```"])
def test_what_markdown_would_hide_is_shown(text):
    assert "take 500 mg" in re.sub(r"<[^>]+>", "", render_markdown(text))


def test_reasoning_is_apart_and_an_open_one_goes_to_the_end():
    assert split_reasoning("<think>a</think> Answer. <THINK>b</THINK>") == split_reasoning("<think>a\n\nb</think>Answer.")
    assert split_reasoning("Hello <think>never closed").text == "Hello"
