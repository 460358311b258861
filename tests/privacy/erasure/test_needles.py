"""A person's words, found however they are written down, and nobody else's."""

from __future__ import annotations

import html
import json

import pytest

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
