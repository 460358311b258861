"""Texts of one or two signs that repeat: the scrubber reads them in time that grows with their length, not with its square."""

import time

import pytest

from medloop.privacy.phi import disguised
from medloop.privacy.phi.chinese import names
from medloop.privacy.phi.scrub import Scrubber, assess

TOO_LONG = "a text that takes too long to scan"
UNITS = ["1", "张", "a@", "a", "A", "O", "@", "a-", "A-", "一", "的", " ", "\n", ".", "-", "a.", "1 ", "1-", "1.", "1a"]
UNITS += ["A ", "张.", "张 ", "张1", "张a", "(", "'", "a'", "[", "=", "“", "O1", "_", "a_", "路", "1号", "mr", "叫", "w", "é"]


@pytest.mark.parametrize("unit", ["1", "@", "1a"])
def test_signs_of_a_disguise_are_looked_for_in_linear_time(unit: str) -> None:
    text = (unit * 40_000)[:40_000]
    disguised.may_hide(text[:100])  # compiles
    started = time.thread_time()
    disguised.may_hide(text)
    assert time.thread_time() - started < 4  # a square took 6 to 9 s of processor time, and this takes 0.1 s


def test_a_long_span_is_looked_up_only_as_far_as_words_reach() -> None:
    class Counted(str):
        slices = 0

        def __getitem__(self, key: object) -> str:
            Counted.slices += 1
            return super().__getitem__(key)  # type: ignore[index]

    names._is_everyday(Counted("张" * 5_000), 0, 5_000)
    assert Counted.slices < 20


def test_a_run_of_digits_without_an_end_is_held_after_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []

    def replace(_scrubber: Scrubber, text: str, _spans: object) -> str:
        rounds.append(1)
        return text

    monkeypatch.setattr(Scrubber, "_replace", replace)
    for size in (501, 5_000):
        result = assess("编号" + "1" * size)
        assert result.quarantined
        assert result.cleaned == ""
    assert not rounds


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_two_hundred_thousand_bytes_of_one_sign(unit: str) -> None:
    count = 200_000 // len(unit.encode())
    started = time.thread_time()
    result = assess(unit * count)
    assert TOO_LONG not in result.reasons
    assert time.thread_time() - started < 20  # generous: 3 s or less on a free machine


def test_an_account_counts_only_before_a_chinese_character_of_its_line() -> None:
    assert disguised._has_account("我的号 lin_xia.88 哦")
    assert disguised._has_account("first line\nlin_xia.88哦")
    assert not disguised._has_account("我的号\nlin_xia.88\n哦")
    assert not disguised._has_account("我的号 lin_xia.88")
