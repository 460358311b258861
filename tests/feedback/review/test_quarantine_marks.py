"""Where the doubt is: found by trying, on a scrubber of which the test knows what it doubts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest

from medloop.feedback.review import quarantine_marks
from medloop.privacy.phi.scrub import Assessment
from medloop.privacy.phi.spans import PhiSpan


@pytest.fixture
def doubting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], bool]], None]:
    """A scrubber that takes out `PHONE` and doubts what the test says."""

    def put(doubts: Callable[[str], bool]) -> None:
        def assess(text: str) -> Assessment:
            start = text.find("13800138000")
            spans = (PhiSpan(start, start + 11, "PHONE"),) if start >= 0 else ()
            return Assessment(text, spans, 1.0 if doubts(text) else 0.0, ("a name",) if doubts(text) else ())

        monkeypatch.setattr(quarantine_marks, "assess", assess)
        monkeypatch.setattr(quarantine_marks, "Scrubber", lambda: type("Fake", (), {"assess": staticmethod(assess)}))

    return put


def marked(text: str, what: str = "doubt") -> list[str]:
    (marks,) = quarantine_marks.marks([text])
    assert all(before.end <= after.start for before, after in itertools.pairwise(marks))
    return [text[mark.start : mark.end] for mark in marks if mark.what == what]


def test_the_word_that_is_doubted_is_marked_and_no_other(doubting) -> None:
    doubting(lambda text: "zorblax" in text)
    assert marked("Call 13800138000 now. My uncle zorblax coughs, and I do not.") == ["zorblax"]
    assert marked("Call 13800138000 now. My uncle zorblax coughs.", "taken_out") == ["13800138000"]


def test_two_words_that_are_doubted_are_both_marked(doubting) -> None:
    doubting(lambda text: "zorblax" in text or "quimby" in text)
    assert marked("uncle zorblax and his wife quimby cough") == ["zorblax", "quimby"]


def test_a_word_that_only_matters_beside_a_placeholder_is_not_the_place(doubting) -> None:
    doubting(lambda text: "zorblax" in text and not text.startswith("[NAME_9]"))
    assert marked("considerations for zorblax at home") == ["zorblax"]


def test_of_several_the_longest_word_is_the_place(doubting) -> None:
    doubting(lambda text: "uncle zorblax" in text)
    assert marked("my uncle zorblax coughs") == ["zorblax"]


def test_chinese_signs_that_make_a_name_together_are_one_place(doubting) -> None:
    doubting(lambda text: "安可心" in text)
    assert marked("邻居安可心让我试试") == ["安可心"]


def test_a_doubt_about_no_clause_alone_is_put_where_it_goes_away(doubting) -> None:
    doubting(lambda text: "zorblax" in text and "seven" in text)
    assert marked("He is zorblax. She is seven. Both cough.") == ["He is zorblax", "She is seven"]


def test_a_clause_too_long_to_try_is_marked_whole(doubting) -> None:
    doubting(lambda text: "zorblax" in text)
    long = "word " * 100 + "zorblax"
    assert marked(f"Short. {long}. Short.") == [long]


def test_a_text_without_doubt_has_none(doubting) -> None:
    doubting(lambda text: False)
    assert marked("Nothing here, call 13800138000.") == []


def test_a_text_that_is_held_at_the_very_bound_has_a_reason_too(doubting, monkeypatch: pytest.MonkeyPatch) -> None:
    doubting(lambda text: "zorblax" in text)
    doubted = quarantine_marks.assess
    monkeypatch.setattr(quarantine_marks, "assess", lambda text: dataclasses.replace(doubted(text), reasons=()))
    (marks,) = quarantine_marks.marks(["uncle zorblax coughs"])
    assert [mark.why for mark in marks] == [quarantine_marks.UNSURE]


def test_a_record_of_many_doubts_is_tried_only_so_often_and_the_rest_is_marked_whole(doubting, monkeypatch) -> None:
    doubting(lambda text: "zorblax" in text)
    doubted, tried = quarantine_marks.assess, []
    monkeypatch.setattr(quarantine_marks, "assess", lambda text: tried.append(text) or doubted(text))
    clause = "my old and rather tired uncle zorblax coughs all night and cannot sleep at all"
    texts = [f"{clause}. " * 12] * 20
    marked_texts = quarantine_marks.marks(texts)
    assert len(tried) <= quarantine_marks.MAX_TRIES + 20 * 12 and all(len(marks) == 12 for marks in marked_texts)
    assert {texts[0][mark.start : mark.end] for mark in marked_texts[0][:3]} == {"zorblax"}
    assert {texts[-1][mark.start : mark.end] for mark in marked_texts[-1]} == {clause}


def test_when_the_time_of_a_record_is_over_what_is_left_is_marked_whole(doubting, monkeypatch) -> None:
    doubting(lambda text: "zorblax" in text)
    monkeypatch.setattr(quarantine_marks, "MAX_SECONDS", -1.0)
    assert marked("Short. My uncle zorblax coughs. End") == ["Short. My uncle zorblax coughs. End"]
