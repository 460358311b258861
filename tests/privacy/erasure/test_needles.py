"""A person's words, found however they are written down, and nobody else's."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

import medloop
from medloop.privacy.erasure.needles import ErasedText, Needles, codes

ENGLISH = 'He said "never again" <loudly> & left\nafter my left shoulder began to burn like a wet rope in winter.'
CHINESE = "我从去年冬天开始左边肩膀像湿绳子一样疼，晚上睡不着觉，请问该看哪个科室？"


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh"])
@pytest.mark.parametrize(
    "write",
    [
        str.encode,
        lambda text: text.encode("utf-16-le"),
        lambda text: text.encode("utf-16-be"),
        lambda text: text.encode("gb18030"),
        lambda text: json.dumps(text).encode(),
        lambda text: json.dumps(text, ensure_ascii=False).encode(),
        lambda text: json.dumps(json.dumps(text)).encode(),
        lambda text: html.escape(text).encode(),
        lambda text: text.replace('"', '""').encode(),
        lambda text: " ".join(text.split()).encode(),
    ],
    ids=["utf-8", "utf-16-le", "utf-16-be", "gb18030", "json", "json-unicode", "json-twice", "html", "csv", "one-line"],
)
def test_every_way_of_writing_is_found_whole(text: str, write) -> None:
    data = write(text)
    (start, end) = Needles([ErasedText(text, True)]).spans(b"before>" + data + b"<after")[0]
    assert end - start >= len(data) - 6  # the quotes around a JSON string, twice escaped, are not theirs


def test_a_long_piece_of_a_person_counts_and_a_short_one_does_not() -> None:
    needles = Needles([ErasedText(ENGLISH, True)])
    assert (
        needles.hit(ENGLISH[-70:].encode()) and not needles.hit(ENGLISH[-40:].encode()) and not needles.hit(b"my left shoulder")
    )


def test_a_models_sentence_counts_only_when_most_of_it_is_there() -> None:
    sentence = "Please see a doctor if it does not get better within three days or gets worse. " * 3
    assert not Needles(
        [ErasedText(sentence + "And yours is special: keep the shoulder warm and rest it for a week or two.", False)]
    ).hit(sentence[:79].encode())
    assert Needles([ErasedText(sentence, False)]).hit(sentence.encode())


def test_numbers_count_wherever_they_stand_but_dates_are_everybodys() -> None:
    assert codes("call 138-0013-8000 or mail ann99.x77@clinic.example on 2026-05-03, 5 mg") == {
        "138-0013-8000",
        "13800138000",
        "ann99.x77@clinic.example",
    }
    assert Needles([ErasedText("call 138-0013-8000", True)]).hit(b'{"phone":"13800138000"}')


def test_what_somebody_else_said_too_is_not_looked_for() -> None:
    mine = "The pain in my shoulder began when I carried the sofa up to the fourth floor alone. "
    question = "How much water should I drink on a hot day when I work outside in the garden all day long?"
    left = Needles([ErasedText(mine + question, True)]).without([f"Hello. {question}"])
    assert left.hit(mine.encode()) and not left.hit(question.encode())
    assert not Needles([ErasedText(question, True)]).without([question])


MEDICAL = (
    "500-1000 mg", "100-200mg daily", "0.5-1.25mg", "metformin-1000mg", "1500-2000 ml", "2000-2500kcal", "1000-2000IU", "10.5-12.5 is",
    "L4-L5-S1", "C5-C6-C7 hernia", "BNT162b2", "mRNA-1273", "每次500-1000毫克", "1000-2000 units/day", "10000-15000 steps", "10000000", "12500000 IU", "1.0E+007", "2.3550e07 copies", "5000-10000", "NCT00004992", "1-800-273-8255", "call 800-273-8255", "18002738255",
    "+1-888-346-3656", "1 888 346 3656", "400-161-9995", "08001111111",
)  # fmt: skip


@pytest.mark.parametrize("text", MEDICAL)
def test_doses_lab_values_and_vertebrae_are_no_codes_of_a_person(text: str) -> None:
    """Seen: whoever wrote "500-1000 mg" took with them each row of each dataset that has this dose."""
    assert codes(f"I read {text}") == set() and codes(text) == set()


@pytest.mark.parametrize(
    "code",
    [
        "555-1234",
        "5551-2345",
        "10.20.30.144",
        "A1B2C3D4",
        "maria1987",
        "S1-0815-L4",
        "L4-0815",
        "1234-5678",
        "8442345678",
        "12345678H",
        "1234567m",
        "X1234567L",
        "QQ123456C",
        "anna2000g",
        "john1990m",
        "4001619995",
        "12345678E12",
        "500-1000mg@clinic.example",
    ],
)
def test_what_only_looks_like_an_amount_is_still_a_code(code: str) -> None:
    assert code in codes(f"it is {code}") or len(code) < 8


@pytest.mark.parametrize("prefix", ["patient", "mrn", "visit"])
@pytest.mark.parametrize("number", ["0b1f5a2e-77aa-7d31-9c55-0f6b9d2c1a44", "5d41402abc4b2a76b9719d911017c592"])
def test_an_id_that_somebody_else_gave_is_a_code_and_ours_is_none(prefix: str, number: str) -> None:
    assert Needles([ErasedText(f"{prefix}_{number}", True)]).hit(f'{{"id": "{prefix}_{number}"}}'.encode())
    assert not Needles([ErasedText("rule_0b1f5a2e-77aa-7d31-9c55-0f6b9d2c1a44", True)]).codes


def test_every_prefix_of_our_ids_is_known() -> None:
    """A new kind of record with another prefix would make its ids somebody's codes."""
    source = Path(medloop.__file__).parent
    prefixes = {
        match[1]
        for file in source.rglob("*.py")
        for match in re.finditer(r'f"([a-z]+)_\{uuid7\(\)\}"', file.read_text(encoding="utf-8"))
    }
    assert {"fb", "rule", "case", "cor"} <= prefixes
    for prefix in prefixes:
        assert codes(f"{prefix}_0b1f5a2e-77aa-7d31-9c55-0f6b9d2c1a44") == set(), prefix
