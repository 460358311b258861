"""The scanner against a plain reading of the same promise: token by token, phrase by phrase."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medloop import lexicon
from medloop.lexicon.load import load_lexicon, read_list
from medloop.lexicon.negation import LOOK_BACK, openings
from medloop.lexicon.scan import MAX_SPANS, TOKEN, NormalizedText, PhraseSet, Scanner, fold

PHRASES = [
    "chest pain",
    "pain",
    "chest",
    "can't breathe",
    "ill",
    "胸痛",
    "痛",
    "拨打120",
    "120",
    "104.5",
    "me, too",
    "x ray",
    "you 'll see",
]
PIECES = [
    *PHRASES,
    "still",
    "can",
    "'",
    "'t",
    "t",
    "breathe",
    "胸",
    "拨打",
    "104",
    ".",
    ",",
    "5",
    "me",
    "too",
    "x",
    "you",
    "ll",
    "see",
    "。",
    "？",
]
SETS = [PhraseSet() for _ in PHRASES]
SCANNER = Scanner({phrase: [phrase_set] for phrase, phrase_set in zip(PHRASES, SETS, strict=True)})
GAPS = ["", " ", "  ", "-", " - ", "\n", "\n\n", "\t", "\u3000", "\u00a0"]


def naive(phrases: list[str], folded: str) -> dict[int, list[tuple[int, int]]]:
    """Every run of tokens that spells a phrase, by its first and last character."""
    tokens = [(token[0], token.span()) for token in TOKEN.finditer(folded)]
    spelt = {tuple(TOKEN.findall(s)): number for number, p in enumerate(phrases) for s in (p, p.replace("'", ""))}
    spans: dict[int, list[tuple[int, int]]] = {}
    for first in range(len(tokens)):
        for last in range(first, min(first + 4, len(tokens))):
            number = spelt.get(tuple(word for word, _ in tokens[first : last + 1]))
            if number is not None:
                spans.setdefault(number, []).append((tokens[first][1][0], tokens[last][1][1]))
    return {number: of_phrase[:MAX_SPANS] for number, of_phrase in spans.items()}


def scanned(folded: str) -> dict[int, list[tuple[int, int]]]:
    result = SCANNER.scan(NormalizedText(folded))
    return {SETS.index(phrase_set): result.spans_of(phrase_set) for phrase_set in result.present}


@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(GAPS)), max_size=40))
def test_the_scanner_finds_what_a_reader_of_tokens_finds(parts: list[tuple[str, str]]) -> None:
    folded = fold("".join(piece + gap for piece, gap in parts))
    assert scanned(folded) == naive(PHRASES, folded)


@pytest.mark.parametrize("before", GAPS)
@pytest.mark.parametrize("after", GAPS)
def test_an_apostrophe_alone_is_found_whatever_stands_around_it(before: str, after: str) -> None:
    folded = fold(f"you{before}'{after}ll see")
    assert scanned(folded) == naive(PHRASES, folded)


@given(st.text(st.sampled_from("ab1' -\n\t胸痛.,"), max_size=60))
def test_offsets_of_the_normalized_text_lead_back_to_the_folded_one(folded: str) -> None:
    normalized = NormalizedText(folded)
    for index, char in enumerate(normalized.text[:-1]):
        start, end = normalized.original(index, index + 1)
        assert end == start + 1
        assert folded[start] == char or (char == " " and folded[start] in " -\n\t")


def test_half_a_character_is_read_past() -> None:
    assert [m.id for m in lexicon.find_drugs("\ud83d take ibuprofen")] == ["ibuprofen"]


@pytest.mark.parametrize(
    ("cue", "texts"),
    [
        ("no (sign|history) of", {"no sign of", "no history of"}),
        ("n'?t", {"n't", "nt"}),
        ("(do|is)( not)? x", {"do not x", "do x", "is not x", "is x"}),
        ("[13-5]+年前", {"1", "3", "4", "5"}),
        ("没有?(?![法好])", {"没", "没有"}),
        ("(?<!不)应(该|当)", {"应该", "应当"}),
        (r"wait( \w+){0,3} more", {"wait ", "wait more"}),
        ("癫痫.{0,8}时", {"癫痫", "癫痫时"}),
        ("不$", {"不"}),
        ("a|b", {"a", "b"}),
        (r"\s*(is|are) off", {" ", "is off", "are off"}),
        (r"((和|或)[^,.]{1,12})?(类|等)*禁用", {"和", "或", "类", "等", "禁用"}),
    ],
)
def test_openings_are_what_a_cue_can_begin_with(cue: str, texts: set[str]) -> None:
    assert openings(cue) == texts


@pytest.mark.parametrize("cue", [r"\w+ gone", ".x", "a?"])
def test_a_cue_without_a_definite_beginning_is_refused(cue: str) -> None:
    with pytest.raises(ValueError, match="does not begin with definite characters"):
        openings(cue)


def cue_words(*parts: str) -> list[str]:
    cues = read_list("negation.yaml")
    return sorted(
        {text for name in ("finding", "drug", "urgent") for part in parts for cue in cues[name][part] for text in openings(cue)}
    )


CUES = cue_words("list_before", "before", "not_before", "contrast")
AFTER = cue_words("after", "not_after")


@given(st.lists(st.sampled_from([*CUES, " ", "  ", "-", "\n", ", ", "。", ". ", "胸痛", "fever ", "an", "x", "'"]), max_size=14))
def test_every_cue_begins_where_the_scanner_saw_that_it_may(parts: list[str]) -> None:
    """An expression is tried only where the scanner saw one of its openings; it must match nowhere else."""
    folded = fold("".join(parts))
    starts = load_lexicon().matcher.scan(NormalizedText(folded)).cue_starts
    for negation in load_lexicon().negations.values():
        for pattern, number in ((negation.before, negation.before_set), (negation.contrast, negation.contrast_set)):
            assert {cue.start() for cue in pattern.finditer(folded)} <= set(starts[number])
    assert LOOK_BACK > max(map(len, CUES))


def test_what_denies_behind_a_finding_begins_with_one_of_its_signs() -> None:
    parts = product(["", " ", "\n", ",", ", x"], [*AFTER, "x"], ["", " ", " be avoided", "禁用", "没有了"])
    for folded in (gap + first + second for gap, first, second in parts):
        for negation in load_lexicon().negations.values():
            if negation.after.match(folded):
                assert folded[0].isspace() or folded[0] in negation.after_signs, folded


def test_spans_of_one_set_are_in_order_though_one_phrase_contains_another() -> None:
    phrases = PhraseSet()
    result = Scanner({"pain": [phrases], "chest pain now": [phrases]}).scan(NormalizedText("chest pain now pain"))
    assert result.spans_of(phrases) == [(0, 14), (6, 10), (15, 19)]


def test_cues_are_found_in_order_and_inside_of_words() -> None:
    result = Scanner({"no": []}, [["no", "not"], ["o n"]]).scan(NormalizedText("knot  no"))
    assert result.cue_starts == [[1, 1, 6], []]
    assert Scanner({}, [["stop "]]).scan(NormalizedText("stop-胸痛")).cue_starts == [[0]]
