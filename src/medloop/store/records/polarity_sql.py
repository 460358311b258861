"""`contracts/polarity.py` as an SQL expression over a row of `rlhf_feedback`; a test compares the two for all values.

A comparison with NULL is NULL, which `OR` and `CASE WHEN` do not treat as true. So a signal that was not given has no effect.
"""

from typing import Any

from sqlalchemy import ColumnElement, and_, case, null, or_

from medloop.store.tables import rlhf_feedback


def polarity_column() -> ColumnElement[Any]:
    """'positive', 'negative', 'mixed', 'neutral' or NULL."""
    row = rlhf_feedback.c
    good = or_(row.thumb == "up", row.rating >= 4, row.feedback_type == "positive")
    bad = or_(row.thumb == "down", row.rating <= 2, row.feedback_type == "negative")
    indifferent = or_(row.rating.is_not(None), row.feedback_type.is_not(None))
    return case(
        (row.critical, "negative"), (and_(good, bad), "mixed"), (good, "positive"), (bad, "negative"),
        (indifferent, "neutral"), else_=null(),
    )  # fmt: skip
