"""Was this answer liked? The one definition; `store/records/polarity_sql.py` says the same in SQL, and a test compares the two.

    polarity(thumb="up", stars=5)                  # "positive"
    polarity(thumb="up", stars=1)                  # "mixed": the record contradicts itself
    polarity(stars=5, critical=True)               # "negative": the critical flag outweighs everything else
    polarity(stars=3)                              # "neutral"
    polarity()                                     # None: only words or single axes, so nobody knows

docs/decisions/0016-polarity.md has the reasons.
"""

from collections.abc import Iterable
from typing import Literal

from medloop.contracts.feedback import FeedbackType

Polarity = Literal["positive", "negative", "mixed", "neutral"]
REASONS_TO_REVIEW: tuple[Polarity, ...] = ("negative", "mixed")  # a complaint, or a record that contradicts itself


def polarity(
    *, thumb: str | None = None, stars: int | None = None, feedback_type: str | None = None, critical: bool = False
) -> Polarity | None:
    """What all signals of one record say together; None without any signal."""
    by_stars: Polarity | None = None if stars is None else "neutral" if stars == 3 else "positive" if stars > 3 else "negative"
    by_thumb: Polarity | None = None if thumb is None else "positive" if thumb == "up" else "negative"
    by_type: Polarity | None = None
    if feedback_type is not None:
        by_type = "positive" if feedback_type == "positive" else "negative" if feedback_type == "negative" else "neutral"
    return combine((by_thumb, by_stars, by_type), critical=critical)


def combine(signals: Iterable[Polarity | None], *, critical: bool = False) -> Polarity | None:
    """Signals that agree give their common word; good and bad together are mixed, neutral signals outvote nothing."""
    if critical:
        return "negative"
    known = {signal for signal in signals if signal is not None}
    if "mixed" in known or {"positive", "negative"} <= known:
        return "mixed"
    return "positive" if "positive" in known else "negative" if "negative" in known else "neutral" if known else None


def label(value: Polarity | None) -> bool | None:
    """As a training label: liked, disliked, or None where a record must not teach either."""
    return None if value in (None, "mixed", "neutral") else value == "positive"


def stored_type(value: Polarity | None) -> FeedbackType | None:
    """The word that is stored beside the signals; a contradiction counts as neutral there."""
    return "neutral" if value == "mixed" else value
