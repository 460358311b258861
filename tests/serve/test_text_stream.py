"""Tokens to text while they come."""

from __future__ import annotations

import random

import pytest

from medloop.serve.server.text_stream import StopFilter, TextStream
from medloop.testing.models import tiny_tokenizer


@pytest.mark.parametrize("seed", range(6))
def test_the_pieces_are_the_text_of_all_tokens(seed: int) -> None:
    tokenizer, dice = tiny_tokenizer(), random.Random(seed)
    texts = ["头痛两天了，怎么办？", "plain text ", "naïve 🩺 ", "\n\n"]
    tokens = [token for _ in range(20) for token in tokenizer(dice.choice(texts))["input_ids"]]
    for _ in range(seed * 20):  # bytes that are no characters
        tokens.insert(dice.randrange(len(tokens)), dice.randrange(128, 256))

    def decode(ids: list[int]) -> str:
        return str(tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=True))

    stream = TextStream(decode)
    pieces = [stream.add(token) for token in tokens]
    assert "".join(pieces) + stream.end() == decode(tokens)
    if seed == 0:
        assert not any("\ufffd" in piece for piece in pieces)


def test_endless_half_characters_stay_cheap() -> None:
    tokenizer = tiny_tokenizer()
    longest = 0

    def decode(ids: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return str(tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=True))

    half = tokenizer("é")["input_ids"][0]
    stream = TextStream(decode)
    text = "".join(stream.add(half) for _ in range(500)) + stream.end()
    assert text == "\ufffd" * 500 and longest < 300


@pytest.mark.parametrize(
    "pieces", [["ab", "cSTO", "Pd"], ["abcSTOPd"], ["a", "b", "c", "S", "T", "O", "P", "d"], ["abcS", "TOP", "d"]]
)
def test_a_stop_string_is_found_across_pieces(pieces: list[str]) -> None:
    stops = StopFilter(["STOP", "STAY"])
    shown, stopped = "", False
    for piece in pieces:
        text, stopped = stops.add(piece)
        shown += text
        if stopped:
            break
    assert (shown, stopped) == ("abc", True)


def test_what_only_looked_like_a_stop_string_is_given_at_the_end() -> None:
    stops = StopFilter(["STOP"])
    assert [stops.add("a ST"), stops.add("ART ST")] == [("a ", False), ("START ", False)]
    assert stops.end() == "ST"
