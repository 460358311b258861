"""Comparisons as training data: equal and both bad give no pair, both bad and flagged answers are dislikes."""

from typing import Any

from medloop.contracts import Preference
from medloop.data.feedback.build import FeedbackConfig, build
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.records import crud
from medloop.testing.feedback import make_preference


def built(store: Store, *choices: Preference) -> dict[str, list[dict[str, Any]]]:
    crud.add(store, choices, actor="test")
    folder = build(store, FeedbackConfig(), seed=7, actor="test").folder
    return {path.stem: list(jsonl.read(path)) for path in folder.glob("*.jsonl")}


def pairs(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, str]]:
    return sorted((row["chosen"], row["rejected"]) for row in rows["preferences"])


def thumbs(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, bool]]:
    return sorted((row["completion"], row["label"]) for row in rows["thumbs"])


def test_equal_and_both_bad_give_no_pair_and_both_bad_two_dislikes(store: Store) -> None:
    rows = built(
        store, make_preference(1, "rest", "sit", "tie"), make_preference(2, "smoke", "drink", "both_bad"),
        make_preference(4, "ice", "heat", "a"),
    )  # fmt: skip
    assert pairs(rows) == [("ice", "heat")] and thumbs(rows) == [("drink", False), ("smoke", False)]
    assert [row["reason"] for row in rows["dropped"]] == ["no_choice", "no_choice"]


def test_one_choice_does_not_outvote_two_who_see_no_difference(store: Store) -> None:
    choices = (("x", "a"), ("y", "tie"), ("z", "tie"))
    rows = built(
        store, *(make_preference(3, "walk", "run", preferred, clinician_id=name) for name, preferred in choices),
        make_preference(4, "ice", "heat", "a"),
    )  # fmt: skip
    assert pairs(rows) == [("ice", "heat")]


def test_a_flagged_answer_is_disliked_and_never_the_better_one(store: Store) -> None:
    rows = built(
        store, make_preference(1, "smoke", "drink", "a", critical=("a",)),
        make_preference(2, "ice", "burn it", "a", critical=("b",)),
    )  # fmt: skip
    assert pairs(rows) == [("ice", "burn it")] and thumbs(rows) == [("burn it", False), ("smoke", False)]
    assert len(rows["red_team"]) == 2
