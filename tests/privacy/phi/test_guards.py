"""A guarded expression finds what the expression finds, on texts of every kind."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from medloop.privacy.phi import guards, noted_text
from medloop.privacy.phi.required import required

TEXTS = (
    "Patient: Kelvin Marsh, 54 y/o, MRN 00123456. My wife Nivea called Dr. Ashby today; call me at (617) 555-0143 or x@mail.example.org.",
    "患者王芳，女，54岁，手机13800138000，家住北京市朝阳区建国路88号。姓名：夏天，我女儿雪莲昨天发烧了。微信号 lin_xia.88",
    "SMITH, JOHN M 45 M seen in Mercy General Hospital on 03/04/1987. SSN 123-45-6789, plate 京A12345, DOB O3-Feb-l997",
    "ſpoke with Kelly, MY NAME IS İpek ıŞIK; call me at Σίγμα ſtreet 9",
    "孩子阿依古丽·买买提和李小龙都要复查；主刀：张伟 一助：李娜，护照E12345678，一三八零零一三八零零零，“伟大”的伟",
    "i'm penny, 34, from leeds. thanks, rose x\n\nsent by nurse hope\nbed 4: chance reports pain, goes by Jo, lives at 12 elm street",
    "grüße von Zoë Müller-Ångström, née O’Neill, sœur Ümit; tel: +49 (0)30 1234567, IBAN DE89 3704 0044 0532 0130 00",
    "v：a b c 1 3 5 7 9 and 4 8 then 2 1 and 7 7 3 5 9, dee dee underscore 88, nineteen forty-two, oh seven, eleven, http://a.b/c",
)  # fmt: skip


def test_what_is_required_is_in_every_match_of_every_expression(expressions):
    guarded = [guards.lazy_pattern(*given) for given in expressions]
    for pattern in guarded:
        pattern.flags  # noqa: B018  compiled
        pattern._guard()
    noted_text._table.build()
    noted_text.note(*TEXTS)
    assert len(guards.noted) >= len(TEXTS) - 1  # one has letters whose case is odd, and is searched as it is
    matched = skipped = 0
    for text in TEXTS:
        for (source, flags), pattern in zip(expressions, guarded, strict=True):
            expected = [match.span() for match in re.compile(source, flags).finditer(text)]
            assert [match.span() for match in pattern.finditer(text)] == expected, source
            assert (pattern.search(text) is None) == (not expected), source
            matched += bool(expected)
            skipped += pattern.finditer(text) is guards._NO_MATCHES
    assert matched > 200 and skipped > len(TEXTS) * len(expressions) / 3


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("姓名[:：]", "姓名：夏天"),
        (r"\b(?i:my|HIS) (?:cell|Phone)?number", "MY number"),
        (r"(?:ab|c)?x(?=\d|[yz])", "abxz"),
        (r"(?<=Dr )[A-Z]\w+", "Dr Who"),
        (r"[^\W\d_]{2}-[ÀÉ]", "ab-É"),
        (r"(?:q[.:]){2,3}|zz", "q.q:"),
        (r"(a)\1b|.", "."),
        (r"[^a-z]Q", "1Q"),
        (r"(?i)straße", "STRAßE"),
        ("(?i)k", "\u212a"),
    ],
)
def test_an_expression_that_matches_is_never_skipped(pattern, text):
    guarded = guards.lazy_pattern(pattern)
    assert guarded.search(text)
    guarded._guard()
    noted_text._table.build()
    long = f"....{text}...."
    noted_text.note(text, long)
    assert guarded.search(long) and list(guarded.finditer(long)) != []
    assert bool(guarded.search(text)) == bool(re.search(pattern, text))


def test_pieces_are_rare_ones_of_what_every_match_has():
    assert required("姓名[:：]|电话").pieces == [frozenset({"姓名:", "姓名：", "电话"})]
    assert required(r"[A-Z][a-z]+").pieces == []
    assert ("Aa",) in required(r"[A-Z][a-z]+").shapes


def test_a_text_without_the_pieces_is_not_searched():
    guarded = guards.lazy_pattern("quarantine|isolat(?:e|ion)")
    guarded.search("")
    guarded._guard()
    noted_text._table.build()
    noted_text.note("Two days of fever and a cough.", "She was isolated.")
    assert guarded.finditer("Two days of fever and a cough.") is guards._NO_MATCHES
    assert guarded.search("She was isolated.")


def test_threads_that_guard_at_once_never_share_a_bit(monkeypatch):
    class Slow(list):
        """Its length is old by the time somebody uses it."""

        def __len__(self):
            length = list.__len__(self)
            time.sleep(0.001)
            return length

    monkeypatch.setattr(guards, "clauses", Slow())
    with ThreadPoolExecutor(4) as pool:
        bits = list(pool.map(lambda number: guards._add([frozenset({str(number)})]), range(20)))
    assert len(set(bits)) == 20 and all(guards.clauses[bit.bit_length() - 1] == {str(n)} for n, bit in enumerate(bits))


def test_an_expression_that_is_guarded_while_the_table_is_built_is_still_searched(monkeypatch):
    class Growing(list):
        """Gets another clause while it is read, as from another thread."""

        def __iter__(self):
            yield from list.__iter__(self)
            self.append(frozenset({"late"}))

    monkeypatch.setattr(guards, "clauses", Growing([frozenset({"early"})]))
    monkeypatch.setattr(noted_text, "clauses", guards.clauses)
    table = noted_text._PieceTable()
    table.build()
    assert table.known == 1  # what is not in the table does not count as known
