"""The corpus: reproducible, both languages, varying quality, parts that never meet."""

from collections import Counter
from itertools import pairwise

import pytest

from medloop.embedded.check import coherence
from medloop.embedded.corpus import generate, part_of
from medloop.embedded.table import conditions
from medloop.lexicon import find_groups, find_red_flags


def test_same_seed_same_rows_other_seed_other_rows() -> None:
    first = list(generate(200, seed=5))
    assert first == list(generate(200, seed=5)) != list(generate(200, seed=6))


def test_the_parts_share_no_question() -> None:
    base = {row["messages"][-2]["content"] for row in generate(3000, seed=1, part="base") if row["condition"] != "small_talk"}
    clinic = {row["messages"][-2]["content"] for row in generate(3000, seed=1, part="clinic")}
    assert not base & clinic and {part_of(q) for q in clinic} == {"clinic"}


def test_answers_vary_in_every_quality_that_can_be_learned() -> None:
    for part in ("base", "clinic"):
        rows = list(generate(2000, seed=2, part=part))
        answers = [row["messages"][-1]["content"] for row in rows]
        with_chain = sum("<think>" in a for a in answers) / len(rows)
        flagged = [row for row in rows if row.get("red_flag")]
        urgent = sum("emergency=first" in row["quality"] or row["quality"] == "good" for row in flagged) / len(flagged)
        risky = sum("risky=True" in row.get("quality", "") for row in rows) / len(rows)
        low, high = ((0.2, 0.5), (0.2, 0.5)) if part == "base" else ((0.8, 0.98), (0.5, 0.9))
        assert low[0] < with_chain < low[1] and high[0] < urgent < high[1] and 0.05 < risky < 0.5
    assert Counter(row["language"] for row in rows).keys() == {"en", "zh"}


def test_both_tables_hold_the_same_conditions_field_by_field() -> None:
    for en, zh in zip(conditions("en"), conditions("zh"), strict=True):
        assert en.id == zh.id and en.groups.keys() == zh.groups.keys()
        assert [len(getattr(en, f)) for f in ("symptoms", "flags", "advice", "risky")] == [
            len(getattr(zh, f)) for f in ("symptoms", "flags", "advice", "risky")
        ]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_lexicon_sees_what_the_corpus_means(language: str) -> None:
    for row in generate(400, seed=9, language=language):
        question = row["messages"][-2]["content"]
        flags = [m for m in find_red_flags(question) if not m.negated]
        assert bool(flags) == row["red_flag"], question
        assert row["group"] in {"none", *(m.id for m in find_groups(question))}, question


@pytest.mark.parametrize("language", ["en", "zh"])
def test_coherence_knows_the_right_condition_from_a_wrong_one(language: str) -> None:
    rows = list(generate(200, seed=4, language=language))
    right, wrong = [], []
    for row, other in pairwise(rows):
        fields = {"condition": row["condition"], "language": language, "symptom_text": row["messages"][-2]["content"]}
        right.append(coherence(row["messages"][-1]["content"], **fields))
        if other["condition"] != row["condition"]:
            wrong.append(coherence(other["messages"][-1]["content"], **fields))
    assert min(right) == 1.0
    assert sum(wrong) / len(wrong) < 0.6
