"""What the scan leaves out to save time changes no result."""

import random

import pytest

from medloop.privacy.phi import allowed, disguised, find, guards
from medloop.privacy.phi.english import tagged_spans, tagger
from medloop.privacy.phi.english.candidates import RULES, WORD_RULES, PhiCandidate, deciding_rule, is_word_phi
from medloop.privacy.phi.find import PreparedText

WORDS = """Dr Mr Grace Mark Maria Miller SMITH Hodgkin Murphy Marie Tooth Wu Nice Cap Ray X disease syndrome sign wort patients fever
    chronic kidney stone Kenya Chicago Clinic General Hospital World Bank 500 MG 12 45 9 40 AM the a was called put ice said of in and
    do n't 't ; : , . ( - Tab Telma Status post Zio ive positive negative test Tylenol rich jordan""".split()


def _texts(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 14))).replace(" - ", "-")
        yield rng.choice((text, text, text.lower(), text.upper()))


@pytest.mark.parametrize("medical", [False, True])
def test_rules_that_cannot_apply_are_left_out_without_a_change(medical):
    rng, decided = random.Random(3), set()
    for text in _texts(500, 1):
        tokens = tagger.tokens(text)
        first = rng.randrange(len(tokens))
        last = rng.randrange(first, min(first + 3, len(tokens)))
        for kind in ("NAME", "PLACE", "ORG"):
            candidate = PhiCandidate(tokens, first, last, kind, medical, tagger.case_of(text) == tagger.LetterCase.MIXED)
            if not (candidate.words or candidate.digits):
                continue
            rule = next(rule for rule in RULES if kind in rule.kinds and rule.applies(candidate))
            assert deciding_rule(candidate) is rule, (text, first, last)
            for_word = next(rule for rule in WORD_RULES if kind in rule.kinds and rule.applies(candidate))
            assert is_word_phi(candidate) == for_word.is_phi
            decided.add(rule.name)
    assert len(decided) > (14 if medical else 10)


def test_a_span_with_a_name_that_is_in_no_term_is_judged_as_by_all_rules(monkeypatch):
    spans = []
    for text in _texts(1500, 2):
        words = tagger.tokens(text)
        for first in range(len(words)):
            for word in words[first : first + 3]:
                spans += [(text, (words[first].start, word.end, kind)) for kind in ("NAME", "PLACE", "ORG")]
    soon = [allowed.is_term(*span) for span in spans]
    names = sum(map(allowed._is_only_name, {word.lower() for word in WORDS}))
    monkeypatch.setattr(allowed, "_is_only_name", lambda word: False)
    assert soon == [allowed.is_term(*span) for span in spans]
    assert names > 2 and 100 < sum(soon) < len(soon) - 100


@pytest.mark.parametrize(
    ("text", "kind", "is_term"),
    [
        ("patients of (Georgia) had it", "PLACE", True),
        ("patients of (Georgia) had it", "NAME", False),
        ("had X (Ray Maria) today", "NAME", True),
        ("Mallory-(Blum)berg was normal", "NAME", True),
        ("(Hartmann) negative", "NAME", True),
        ("(Maria Miller) disease", "NAME", True),
        ("Dr. (Maria Miller) came", "NAME", False),
    ],
)
def test_terms_that_hold_a_name(text, kind, is_term):
    start, end = text.index("("), text.index(")") - 1
    assert allowed.is_term(text.replace("(", "").replace(")", ""), (start, end, kind)) == is_term


def test_an_added_term_is_looked_for_before_the_shortcut(monkeypatch):
    text = "gave Maria Miller today"
    assert not allowed.is_term(text, (5, 17, "NAME"))
    monkeypatch.setattr(allowed, "_added", allowed.Terms.of(["Maria Miller"]))
    assert allowed.is_term(text, (5, 17, "NAME"))


def test_words_of_ascii_are_those_of_every_script():
    rng = random.Random(4)
    for _ in range(300):
        text = "".join(rng.choice("abS'tdrelv SM1_2-.\n\t'’"[: rng.choice((20, 21))]) for _ in range(60))
        expected = [(*match.span(), match[0]) for match in tagger.TOKEN.finditer(text)]
        dull = [token for token in tagger.tokens(text) if token not in expected]
        assert not dull and len(tagger.tokens(text)) <= len(expected)
        if not tagger._DULL_RUN.search(text):
            assert tagger.tokens(text) == expected


@pytest.mark.parametrize("signs", ["1 " * 20, ". - " * 10, "é" * 3 + "1.2." * 10, "_-" * 12, "\n" * 18])
def test_long_runs_of_signs_are_cut_with_and_without_a_known_span(signs):
    text = f"seen by {signs} Maria"
    known = [(0, 4, "DATE")]
    assert [token for token in tagger.tokens(text) if token.start > 4] == tagger.tokens(text, known)[1:]
    assert len(tagger.tokens(text)) <= 3 + 1 + 16


def test_a_hyphen_at_the_end_of_a_line_joins_names():
    assert find._with_hyphens("saw Hodgkin-\nAmes today", (13, 17, "NAME")) == (4, 17, "NAME")
    assert find._with_hyphens("saw Hodgkin-Ames-Lee", (12, 16, "NAME")) == (4, 20, "NAME")


def test_every_disguise_is_reached_by_its_example():
    for row in disguised.DISGUISES:
        assert disguised.may_hide(row.example), row.name


def test_a_word_is_nearest_by_what_stands_before_it(monkeypatch):
    monkeypatch.setattr(tagged_spans.tagger.load(), "margins", lambda scores, tags, bias: [-5.0] * len(scores))
    nearest = [
        tagged_spans.nearest(PreparedText(text).tagged[1]) for text in ("the Friday tests are on", "tests of Friday are on now")
    ]
    assert nearest == [-1e9, -5.0]


def test_searches_of_long_texts_guard_nothing():
    regex = guards.lazy_pattern("fever|cough")
    for _ in range(2 * guards._OFTEN):
        regex.search("x" * (guards.LONGEST + 1))
    unguarded = regex.search
    for _ in range(guards._OFTEN):
        unguarded("a short text")
    assert unguarded.__name__ == "counted" and regex.search.__name__ != "counted"
