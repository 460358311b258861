"""Was this answer liked? One rule, told by hand and then compared with its SQL over every combination of values."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from sqlalchemy import select

from medloop.contracts import Feedback
from medloop.contracts.polarity import combine, label, polarity, stored_type
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.polarity_sql import polarity_column
from medloop.store.tables import rlhf_feedback

ALL = list(product((None, "up", "down"), (None, 1, 2, 3, 4, 5), (None, "positive", "negative", "neutral"), (False, True)))


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ({}, None),
        ({"thumb": "up"}, "positive"), ({"thumb": "down"}, "negative"),
        ({"stars": 1}, "negative"), ({"stars": 2}, "negative"), ({"stars": 3}, "neutral"), ({"stars": 4}, "positive"),
        ({"feedback_type": "negative"}, "negative"), ({"feedback_type": "neutral"}, "neutral"),
        ({"thumb": "up", "stars": 3}, "positive"), ({"thumb": "down", "feedback_type": "neutral"}, "negative"),
        ({"thumb": "up", "stars": 1}, "mixed"), ({"thumb": "down", "stars": 5}, "mixed"),
        ({"stars": 5, "feedback_type": "negative"}, "mixed"),
        ({"critical": True}, "negative"), ({"thumb": "up", "stars": 5, "critical": True}, "negative"),
    ],
)  # fmt: skip
def test_what_the_signals_of_one_record_say_together(signals: dict[str, Any], expected: str | None) -> None:
    assert polarity(**signals) == expected


def test_only_clear_records_become_labels() -> None:
    assert [label(value) for value in ("positive", "negative", "mixed", "neutral", None)] == [True, False, None, None, None]
    assert combine(["mixed", "positive"]) == "mixed" and combine([None, None]) is None


@pytest.mark.parametrize(("thumb", "stars", "critical"), product((None, "up", "down"), (None, 1, 3, 5), (False, True)))
def test_the_stored_type_never_changes_what_the_signals_say(thumb: Any, stars: Any, critical: bool) -> None:
    value = polarity(thumb=thumb, stars=stars, critical=critical)
    assert polarity(thumb=thumb, stars=stars, critical=critical, feedback_type=stored_type(value)) == value


def test_the_database_says_the_same_for_every_combination(store: Store) -> None:
    expected = {}
    for number, (thumb, stars, feedback_type, critical) in enumerate(ALL):
        name = f"fb_{number}"
        expected[name] = polarity(thumb=thumb, stars=stars, feedback_type=feedback_type, critical=critical)
        record = Feedback(
            feedback_id=name, session_id="s", agent_name="a", user_query="q", agent_response="r", comments="c",
            thumb=thumb, rating=stars, feedback_type=feedback_type, critical=critical,
        )  # fmt: skip
        crud.add(store, [record], actor="test")
    with store.read() as conn:
        rows = conn.execute(select(rlhf_feedback.c.feedback_id, polarity_column())).all()
    assert len(ALL) == 144 and dict(tuple(row) for row in rows) == expected
