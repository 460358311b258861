"""A compiled expression finds what the expression finds, and passes over what cannot begin a match."""

import random
import re
import time

import pytest

from medloop.privacy.phi import compiled as compiled_patterns
from medloop.privacy.phi.compiled import _starts_of, compiled, parser
from medloop.privacy.phi.required import is_member

SIGNS = (
    "aA1 .",
    "ab cdef ghi.,;:!?'\"\n",
    "Dr MrsNurse Patient: is my wife, ",
    "王李张芳患者姓名的医院路号，。 a1:",
    "éÜñÀß’ aB.ſKİı\u212aÉO-",
    "@.:-_/#aA0oOlI1 ",
)


def _found(regex, text):
    return [(match.span(), match.groups(), match.groupdict()) for match in regex.finditer(text)]


def test_every_expression_finds_what_it_finds_when_re_compiles_it(expressions):
    rng, matched = random.Random(5), 0
    words = "Dr. Mr Nurse my wife patient called Grace Smith JONES, JANE MD MRN name is this I'm from at General Hospital bed 4 54M St. seen 患者 王芳 电话".split()
    texts = ["".join(rng.choice(signs) for _ in range(300)) for signs in SIGNS for _ in range(3)]
    texts += [" ".join(rng.choice(words) for _ in range(60)) for _ in range(6)]
    for given in expressions:
        plain, ours = re.compile(*given), compiled(*given)
        assert (ours.groups, dict(ours.groupindex)) == (plain.groups, dict(plain.groupindex))
        for text in texts:
            expected = _found(plain, text)
            assert _found(ours, text) == expected, given
            matched += bool(expected)
    assert len(expressions) > 400 and matched > 700


@pytest.mark.parametrize(
    "pattern",
    [
        r"\b(?i:granny|grandma|gran|mark|my aunt|m)\w?",
        "a(?:bc|b|bcd|)(?:x|)|ab",  # the first alternative that matches, not the longest
        "(?:ab|[ax]c?|acd|xb)",  # acd must not pass [ax]c?
        "(?:a(b)|a(c)|ab)+",
        r"(?i)(?:straße|K|ſ|[i-k]x|[^a-y]|é)1",
        r"(?i:(a)b\1)|(?<=x)y|^z|$q",
        r"(?m)^\d+|[^\W\d_]{2}-|(?!a)[a-c]",
        r"(?:|a)b|(?P<name>c*?d)(?(name)e|f)",
        r"(?>ab|a)c|(?:x*+)y",
        "",
    ],
)
def test_a_changed_tree_matches_the_same(pattern):
    rng, plain, ours = random.Random(1), re.compile(pattern), compiled(pattern)
    for _ in range(400):
        letters = rng.choice(("abcdexyz", "abcdexyzABMKijk granmkut1ſKİıéÉßẞ\n-"))
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(12)))
        assert _found(ours, text) == _found(plain, text), text


def test_a_class_that_is_worked_out_once_gives_the_same_program(expressions, monkeypatch):
    programs = []

    class Compiler:
        def compile(self, *program):
            programs.append([*map(repr, program)])

    monkeypatch.setattr(compiled_patterns, "_sre", Compiler())
    for given in expressions:
        compiled(*given)
    count = len(programs)
    monkeypatch.setattr(compiled_patterns, "_optimize_classes", lambda tree: None)
    for given in expressions:
        compiled(*given)
    assert programs[:count] == programs[count:] and count == len(expressions)


def test_all_forms_of_a_letter_that_re_takes_for_equal_are_found():
    everything = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000))))
    for letter in "abcdefghijklmnopqrstuvwxyz":
        assert compiled(f"(?i:x{letter}|{letter})").findall(everything) == re.findall(f"(?i:x{letter}|{letter})", everything)


def test_the_search_knows_how_a_match_begins():
    members = _starts_of(parser.parse(r"\b(?<!-)(?:[Mm]y|Dr)?\.? ?(?=x)[A-C]")).members
    begins = {chr(point) for point in range(128) if is_member(point, tuple(members), False)}
    assert begins == set("MmD. ABC")
    assert _starts_of(parser.parse("(?:a|.)b")).members is None


def test_a_word_list_behind_a_boundary_is_tried_at_its_first_letters_only():
    pattern = (
        r"\b(?i:" + "|".join(f"{letter}{word}" for letter in "gnmt" for word in ("randma", "urse", "idwife", "eacher")) + ")"
    )
    text, plain, ours = "please look into whether coffee helps " * 2000, re.compile(pattern), compiled(pattern)
    seconds = [min(_seconds(regex, text) for _ in range(5)) for regex in (plain, ours)]
    assert seconds[1] * 3 < seconds[0]


def _seconds(regex, text):
    started = time.process_time()
    assert regex.search(text) is None
    return time.process_time() - started
