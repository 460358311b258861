"""Rows with rules: reproducible, the answer follows its rules, and what is held out is in no training row."""

import re
from itertools import chain, pairwise

import pytest

from medloop.codebook.reflect import WORDS
from medloop.embedded.corpus import LANGUAGES, part_of
from medloop.embedded.rule_rows import (
    HELD_OUT_CONDITIONS,
    HELD_OUT_DAYS,
    KINDS,
    generate_rule_rows,
    obeys,
    rule_phrases,
    unseen_rule_rows,
)
from medloop.models.codebook_prompt import HEADING


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return list(generate_rule_rows(1500, seed=3))


def test_same_seed_same_rows_and_every_answer_follows_its_rules(rows: list[dict]) -> None:
    assert rows[:100] == list(generate_rule_rows(100, seed=3)) != list(generate_rule_rows(100, seed=4))
    for row in rows:
        assert row["messages"][0]["content"].startswith(HEADING)
        assert obeys(row, row["messages"][-1]["content"]), row["rules"]
    assert {rule["kind"] for row in rows for rule in row["rules"]} == KINDS.keys()


def test_another_row_answers_other_rules(rows: list[dict]) -> None:
    """The check is not one that any answer passes."""
    first = [row for row in rows if {rule["kind"] for rule in row["rules"]} & {"first", "followup", "example", "last"}]
    assert sum(obeys(row, other["messages"][-1]["content"]) for row, other in pairwise(first)) < len(first) / 50


def test_what_is_held_out_is_in_no_training_row(rows: list[dict]) -> None:
    prompts = [row["messages"][0]["content"] for row in rows]
    assert not {row["condition"] for row in rows} & set(HELD_OUT_CONDITIONS)
    assert {part_of(row["messages"][1]["content"]) for row in rows} == {"base"}
    assert not {rule["wanted"] for row in rows for rule in row["rules"] if rule["kind"] == "followup"} & set(
        map(str, HELD_OUT_DAYS)
    )
    for language in LANGUAGES:
        p = rule_phrases(language)
        wordings = [p.first[-1], p.last[-1], p.followup[-1], p.other_language[-1], *(texts[-1] for texts in p.acts.values())]
        for text in (*wordings, *p.unseen):
            pattern = re.compile(re.escape(text).replace(r"\{n\}", r"\d+").replace(r"\{sentence\}", ""))
            assert not any(pattern.search(prompt) for prompt in prompts), text


@pytest.mark.parametrize("written", [False, True])
def test_unseen_rows_have_unseen_rules_on_unseen_conditions(rows: list[dict], written: bool) -> None:
    unseen = list(unseen_rule_rows(300, seed=5, written=written))
    said = {rule["wanted"] for row in rows for rule in row["rules"] if rule["kind"] in ("first", "last", "example")}
    for row in unseen:
        assert row["condition"] in HELD_OUT_CONDITIONS and part_of(row["messages"][1]["content"]) == "clinic"
        assert len(row["rules"]) == 1 and obeys(row, row["messages"][-1]["content"])
        assert row["rules"][0]["wanted"] not in said or row["rules"][0]["kind"] == "act"


def test_the_rules_that_the_codebook_writes_itself_are_among_them() -> None:
    texts = [set(chain(*rule_phrases(language).acts.values())) for language in ("zh", "en")]
    for zh, en in WORDS.values():
        assert zh in texts[0] and en in texts[1]
