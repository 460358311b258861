"""Whatever surrounds an identifier, it is gone or the text is refused; no text brings the scrubber down."""

import re
from datetime import date

from hypothesis import given, settings
from hypothesis import strategies as st

from medloop.privacy.phi.find import find
from medloop.privacy.phi.normalize import fold, remove_invisible
from medloop.privacy.phi.numbers import luhn
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable, assess

WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
AROUND = st.text(max_size=20).filter(lambda text: not re.search(r"\d", fold(text)))


@st.composite
def resident_ids(draw: st.DrawFn) -> str:
    region = draw(st.sampled_from(["110105", "310104", "440103", "650102"]))
    day = draw(st.dates(min_value=date(1930, 1, 1), max_value=date(2020, 1, 1)))
    body = f"{region}{day:%Y%m%d}{draw(st.integers(0, 999)):03d}"
    return body + "10X98765432"[sum(int(d) * w for d, w in zip(body, WEIGHTS, strict=True)) % 11]


@st.composite
def cards(draw: st.DrawFn) -> str:
    body = draw(st.sampled_from(["622202", "453912", "540735"])) + f"{draw(st.integers(0, 10**12 - 1)):012d}"
    return next(body + digit for digit in "0123456789" if luhn(body + digit))


MOBILES = st.from_regex(r"1[3-9][0-9]{9}", fullmatch=True)


@st.composite
def written(draw: st.DrawFn, numbers: st.SearchStrategy[str]) -> tuple[str, str]:
    """A number and one way to write it: wide digits, gaps, characters that take no room."""
    number = draw(numbers)
    gap = draw(st.sampled_from(["", " ", "-", "\u200b", "\u2060", " \u200b", "\u00ad-", "\u3000", "–"]))
    size = draw(st.integers(3, 6))
    text = gap.join(number[i : i + size] for i in range(0, len(number), size))
    if draw(st.booleans()):
        text = "".join(chr(ord(c) + 0xFEE0) if c.isascii() and c.isdigit() else c for c in text)
    return number, text


def digits_left(text: str) -> str:
    try:
        cleaned = Scrubber().scrub(text)
    except Unscrubbable:
        return ""
    return re.sub(r"[^0-9X]", "", re.sub(r"\[[A-Z]+_\d+\]", "|", fold(remove_invisible(cleaned)[0])))


@settings(max_examples=60, deadline=None)
@given(written(st.one_of(resident_ids(), MOBILES, cards())), AROUND, AROUND)
def test_a_planted_number_is_gone_whatever_surrounds_it(planted: tuple[str, str], before: str, after: str) -> None:
    number, text = planted
    assert number not in digits_left(before + text + after)


@settings(max_examples=60, deadline=None)
@given(st.from_regex(r"[a-z][a-z0-9]{2,8}@[a-z]{3,8}\.(?:com|org|cn)", fullmatch=True), AROUND, AROUND, st.booleans())
def test_a_planted_email_is_gone_whatever_surrounds_it(email: str, before: str, after: str, hidden: bool) -> None:
    shown = email.replace("@", "\u200b@\u200b") if hidden else email
    try:
        cleaned = Scrubber().scrub(before + shown + after)
    except Unscrubbable:
        return
    assert email not in remove_invisible(cleaned)[0]


PIECES = st.sampled_from(
    [
        "王芳",
        "Dr. Smith ",
        "John Miller",
        " said ",
        "，",
        "。",
        "患者",
        "13800138000",
        "[NAME_1]",
        "[PHONE_7]",
        " in Gdansk ",
        "a@b.org",
        "北京市朝阳区建国路8号",
        "\n",
        "1",
        "高血压",
        "tel",
        "Ada",
        " ",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=12))
def test_scrubbing_what_is_scrubbed_changes_nothing(pieces: list[str]) -> None:
    try:
        once = Scrubber().scrub("".join(pieces))
    except Unscrubbable:
        return
    assert Scrubber().scrub(once) == once


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=80))
def test_no_text_brings_it_down(text: str) -> None:
    doubt = assess(text).doubt
    assert 0 <= doubt <= 1
    for span in find(text) if doubt < 1 else []:
        assert 0 <= span.start < span.end <= len(text)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.sampled_from(["NAME", "PHONE"]))
def test_new_placeholders_never_reuse_one_that_the_text_brought(number: int, kind: str) -> None:
    brought = f"[{kind}_{number}]"
    cleaned = Scrubber().scrub(f"{brought}，患者王芳，手机13800138000")
    assert cleaned.count(brought) == 1 and "王芳" not in cleaned and "138" not in cleaned
